// SPDX-License-Identifier: MIT
#include "files/safetensors_header.h"

#include <algorithm>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/files.h"
#include "support/largest_allocation.h"
#include "support/support.h"

using mini::detail::place_tensors;
using mini::detail::read_safetensors_header;
using mini::detail::SafetensorsEntry;
using mini::detail::SafetensorsHeader;
using mini::detail::write_safetensors_header;
using mini::test::ContainsSubstring;
using mini::test::largest_allocation;
using mini::test::mutate;
using mini::test::safetensors_file;

namespace {

/// The message of the refusal; "" if the file is read. No refusal is of another kind.
std::string refusal(const std::string& file) {
  try {
    read_safetensors_header(file);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

/// {"NAME":{"dtype":...}} of one tensor.
std::string header_of(std::string_view dtype, std::string_view shape, std::string_view offsets,
                      std::string_view name = "a") {
  std::string text = "{\"";
  text.append(name).append(R"(":{"dtype":")").append(dtype).append(R"(","shape":)").append(shape);
  return text.append(R"(,"data_offsets":)").append(offsets).append("}}");
}

/// All that the format knows in one file: metadata, scalars, empties, several types.
std::string good_file() {
  return safetensors_file(R"({"__metadata__":{"format":"pt","note":"gr\u00fc\u00dfe"},)"
                          R"("w":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},)"
                          R"("n":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                          R"("e":{"dtype":"BF16","shape":[2,0],"data_offsets":[32,32]},)"
                          R"("m":{"dtype":"BOOL","shape":[3],"data_offsets":[32,35]}}    )",
                          std::string(35, '\1'));
}

/// What the reader promises of every file that it does not refuse.
void check_promises(const SafetensorsHeader& header, const std::string& file) {
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

TEST_CASE("a header gives the tensors in the order of their data", "[safetensors_header]") {
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

TEST_CASE("a header may be empty, padded, and in any order", "[safetensors_header]") {
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

TEST_CASE("every type of the format has its width", "[safetensors_header]") {
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

TEST_CASE("a wrong geometry is refused and the tensor named", "[safetensors_header]") {
  struct Case {
    std::string header, data, message;
  };
  const auto two = [](std::string_view a, std::string_view b) {
    return std::string(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":)").append(a) +
           R"(},"b":{"dtype":"F32","shape":[2],"data_offsets":)" + std::string(b) + "}}";
  };
  const std::string eight(8, '\0'), sixteen(16, '\0');
  const std::vector<Case> cases = {
      {two("[0,8]", "[4,12]"), sixteen, "tensor 'b' at [4, 12] overlaps tensor 'a' at [0, 8]"},
      {two("[0,8]", "[0,8]"), eight, "tensor 'b' at [0, 8] overlaps tensor 'a' at [0, 8]"},
      {two("[0,8]", "[12,20]"), std::string(20, '\0'), "4 bytes before tensor 'b' at [12, 20]"},
      {header_of("F32", "[1]", "[4,8]"), eight, "4 bytes before tensor 'a' at [4, 8]"},
      {header_of("F32", "[2]", "[8,0]"), eight, "tensor 'a': data_offsets [8, 0] are reversed"},
      {header_of("F32", "[4]", "[0,16]"), eight,
       "tensor 'a': data_offsets [0, 16] exceed the data"},
      {header_of("F32", "[2]", "[0,8]"), std::string(12, '\0'), "4 bytes after tensor 'a'"},
      {"{}", "1234", "4 bytes after the header"},
      {header_of("F32", "[3]", "[0,8]"), eight, "tensor 'a': F32 [3] needs 12 bytes"},
      {header_of("F32", "[4294967296,4294967296]", "[0,0]"), "", "tensor 'a': F32 [4294967296,"},
      {header_of("U8", "[9223372036854775807,2]", "[0,0]"), "", "overflows 64 bits"},
      {header_of("U8", "[0,4611686018427387904,4611686018427387904]", "[0,0]"), "",
       "overflows 64 bits"},
      {header_of("F32", "[268435456]", "[0,1073741824]"), eight,
       "exceed the data, which has 8 bytes"},
      {header_of("F32", "[2]", "[0,18446744073709551615]"), eight,
       "exceed the data, which has 8 bytes"},
      {header_of("F32", "[2]", "[18446744073709551608,0]"), eight, "are reversed"},
      {header_of("U8", "[9223372036854775808]", "[0,8]"), eight, "tensor 'a': shape: expected a"},
      {header_of("U8", "[-1]", "[0,8]"), eight, "expected a list of whole numbers, got -1"},
      {header_of("U8", "[-0]", "[0,0]"), "", "expected a list of whole numbers"},
      {header_of("U8", "[2.5]", "[0,8]"), eight, "expected a list of whole numbers, got '2.5'"},
      {header_of("U8", "[8.0]", "[0,8]"), eight, "expected a list of whole numbers, got '8.0'"},
      {header_of("U8", "[8e0]", "[0,8]"), eight, "expected a list of whole numbers, got '8e0'"},
      {header_of("U8", "[1e999]", "[0,8]"), eight, "tensor 'a': shape: "},
      {header_of("U8", "[99999999999999999999999]", "[0,8]"), eight, "tensor 'a': shape: "},
      {header_of("U8", "\"2\"", "[0,2]"), "12", "expected a list of whole numbers, got '2'"},
      {header_of("U8", "[\"2\"]", "[0,2]"), "12", "expected a list of whole numbers, got '2'"},
      {header_of("U8", "[[2]]", "[0,2]"), "12", "expected a list of whole numbers, got a list"},
      {header_of("U8", "{}", "[0,2]"), "12", "expected a list of whole numbers, got an object"},
      {header_of("U8", "2", "[0,2]"), "12", "expected a list of whole numbers, got 2"},
      {header_of("U8", "null", "[0,2]"), "12", "expected a list of whole numbers, got null"},
      {header_of("U8", "[true]", "[0,1]"), "1", "expected a list of whole numbers, got true"},
      {header_of("U8", "[1]", "[0]"), "1", "data_offsets: expected two whole numbers, got a list"},
      {header_of("U8", "[1]", "[]"), "1", "data_offsets: expected two whole numbers, got a list"},
      {header_of("U8", "[1]", "[0,1,2]"), "1", "data_offsets: expected two whole numbers, got mor"},
      {header_of("U8", "[1]", "[0,-1]"), "1", "data_offsets: expected two whole numbers, got -1"},
      {header_of("U8", "[1]", "[0,1.5]"), "1", "data_offsets: expected two whole numbers, got '1."},
      {header_of("U8", "[1]", "\"0\""), "1", "data_offsets: expected two whole numbers, got '0'"},
  };
  for (const Case& wrong : cases) {
    INFO(wrong.header);
    largest_allocation() = 0;
    const std::string message = refusal(safetensors_file(wrong.header, wrong.data));
    CHECK(largest_allocation() < 4096);
    CHECK_THAT(message, ContainsSubstring(wrong.message));
    if (wrong.header != "{}") CHECK_THAT(message, ContainsSubstring("tensor '"));
  }
}

TEST_CASE("an empty tensor may stand between others, not within one", "[safetensors_header]") {
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

TEST_CASE("what the format does not know is refused by its place", "[safetensors_header]") {
  struct Case {
    std::string header, message;
  };
  const std::string good = R"("dtype":"U8","shape":[0],"data_offsets":[0,0])";
  const std::vector<Case> cases = {
      {R"({"a":3})", "tensor 'a': expected an object, got 3"},
      {R"({"a":[]})", "tensor 'a': expected an object, got a list"},
      {R"({"a":null})", "tensor 'a': expected an object, got null"},
      {R"({"a":{}})", "tensor 'a': dtype is missing"},
      {R"({"a":{"dtype":"U8","data_offsets":[0,0]}})", "tensor 'a': shape is missing"},
      {R"({"a":{"dtype":"U8","shape":[0]}})", "tensor 'a': data_offsets is missing"},
      {header_of("F33", "[0]", "[0,0]"), "tensor 'a': dtype: the format has no type 'F33'"},
      {header_of("f32", "[0]", "[0,0]"), "tensor 'a': dtype: the format has no type 'f32'"},
      {R"({"a":{"dtype":8,"shape":[0],"data_offsets":[0,0]}})", "dtype: expected a string, got 8"},
      {R"({"a":{"dtype":["U8"]}})", "tensor 'a': dtype: expected a string, got a list"},
      {R"({"a":{)" + good + R"(,"strides":[1]}})", "tensor 'a': unknown field 'strides'"},
      {R"({"a":{)" + good + R"(,"dtype":"U8"}})", "tensor 'a': dtype: given twice"},
      {R"({"a":{)" + good + R"(,"shape":[0]}})", "tensor 'a': shape: given twice"},
      {R"({"a":{)" + good + R"(,"data_offsets":[0,0]}})", "tensor 'a': data_offsets: given twice"},
      {R"({"a":{)" + good + R"(},"b":{)" + good + R"(},"a":{)" + good + "}}",
       "tensor 'a': given twice"},
      {R"({"__metadata__":{"k":"1","k":"2"}})", "metadata 'k': given twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", "__metadata__: given twice"},
      {R"({"__metadata__":{"k":1}})", "metadata 'k': expected a string, got 1"},
      {R"({"__metadata__":{"k":{}}})", "metadata 'k': expected a string, got an object"},
      {R"({"__metadata__":{"k":null}})", "metadata 'k': expected a string, got null"},
      {R"({"__metadata__":"k"})", "__metadata__: expected an object, got 'k'"},
      {R"({"__metadata__":null})", "__metadata__: expected an object, got null"},
      {R"({"__metadata__":{)" + good + "}}", "metadata 'shape': expected a string, got a list"},
      {header_of("U8", "[0]", "[0,0]", "a\\u0000b"), R"(tensor 'a\x00b': the name contains a NUL)"},
  };
  for (const Case& wrong : cases) {
    INFO(wrong.header);
    CHECK_THAT(refusal(safetensors_file(wrong.header)), ContainsSubstring(wrong.message));
  }

  std::string ones = "[1";
  for (int i = 0; i < 64; ++i) ones += ",1";
  CHECK_THAT(refusal(safetensors_file(header_of("U8", ones + "]", "[0,1]"), "1")),
             ContainsSubstring("tensor 'a': shape: expected a list of whole numbers, got more"));
}

TEST_CASE("what is no JSON, or no UTF-8, is refused", "[safetensors_header]") {
  struct Case {
    std::string header, message;
  };
  const std::vector<Case> cases = {
      {"", "does not begin with '{'"},
      {" {}", "does not begin with '{'"},
      {"[]", "does not begin with '{'"},
      {"\xef\xbb\xbf{}", "does not begin with '{'"},
      {"{", "not JSON"},
      {"{}}", "not JSON"},
      {"{}x", "not JSON"},
      {R"({"a")", "not JSON"},
      {R"({"a":{"dtype")", "tensor 'a': "},
      {R"({/* */})", "not JSON"},
      {R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],}})", "not JSON"},
      {std::string("{}\0\0\0\0\0\0", 8), "contains a NUL byte"},
      {std::string("{\"a\0\":3}", 8), "contains a NUL byte"},
      {"{\"a\xff\":3}", "UTF-8"},
      {"{\"a\xc3\":3}", "UTF-8"},
      {"{\"a\xed\xa0\x80\":3}", "UTF-8"},
      {"{\"a\xc0\x80\":3}", "UTF-8"},
      {R"({"a\ud800":3})", "surrogate"},
      {"{\"a\x01\":3}", "control character"},
      {"{\"a\":" + std::string(1'000'000, '['), "tensor 'a': expected an object, got a list"},
      {R"({"a":{"shape":)" + std::string(1'000'000, '['), "tensor 'a': shape: "},
      {R"({"a":{"x":)" + std::string(1'000'000, '['), "tensor 'a': unknown field 'x'"},
  };
  for (const Case& wrong : cases) {
    INFO(wrong.header.substr(0, 80));
    CHECK_THAT(refusal(safetensors_file(wrong.header)), ContainsSubstring(wrong.message));
  }
}

TEST_CASE("the length of the header is held against the file", "[safetensors_header]") {
  CHECK_THAT(refusal(""), ContainsSubstring("got 0 bytes"));
  CHECK_THAT(refusal("1234567"), ContainsSubstring("got 7 bytes"));
  CHECK_THAT(refusal("PK\x03\x04 and more"),
             ContainsSubstring("a ZIP archive, the format of torch.save"));
  const auto claim = [](std::uint64_t length) {
    std::string file = safetensors_file("{}");
    for (unsigned i = 0; i < 8; ++i) file[i] = static_cast<char>(length >> (8 * i) & 0xff);
    return refusal(file);
  };
  CHECK_THAT(claim(0), ContainsSubstring("does not begin with '{'"));
  CHECK_THAT(claim(3), ContainsSubstring("is 3 bytes, but only 2 bytes follow"));
  CHECK_THAT(claim(100'000'000), ContainsSubstring("is 100000000 bytes"));
  CHECK_THAT(claim(100'000'001), ContainsSubstring("at most 100000000 bytes"));
  for (const std::uint64_t length : {~0ULL, ~0ULL - 7, ~0ULL - 8, 1ULL << 63}) {
    CHECK_THAT(claim(length), ContainsSubstring("at most 100000000 bytes"));
  }
}

TEST_CASE("messages stay short and printable whatever the names are", "[safetensors_header]") {
  const std::string message = refusal(safetensors_file(R"({"\u001b[31m)" + std::string(1000, 'n') +
                                                       R"(":{"dtype":")" + std::string(1000, 'd')));
  CHECK(message.size() < 400);
  CHECK(message.find('\x1b') == std::string::npos);
  CHECK_THAT(message, ContainsSubstring(R"(\x1b[31mnnn)"));
  std::string euros;
  for (int i = 0; i < 100; ++i) euros += "€";
  CHECK_THAT(refusal(safetensors_file("{\"" + euros + "\":3}")), ContainsSubstring("€...'"));
}

TEST_CASE("a file cut off anywhere is refused", "[safetensors_header]") {
  const std::string file = good_file();
  REQUIRE(refusal(file).empty());
  for (std::size_t size = 0; size < file.size(); ++size) {
    INFO(size);
    CHECK_FALSE(refusal(file.substr(0, size)).empty());
  }
}

TEST_CASE("a header with ten thousand random faults is refused or keeps its promises",
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
      check_promises(header, file);
      ++read;
    } catch (const std::invalid_argument& error) {
      REQUIRE(largest_allocation() <= 4 * file.size() + 1024);
      REQUIRE(std::string(error.what()).size() > 10);
    }
  }
  CHECK(read > 100);  // the faults do not all end at the first check
  CHECK(read < 5'000);
}

TEST_CASE("a written header is read back, aligned and always the same", "[safetensors_header]") {
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

TEST_CASE("a header that could not be read back is not written", "[safetensors_header]") {
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
  huge.assign(17, {"a", "U8", {(1LL << 60) - 1}, 0, 0});  // each fits, their sum does not
  CHECK_THROWS_AS(place_tensors(huge), std::invalid_argument);
}
