// SPDX-License-Identifier: MIT
// The headers that the reader accepts, and what it guarantees about each of them.
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "files/safetensors_header.h"
#include "support/largest_allocation.h"
#include "support/safetensors_files.h"
#include "support/support.h"

using mini::detail::read_safetensors_header;
using mini::detail::SafetensorsEntry;
using mini::detail::SafetensorsHeader;
using mini::test::ContainsSubstring;
using mini::test::good_file;
using mini::test::header_of;
using mini::test::largest_allocation;
using mini::test::mutate;
using mini::test::refusal;
using mini::test::safetensors_file;

namespace {

/// Checks what the reader guarantees for every file that it accepts: the tensors tile the data.
void check_guarantees(const SafetensorsHeader& header, const std::string& file) {
  std::uint64_t at = header.data_begin;
  for (const SafetensorsEntry& entry : header.tensors) {
    REQUIRE(header.data_begin + entry.begin == at);
    REQUIRE(entry.begin <= entry.end);
    REQUIRE(entry.shape.size() <= 64);
    for (const std::int64_t size : entry.shape) REQUIRE(size >= 0);
    at = header.data_begin + entry.end;
  }
  REQUIRE(at == file.size());
}

}  // namespace

TEST_CASE("the reader returns the tensors in the order of their data", "[safetensors_header]") {
  const SafetensorsHeader header = read_safetensors_header(good_file());
  REQUIRE(header.tensors.size() == 4);
  CHECK(header.tensors[0].name == "n");
  CHECK(header.tensors[0].dtype == "I64");
  CHECK(header.tensors[0].shape.empty());
  CHECK(header.tensors[1].name == "w");
  CHECK(header.tensors[1].shape == std::vector<std::int64_t>{2, 3});
  CHECK(header.tensors[1].begin == 8);
  CHECK(header.tensors[1].end == 32);
  CHECK(header.tensors[2].name == "e");
  CHECK(header.tensors[3].name == "m");
  CHECK(header.metadata == std::map<std::string, std::string>{{"format", "pt"}, {"note", "grüße"}});
  CHECK(good_file().size() - header.data_begin == 35);
}

TEST_CASE("the reader accepts empty headers, padding and fields in any order",
          "[safetensors_header]") {
  CHECK(refusal(safetensors_file("{}")).empty());
  CHECK(refusal(safetensors_file("{}      ")).empty());
  CHECK(refusal(safetensors_file("{\n}\t ")).empty());
  CHECK(refusal(safetensors_file(R"({"__metadata__":{}})")).empty());
  CHECK(refusal(safetensors_file(header_of("F32", "[0]", "[0,0]"))).empty());
  CHECK(refusal(safetensors_file(header_of("F32", "[2,0]", "[0,0]"))).empty());
  CHECK(refusal(safetensors_file(header_of("F32", "[]", "[0,4]"), "1234")).empty());
  CHECK(refusal(safetensors_file(header_of("U8", "[1]", "[0,1]", "größe"), "1")).empty());
  CHECK(refusal(safetensors_file(R"({"a":{"data_offsets":[0,1],"shape":[1],"dtype":"U8"}})", "1"))
            .empty());
  const std::string ones = "[1" + std::string(126, ' ') + ",1]";
  CHECK(refusal(safetensors_file(header_of("U8", ones, "[0,1]"), "1")).empty());
}

TEST_CASE("the reader knows the width of every type", "[safetensors_header]") {
  const std::vector<std::pair<std::string, int>> bits = {
      {"BOOL", 8},    {"U8", 8},          {"I8", 8},          {"F8_E4M3", 8}, {"F8_E5M2", 8},
      {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"U16", 16},    {"I16", 16},
      {"F16", 16},    {"BF16", 16},       {"U32", 32},        {"I32", 32},    {"F32", 32},
      {"U64", 64},    {"I64", 64},        {"F64", 64},        {"C64", 64},    {"F4", 4},
      {"F6_E2M3", 6}, {"F6_E3M2", 6}};
  for (const auto& [dtype, width] : bits) {
    INFO(dtype);
    const int bytes = 4 * width / 8;  // of four elements
    const std::string end = std::to_string(bytes);
    const std::string data(static_cast<std::size_t>(bytes), '\0');
    CHECK(refusal(safetensors_file(header_of(dtype, "[4]", "[0," + end + "]"), data)).empty());
    CHECK_THAT(refusal(safetensors_file(header_of(dtype, "[8]", "[0," + end + "]"), data)),
               ContainsSubstring("span " + end));
  }
  CHECK_THAT(refusal(safetensors_file(header_of("F4", "[3]", "[0,1]"), "1")),
             ContainsSubstring("tensor 'a': F4 [3] is not a whole number of bytes"));
}

TEST_CASE("an empty tensor may lie between other tensors but not within one",
          "[safetensors_header]") {
  const auto file = [](std::string_view at) {
    return safetensors_file(R"({"e":{"dtype":"F32","shape":[0],"data_offsets":)" + std::string(at) +
                                R"(},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                            "12345678");
  };
  CHECK(refusal(file("[0,0]")).empty());
  CHECK(refusal(file("[4,4]")).empty());
  CHECK(refusal(file("[8,8]")).empty());
  CHECK_THAT(refusal(file("[2,2]")), ContainsSubstring("tensor 'e' at [2, 2] overlaps tensor 'a'"));
  CHECK_THAT(refusal(file("[9,9]")), ContainsSubstring("tensor 'e': data_offsets [9, 9] exceed"));
}

TEST_CASE("the reader refuses a damaged header or returns tensors that tile the file",
          "[safetensors_header]") {
  const std::vector<std::string> files = {
      good_file(), safetensors_file("{}"),
      safetensors_file(header_of("F32", "[1,2]", "[0,8]"), std::string(8, '\0'))};
  std::mt19937 random(42);
  int read = 0;
  for (int i = 0; i < 10'000; ++i) {
    const std::string file = mutate(files[static_cast<std::size_t>(i) % files.size()], random);
    INFO("mutation " << i);
    largest_allocation() = 0;
    try {
      const SafetensorsHeader header = read_safetensors_header(file);
      REQUIRE(largest_allocation() <= 4 * file.size() + 1024);
      check_guarantees(header, file);
      ++read;
    } catch (const std::invalid_argument& error) {
      REQUIRE(largest_allocation() <= 4 * file.size() + 1024);
      REQUIRE(std::string(error.what()).size() > 10);
    }
  }
  CHECK(read > 100);  // some faulty files are still valid
  CHECK(read < 5'000);
}
