// SPDX-License-Identifier: MIT
// What the tests of safetensors files share: files written by hand, damaged files, and comparisons
// of tensors bit for bit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files/safetensors_header.h"
#include "support/support.h"

namespace mini::test {

/// The bytes of a safetensors file: the length of `header`, `header` and `data`.
inline std::string safetensors_file(std::string_view header, std::string_view data = "") {
  std::string bytes(8, '\0');
  for (unsigned i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes.append(header).append(data);
}

/// Returns `file` with one to three random faults. A fault flips a bit, replaces or inserts a token
/// of a header, removes, duplicates or cuts off bytes, or replaces a digit.
inline std::string mutate(std::string file, std::mt19937& random) {
  static const std::vector<std::string> kPieces = {"{",
                                                   "}",
                                                   "[",
                                                   "]",
                                                   ",",
                                                   ":",
                                                   "\"",
                                                   "\\",
                                                   "-",
                                                   ".",
                                                   "0",
                                                   "9",
                                                   " ",
                                                   std::string(1, '\0'),
                                                   "\xff",
                                                   "-1",
                                                   "2.5",
                                                   "1e3",
                                                   "null",
                                                   "true",
                                                   "9223372036854775807",
                                                   "18446744073709551615",
                                                   "4294967296",
                                                   "F32",
                                                   "BF16",
                                                   "dtype",
                                                   "shape",
                                                   "data_offsets",
                                                   "__metadata__",
                                                   "\\u0000"};
  const auto up_to = [&](std::size_t limit) {
    return std::uniform_int_distribution<std::size_t>(0, limit)(random);
  };
  for (std::size_t faults = 1 + up_to(2); faults > 0 && !file.empty(); --faults) {
    const std::size_t at = up_to(file.size() - 1);
    const std::size_t length = std::min(1 + up_to(15), file.size() - at);
    const std::string& piece = kPieces[up_to(kPieces.size() - 1)];
    switch (up_to(6)) {
      case 0:
        file[at] = static_cast<char>(file[at] ^ 1 << up_to(7));
        break;
      case 1:
        file.replace(at, 1, piece);
        break;
      case 2:
        file.insert(at, piece);
        break;
      case 3:
        file.erase(at, length);
        break;
      case 4:
        file.insert(at, file, at, length);
        break;
      case 5:
        file.resize(at);
        break;
      default: {
        const std::size_t digit = file.find_first_of("0123456789", at);
        if (digit != std::string::npos) file.replace(digit, 1, piece);
      }
    }
  }
  return file;
}

/// The message of the std::invalid_argument that the reader throws; "" if it accepts the file.
inline std::string refusal(const std::string& file) {
  try {
    detail::read_safetensors_header(file);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

/// A header with one tensor: {"NAME":{"dtype":...}}.
inline std::string header_of(std::string_view dtype, std::string_view shape,
                             std::string_view offsets, std::string_view name = "a") {
  std::string text = "{\"";
  text.append(name).append(R"(":{"dtype":")").append(dtype).append(R"(","shape":)").append(shape);
  return text.append(R"(,"data_offsets":)").append(offsets).append("}}");
}

/// A valid file with metadata, a scalar, an empty tensor and several types.
inline std::string good_file() {
  return safetensors_file(R"({"__metadata__":{"format":"pt","note":"gr\u00fc\u00dfe"},)"
                          R"("w":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},)"
                          R"("n":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                          R"("e":{"dtype":"BF16","shape":[2,0],"data_offsets":[32,32]},)"
                          R"("m":{"dtype":"BOOL","shape":[3],"data_offsets":[32,35]}}    )",
                          std::string(35, '\1'));
}

using Tensors = torch::OrderedDict<std::string, at::Tensor>;
using Metadata = std::map<std::string, std::string>;

inline Tensors dict(std::vector<std::pair<std::string, at::Tensor>> items) {
  Tensors tensors;
  for (auto& [name, tensor] : items) tensors.insert(name, tensor);
  return tensors;
}

/// The bytes of the elements. NaNs and types without arithmetic can be compared as bytes.
inline std::string bytes_of(const at::Tensor& tensor) {
  const at::Tensor packed = tensor.contiguous();
  return {static_cast<const char*>(packed.const_data_ptr()), packed.nbytes()};
}

inline void check_same(const at::Tensor& actual, const at::Tensor& expected) {
  CHECK(actual.scalar_type() == expected.scalar_type());
  CHECK(actual.sizes() == expected.sizes());
  CHECK(bytes_of(actual) == bytes_of(expected));
}

inline void check_same(const Tensors& actual, const Tensors& expected) {
  REQUIRE(actual.size() == expected.size());
  for (const auto& item : expected) {
    INFO(item.key());
    REQUIRE(actual.contains(item.key()));
    check_same(actual[item.key()], item.value());
  }
}

/// Three tensors of 1000 floats, whose values depend on `seed`.
inline Tensors model(int seed) {
  const at::Tensor numbers = at::arange(3000, at::kFloat).view({3, 1000}) + 10'000 * seed;
  return dict({{"a", numbers[0]}, {"b", numbers[1]}, {"c", numbers[2]}});
}

}  // namespace mini::test
