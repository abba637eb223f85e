// SPDX-License-Identifier: MIT
// libFuzzer's target for the header reader. The reader must either refuse the bytes or return a
// header that keeps its guarantees.
#include "files/safetensors_header.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

using mini::detail::read_safetensors_header;
using mini::detail::SafetensorsEntry;
using mini::detail::SafetensorsHeader;
using mini::detail::write_safetensors_header;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

bool same(const SafetensorsEntry& a, const SafetensorsEntry& b) {
  return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && a.begin == b.begin &&
         a.end == b.end;
}

/// Checks that the tensors tile the data and that a written copy of the header is read back equal.
void check_guarantees(const SafetensorsHeader& header, std::string_view file) {
  std::uint64_t at = 0;
  for (const SafetensorsEntry& entry : header.tensors) {
    require(entry.begin == at && entry.end >= at);
    at = entry.end;
  }
  require(header.data_begin + at == file.size());

  const std::string written = write_safetensors_header(header);
  const SafetensorsHeader again =
      read_safetensors_header(written + std::string(file.substr(header.data_begin)));
  require(again.metadata == header.metadata);
  require(again.tensors.size() == header.tensors.size());
  for (std::size_t i = 0; i < header.tensors.size(); ++i) {
    require(same(again.tensors[i], header.tensors[i]));
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

/// Returns the file with the length field corrected. Without the correction, every byte that the
/// fuzzer inserts or removes would fail at the first check.
std::string with_correct_length(std::string_view file) {
  const std::size_t end = file.rfind('}') + 1;  // 0 if there is none
  if (end <= 8) return std::string(file);
  std::string corrected(file);
  for (unsigned i = 0; i < 8; ++i) corrected[i] = static_cast<char>((end - 8) >> (8 * i) & 0xff);
  return corrected;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  check(file);
  check(with_correct_length(file));
  return 0;
}
