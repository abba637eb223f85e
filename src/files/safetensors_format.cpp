// SPDX-License-Identifier: MIT
#include "files/safetensors_format.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace mini::detail {
namespace {

constexpr std::array<SafetensorsDtype, 22> kDtypes = {{
    {"BOOL", 8},    {"U8", 8},          {"I8", 8},          {"F8_E4M3", 8}, {"F8_E5M2", 8},
    {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"U16", 16},    {"I16", 16},
    {"F16", 16},    {"BF16", 16},       {"U32", 32},        {"I32", 32},    {"F32", 32},
    {"U64", 64},    {"I64", 64},        {"F64", 64},        {"C64", 64},    {"F4", 4},
    {"F6_E2M3", 6}, {"F6_E3M2", 6},
}};

}  // namespace

const SafetensorsDtype* find_dtype(std::string_view name) {
  const auto* found = std::ranges::find(kDtypes, name, &SafetensorsDtype::name);
  return found == kDtypes.end() ? nullptr : found;
}

std::uint64_t byte_size(const SafetensorsEntry& entry) {
  const auto require = [&](bool holds, const char* problem) {
    if (!holds) refuse(tensor_name(entry.name) + ": " + type_and_shape(entry) + problem);
  };
  std::int64_t bits = find_dtype(entry.dtype)->bits;
  bool empty = false;
  for (const std::int64_t size : entry.shape) {
    empty |= size == 0;
    require(!__builtin_mul_overflow(bits, std::max<std::int64_t>(size, 1), &bits),
            " overflows 64 bits");
  }
  if (empty) return 0;
  require(bits % 8 == 0, " is not a whole number of bytes");
  return static_cast<std::uint64_t>(bits / 8);
}

void check_name(const std::string& name) {
  if (name.find('\0') != std::string::npos) refuse(tensor_name(name) + ": the name contains a NUL");
}

void refuse(const std::string& message) { throw std::invalid_argument(message); }

std::string in_quotes(std::string_view text) {
  std::size_t shown_size = std::min<std::size_t>(text.size(), 100);
  if (shown_size < text.size()) {  // do not cut within a character of UTF-8
    while (shown_size > 0 && (text[shown_size] & 0xc0) == 0x80) --shown_size;
  }
  std::string shown = "'";
  for (const char c : text.substr(0, shown_size)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      shown += {'\\', 'x', "0123456789abcdef"[byte / 16], "0123456789abcdef"[byte % 16]};
    } else {
      shown += c;
    }
  }
  return shown + (shown_size < text.size() ? "...'" : "'");
}

std::string tensor_name(std::string_view name) { return "tensor " + in_quotes(name); }

std::string type_and_shape(const SafetensorsEntry& entry) {
  return std::string(entry.dtype) + " " + nlohmann::json(entry.shape).dump();
}

}  // namespace mini::detail
