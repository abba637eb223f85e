// SPDX-License-Identifier: MIT
// The headers that the reader refuses, with its messages.
#include <cstdint>
#include <string>
#include <vector>

#include "support/largest_allocation.h"
#include "support/safetensors_files.h"
#include "support/support.h"

using mini::test::ContainsSubstring;
using mini::test::good_file;
using mini::test::header_of;
using mini::test::largest_allocation;
using mini::test::refusal;
using mini::test::safetensors_file;

TEST_CASE("the reader names the tensor whose shape or offsets are wrong", "[safetensors_header]") {
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

TEST_CASE("the reader names the field that violates the format", "[safetensors_header]") {
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

TEST_CASE("the reader refuses a header that is not JSON or not UTF-8", "[safetensors_header]") {
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

TEST_CASE("the reader checks the length of the header against the size of the file",
          "[safetensors_header]") {
  CHECK_THAT(refusal(""), ContainsSubstring("got 0 bytes"));
  CHECK_THAT(refusal("\x01\x02\x03\x04\x05\x06\x07"), ContainsSubstring("got 7 bytes"));
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

TEST_CASE("the reader names the format of a file that is not safetensors", "[safetensors_header]") {
  const std::vector<std::pair<std::string, std::string>> files = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 5\n",
       "a pointer of Git LFS"},
      {"<!DOCTYPE html><html><head>", "an HTML or XML page"},
      {"\ufeff\n <html lang=\"en\">", "an HTML or XML page"},
      {std::string("GGUF\x03\0\0\0\x01\0\0\0", 12), "a GGUF file"},
      {"\x1f\x8b\x08\x08 compressed", "a gzip archive"},
      {std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10), "a gzip archive"},  // no time
      {std::string("PK\x03\x04\0\0\x08\x08\0\0", 10), "a ZIP archive"},
      {"\x28\xb5\x2f\xfd\x04\x58 and more", "a Zstandard archive"},
      {std::string("\xfd"
                   "7zXZ\0\0\x04",
                   8),
       "an XZ archive"},
      {"\x80\x04K\x01.", "a Python pickle"},
      {"{}", "JSON"},
      {"dbo", "text"},
      {"x" + std::string(100, '\t') + "x", "text"},
      {"aaaaagröße größe größe größe größe größe größe größe größe größe", "text"},
      {"\x89HDF\r\n\x1a\n and more", "an HDF5 file"},
      {"\x93NUMPY\x01\x01v and more", "a NumPy file"},
      {"\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j", "a Python pickle"},
      {"\x80\x04\x95\x10\x01\x01\x01\x01\x01", "a Python pickle"},
      {R"({"weight": [1, 2]})", "JSON"},
      {R"( [ 1, 2, 3, 4 ])", "JSON"},
      {"learning rate 0.1\n", "text"}};
  for (const auto& [file, format] : files) {
    INFO(format);
    CHECK_THAT(refusal(file), ContainsSubstring("expected a safetensors file, got " + format));
  }
}

TEST_CASE("a header whose length begins like another format is read", "[safetensors_header]") {
  for (const std::size_t length : {0x0280u, 0x8b1fu, 0x4034b50u}) {  // pickle, gzip, ZIP
    INFO(length);
    const std::string file = safetensors_file("{}" + std::string(length - 2, ' '));
    CHECK(refusal(file).empty());
    CHECK_THAT(refusal(file.substr(0, 100)), ContainsSubstring("but only 92 bytes follow"));
  }
  CHECK_THAT(refusal(safetensors_file(std::string(0x0280, 'x'))),
             ContainsSubstring("the header does not begin with '{'"));
}

TEST_CASE("messages of the reader are short and printable for any name", "[safetensors_header]") {
  const std::string message = refusal(safetensors_file(R"({"\u001b[31m)" + std::string(1000, 'n') +
                                                       R"(":{"dtype":")" + std::string(1000, 'd')));
  CHECK(message.size() < 400);
  CHECK(message.find('\x1b') == std::string::npos);
  CHECK_THAT(message, ContainsSubstring(R"(\x1b[31mnnn)"));
  std::string euros;
  for (int i = 0; i < 100; ++i) euros += "€";
  CHECK_THAT(refusal(safetensors_file("{\"" + euros + "\":3}")), ContainsSubstring("€...'"));
}

TEST_CASE("the reader refuses a file that is cut off anywhere", "[safetensors_header]") {
  const std::string file = good_file();
  REQUIRE(refusal(file).empty());
  for (std::size_t size = 0; size < file.size(); ++size) {
    INFO(size);
    CHECK_FALSE(refusal(file.substr(0, size)).empty());
  }
}
