// SPDX-License-Identifier: MIT
// Reads and writes the header of a safetensors file. The reader accepts untrusted bytes.
//
//   bytes 0..7     N, little-endian
//   bytes 8..8+N   JSON: {"__metadata__": {"key": "text", ...},
//                         "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
//   the rest       the data: each tensor's elements, row-major, little-endian, at its offsets
//
// Each byte of the data belongs to exactly one tensor.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace mini::detail {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

struct SafetensorsEntry {
  std::string name;
  std::string_view dtype;  // one of the format's names, in static memory
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // byte offsets into the data
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<SafetensorsEntry> tensors;  // in the order of their data
  std::uint64_t data_begin = 0;           // byte offset into the file
};

/// Reads the header of `file`, the bytes of a whole file, and checks the header against the size of
/// the file. For each entry, `file.substr(data_begin + begin, end - begin)` then exists and has the
/// size that dtype and shape require. The function allocates memory only for bytes that are in the
/// file, never for a size that the header claims.
///
/// The reader also refuses headers that the format allows but no reader here could use: a name with
/// a NUL, more than 64 dimensions, a product of sizes that overflows int64 even if one size is 0,
/// and unknown fields.
///
/// Throws std::invalid_argument naming the tensor or the field.
SafetensorsHeader read_safetensors_header(std::string_view file);

/// Sorts the tensors by descending width of their elements, then by name, and sets their offsets.
/// The bytes of a file therefore depend only on its contents, and each tensor is aligned for its
/// elements. Throws std::invalid_argument if the sizes overflow.
void place_tensors(std::vector<SafetensorsEntry>& tensors);

/// Returns the bytes of the file before its data; their number is a multiple of 8. Throws
/// std::invalid_argument for a name that the reader would refuse or that is not UTF-8.
std::string write_safetensors_header(const SafetensorsHeader& header);

}  // namespace mini::detail
