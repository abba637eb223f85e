// SPDX-License-Identifier: MIT
// What the reader and the writer of safetensors headers share: the format's names and limits, the
// sizes of tensors, and the words of error messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "files/safetensors_header.h"

namespace mini::detail {

constexpr std::string_view kMetadataName = "__metadata__";
constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

struct SafetensorsDtype {
  std::string_view name;
  unsigned bits;  // per element
};

/// Null if the format has no type of that name.
const SafetensorsDtype* find_dtype(std::string_view name);

/// The size of a tensor's data in bytes, from dtype and shape. Throws std::invalid_argument if the
/// size in bits overflows int64 or is not a multiple of 8. A dimension 0 counts as 1 in the check
/// for overflow, because strides are products that leave zeros out.
std::uint64_t byte_size(const SafetensorsEntry& entry);

/// Throws std::invalid_argument if the name of a tensor contains a NUL. A reader that treats names
/// as C strings would see another name.
void check_name(const std::string& name);

/// Throws std::invalid_argument.
[[noreturn]] void refuse(const std::string& message);

/// `text` in quotes for a message: control characters are escaped, and long text is cut.
std::string in_quotes(std::string_view text);

/// "tensor 'NAME'"
std::string tensor_name(std::string_view name);

/// "F32 [2,3]"
std::string type_and_shape(const SafetensorsEntry& entry);

}  // namespace mini::detail
