// SPDX-License-Identifier: MIT
// libFuzzer's target for the header reader. The reader must either refuse the bytes or return a
// header that keeps its guarantees.
#include "files/safetensors_header.h"

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "memory_file.h"

using mini::detail::read_safetensors_header;
using mini::detail::SafetensorsEntry;
using mini::detail::SafetensorsHeader;
using mini::detail::write_safetensors_header;
using mini::fuzz::require;
using mini::fuzz::with_correct_length;

namespace {

bool same(const SafetensorsEntry& a, const SafetensorsEntry& b) {
  return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && a.begin == b.begin &&
         a.end == b.end;
}

/// Checks that the tensors tile the data and that a written copy of the header is read back equal.
void check_guarantees(const SafetensorsHeader& header, std::string_view file) {
  std::uint64_t at = 0;
  for (const SafetensorsEntry& entry : header.tensors) {
    require(entry.begin == at && entry.end >= at, "the tensors tile the data");
    at = entry.end;
  }
  require(header.data_begin + at == file.size(), "the tensors cover the data");

  const std::string written = write_safetensors_header(header);
  const SafetensorsHeader again =
      read_safetensors_header(written + std::string(file.substr(header.data_begin)));
  require(again.metadata == header.metadata, "a written copy has the metadata");
  require(again.tensors.size() == header.tensors.size(), "a written copy has the tensors");
  for (std::size_t i = 0; i < header.tensors.size(); ++i) {
    require(same(again.tensors[i], header.tensors[i]), "a written copy has equal tensors");
  }
}

void check(std::string_view file) {
  SafetensorsHeader header;
  try {
    header = read_safetensors_header(file);
  } catch (const std::invalid_argument&) {
    return;
  }
  check_guarantees(header, file);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  check(file);
  check(with_correct_length(file));
  return 0;
}
