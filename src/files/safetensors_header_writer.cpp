// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "files/safetensors_format.h"
#include "files/safetensors_header.h"

namespace mini::detail {

using nlohmann::json;

void place_tensors(std::vector<SafetensorsEntry>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    const unsigned a_bits = find_dtype(a.dtype)->bits;
    const unsigned b_bits = find_dtype(b.dtype)->bits;
    return a_bits != b_bits ? a_bits > b_bits : a.name < b.name;
  });
  std::uint64_t at = 0;
  for (SafetensorsEntry& entry : tensors) {
    entry.begin = at;
    if (__builtin_add_overflow(at, byte_size(entry), &at)) {
      refuse(tensor_name(entry.name) + ": the offset after " + type_and_shape(entry) +
             " overflows 64 bits");
    }
    entry.end = at;
  }
}

std::string write_safetensors_header(const SafetensorsHeader& header) {
  std::string text = "{";
  const auto add = [&](const std::string& name, const json& value) {
    if (text.size() > 1) text += ',';
    try {
      text += json(name).dump() + ":" + value.dump();
    } catch (const json::exception&) {
      refuse(in_quotes(name) + ": the name or its text is not UTF-8");
    }
  };
  if (!header.metadata.empty()) add(std::string(kMetadataName), header.metadata);
  for (const SafetensorsEntry& entry : header.tensors) {
    check_name(entry.name);
    if (entry.name == kMetadataName) {
      refuse(tensor_name(entry.name) + ": the name is reserved for the metadata");
    }
    add(entry.name, {{"dtype", entry.dtype},
                     {"shape", entry.shape},
                     {"data_offsets", {entry.begin, entry.end}}});
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeaderBytes) {
    refuse("expected a header of at most 100000000 bytes, got " + std::to_string(text.size()) +
           " bytes");
  }

  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

}  // namespace mini::detail
