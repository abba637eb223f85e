// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files/safetensors_header.h"
#include "support/support.h"

using mini::detail::place_tensors;
using mini::detail::read_safetensors_header;
using mini::detail::SafetensorsEntry;
using mini::detail::SafetensorsHeader;
using mini::detail::write_safetensors_header;
using mini::test::ContainsSubstring;

TEST_CASE("the reader returns what the writer wrote, aligned and in a fixed order",
          "[safetensors_header]") {
  SafetensorsHeader header;
  header.metadata = {{"format", "pt"}, {"quote", "\"\\\n\x01"}};
  const auto add = [&](std::string name, std::string_view dtype, std::vector<std::int64_t> shape) {
    header.tensors.push_back({std::move(name), dtype, std::move(shape), 0, 0});
  };
  add("flag", "BOOL", {3});
  add("b.weight", "F32", {2, 3});
  add("half", "F16", {5});
  add("a.weight", "F32", {1});
  add("count", "I64", {});
  add("none", "F64", {2, 0});
  add("größe", "U8", {1});
  place_tensors(header.tensors);
  const std::string bytes = write_safetensors_header(header);

  CHECK(bytes.size() % 8 == 0);
  CHECK(bytes[8] == '{');
  const SafetensorsHeader read =
      read_safetensors_header(bytes + std::string(header.tensors.back().end, '\0'));
  CHECK(read.data_begin == bytes.size());
  CHECK(read.metadata == header.metadata);
  std::vector<std::string> names;
  for (const SafetensorsEntry& entry : read.tensors) names.push_back(entry.name);
  CHECK(names ==
        std::vector<std::string>{"count", "none", "a.weight", "b.weight", "half", "flag", "größe"});

  std::reverse(header.tensors.begin(), header.tensors.end());
  place_tensors(header.tensors);
  CHECK(write_safetensors_header(header) == bytes);
}

TEST_CASE("the writer refuses a header that the reader would refuse", "[safetensors_header]") {
  const auto error_of = [](const std::string& name, const std::string& metadata = "") {
    SafetensorsHeader header;
    if (!metadata.empty()) header.metadata["k"] = metadata;
    header.tensors.push_back({name, "U8", {1}, 0, 1});
    try {
      write_safetensors_header(header);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(error_of("a").empty());
  CHECK_THAT(error_of("__metadata__"), ContainsSubstring("is reserved for the metadata"));
  CHECK_THAT(error_of(std::string("a\0b", 3)), ContainsSubstring("contains a NUL"));
  CHECK_THAT(error_of("a\xff"), ContainsSubstring("UTF-8"));
  CHECK_THAT(error_of("a", "\xff"), ContainsSubstring("UTF-8"));
  CHECK_THAT(error_of(std::string(200, '\x80')), ContainsSubstring("UTF-8"));
  CHECK_THAT(error_of(std::string(100'000'000, 'a')), ContainsSubstring("at most 100000000 bytes"));

  std::vector<SafetensorsEntry> huge = {{"a", "U8", {1LL << 59}, 0, 0},
                                        {"b", "U8", {1LL << 59}, 0, 0}};
  place_tensors(huge);
  CHECK(huge[1].end == 1ULL << 60);
  huge[0].shape = {1LL << 62, 2};
  CHECK_THROWS_AS(place_tensors(huge), std::invalid_argument);
  huge.assign(17, {"a", "U8", {(1LL << 60) - 1}, 0, 0});  // each size fits, the sum overflows
  CHECK_THROWS_AS(place_tensors(huge), std::invalid_argument);
}
