// The header of a safetensors file: reading it from bytes nobody vouches for, and writing it.
// SPDX-License-Identifier: MIT
//
//   bytes 0..7     N, little-endian
//   bytes 8..8+N   JSON: {"__metadata__": {"key": "text", ...},
//                         "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
//   the rest       the data: each tensor's elements, row-major, little-endian, at its offsets
//
// The tensors tile the data: no byte is in two of them and none is in no one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace mini::detail {

struct SafetensorsEntry {
  std::string name;
  std::string_view dtype;  // one of the format's own names, which live forever
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // in the data
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<SafetensorsEntry> tensors;  // in the order of their data
  std::uint64_t data_begin = 0;           // in the file
};

/// Reads the header of a whole file and checks it against the file's size, so that afterwards
/// every `file.substr(data_begin + begin, end - begin)` exists and is as long as dtype and shape
/// say. No number in the header decides how much memory is taken: only bytes that are there do.
///
/// Beyond the format's own rules it refuses what no reader here could use: a NUL in a name, more
/// than 64 dimensions, sizes whose product leaves int64 even where a 0 is among them, and fields
/// it does not know.
///
/// Throws std::invalid_argument naming the tensor or the field.
SafetensorsHeader read_safetensors_header(std::string_view file);

/// Gives each tensor its offsets: those with the widest elements first, then by name. So the bytes
/// of a file depend on nothing but its contents, and each tensor is aligned for its elements.
/// Throws std::invalid_argument if the sizes overflow.
void place_tensors(std::vector<SafetensorsEntry>& tensors);

/// The file up to its data, which begins at a multiple of 8. Throws std::invalid_argument for a
/// name that the reader would refuse or that is no UTF-8.
std::string write_safetensors_header(const SafetensorsHeader& header);

}  // namespace mini::detail
