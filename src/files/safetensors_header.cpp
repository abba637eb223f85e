// SPDX-License-Identifier: MIT
#include "files/safetensors_header.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace mini::detail {
namespace {

using nlohmann::json;

constexpr std::string_view kMetadataName = "__metadata__";
constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr std::size_t kMaxDimensions = 64;              // where LibTorch's operators stop

struct Dtype {
  std::string_view name;
  unsigned bits;
};

constexpr std::array<Dtype, 22> kDtypes = {{
    {"BOOL", 8},    {"U8", 8},          {"I8", 8},          {"F8_E4M3", 8}, {"F8_E5M2", 8},
    {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"U16", 16},    {"I16", 16},
    {"F16", 16},    {"BF16", 16},       {"U32", 32},        {"I32", 32},    {"F32", 32},
    {"U64", 64},    {"I64", 64},        {"F64", 64},        {"C64", 64},    {"F4", 4},
    {"F6_E2M3", 6}, {"F6_E3M2", 6},
}};

const Dtype* find_dtype(std::string_view name) {
  const auto* found = std::find_if(kDtypes.begin(), kDtypes.end(),
                                   [&](const Dtype& dtype) { return dtype.name == name; });
  return found == kDtypes.end() ? nullptr : found;
}

/// For messages: quoted, without control characters, and of a length that people read.
std::string in_quotes(std::string_view text) {
  std::size_t shown_size = std::min<std::size_t>(text.size(), 100);
  if (shown_size < text.size()) {  // not within a character of UTF-8
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

std::string tensor(const std::string& name) { return "tensor " + in_quotes(name); }

[[noreturn]] void fail(const std::string& message) { throw std::invalid_argument(message); }

/// "F32 [2,3]"
std::string describe(const SafetensorsEntry& entry) {
  return std::string(entry.dtype) + " " + json(entry.shape).dump();
}

std::string range(const SafetensorsEntry& entry) {
  return "[" + std::to_string(entry.begin) + ", " + std::to_string(entry.end) + "]";
}

void check_name(const std::string& name) {
  // It would be read as another name, or none, by whatever takes a name for a C string.
  if (name.find('\0') != std::string::npos) fail(tensor(name) + ": the name holds a NUL");
}

/// Zeros count as ones against overflow, since strides are products that leave them out.
std::uint64_t byte_size(const SafetensorsEntry& entry) {
  const auto refuse = [&](const char* why) {
    fail(tensor(entry.name) + ": " + describe(entry) + why);
  };
  std::int64_t bits = find_dtype(entry.dtype)->bits;
  bool empty = false;
  for (const std::int64_t size : entry.shape) {
    empty |= size == 0;
    if (__builtin_mul_overflow(bits, std::max<std::int64_t>(size, 1), &bits)) {
      refuse(" overflows 64 bits");
    }
  }
  if (empty) return 0;
  if (bits % 8 != 0) refuse(" ends within a byte");
  return static_cast<std::uint64_t>(bits / 8);
}

/// Takes the JSON apart as the parser meets it, so that nothing is built but the result.
class HeaderReader final : public nlohmann::json_sax<json> {
 public:
  SafetensorsHeader header;

  bool start_object(std::size_t) override {
    if (place_ == Place::kStart) return enter(Place::kHeader);
    if (place_ == Place::kHeader) {
      return enter(in_metadata_ ? Place::kMetadata : Place::kTensor);
    }
    unexpected("an object");
  }

  bool key(std::string& name) override {
    if (place_ == Place::kHeader) {
      begin_member(name);
    } else if (place_ == Place::kMetadata) {
      field_ = name;
      if (header.metadata.contains(name)) fail("metadata " + in_quotes(name) + ": given twice");
    } else {
      begin_field(name);
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) end_tensor();
    return enter(place_ == Place::kHeader ? Place::kStart : Place::kHeader);
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::kTensor && field_ == "shape") return enter(Place::kShape);
    if (place_ == Place::kTensor && field_ == "data_offsets") return enter(Place::kOffsets);
    unexpected("a list");
  }

  bool end_array() override {
    if (place_ == Place::kOffsets && offsets_.size() != 2) {
      unexpected("a list of " + std::to_string(offsets_.size()));
    }
    return enter(Place::kTensor);
  }

  bool number_unsigned(std::uint64_t number) override {
    if (place_ == Place::kShape) {
      if (number > std::numeric_limits<std::int64_t>::max()) unexpected(std::to_string(number));
      if (entry().shape.size() == kMaxDimensions) unexpected("more than 64 of them");
      entry().shape.push_back(static_cast<std::int64_t>(number));
    } else if (place_ == Place::kOffsets) {
      if (offsets_.size() == 2) unexpected("more");
      offsets_.push_back(number);
    } else {
      unexpected(std::to_string(number));
    }
    return true;
  }

  bool string(std::string& text) override {
    if (place_ == Place::kMetadata) {
      header.metadata.emplace(field_, std::move(text));
    } else if (place_ == Place::kTensor && field_ == "dtype") {
      const Dtype* dtype = find_dtype(text);
      if (dtype == nullptr) fail(where() + "the format has no " + in_quotes(text));
      entry().dtype = dtype->name;
    } else {
      unexpected(in_quotes(text));
    }
    return true;
  }

  bool null() override { unexpected("null"); }
  bool boolean(bool value) override { unexpected(value ? "true" : "false"); }
  bool number_integer(std::int64_t number) override { unexpected(std::to_string(number)); }
  bool number_float(double, const std::string& text) override { unexpected(in_quotes(text)); }
  bool binary(json::binary_t&) override { unexpected("binary data"); }

  bool parse_error(std::size_t, const std::string&, const json::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 9: ...; last read: ..."
    std::string what = error.what();
    what = what.substr(what.find("] ") + 2);
    what = what.substr(0, std::min<std::size_t>(what.find("; last read"), 200));
    const bool between = place_ == Place::kStart || place_ == Place::kHeader;
    fail((between ? "" : where()) + "the header is not JSON: " + what);
  }

 private:
  enum class Place { kStart, kHeader, kMetadata, kTensor, kShape, kOffsets };

  SafetensorsEntry& entry() { return header.tensors.back(); }

  bool enter(Place place) {
    place_ = place;
    return true;
  }

  void begin_member(const std::string& name) {
    in_metadata_ = name == kMetadataName;
    field_.clear();
    if (in_metadata_) {
      if (seen_metadata_) fail("__metadata__: given twice");
      seen_metadata_ = true;
    } else {
      check_name(name);
      header.tensors.emplace_back().name = name;
      seen_shape_ = false;
      seen_offsets_ = false;
      offsets_.clear();
    }
  }

  void begin_field(const std::string& name) {
    field_ = name;
    bool twice = false;
    if (name == "dtype") {
      twice = !entry().dtype.empty();
    } else if (name == "shape") {
      twice = std::exchange(seen_shape_, true);
    } else if (name == "data_offsets") {
      twice = std::exchange(seen_offsets_, true);
    } else {
      field_.clear();
      fail(where() + "unknown field " + in_quotes(name));
    }
    if (twice) fail(where() + "given twice");
  }

  void end_tensor() {
    field_.clear();
    if (entry().dtype.empty()) fail(where() + "no dtype");
    if (!seen_shape_) fail(where() + "no shape");
    if (!seen_offsets_) fail(where() + "no data_offsets");
    entry().begin = offsets_[0];
    entry().end = offsets_[1];
  }

  /// "tensor 'w': shape: ", as far as the parser knows where it is.
  std::string where() const {
    if (in_metadata_) {
      return field_.empty() ? "__metadata__: " : "metadata " + in_quotes(field_) + ": ";
    }
    if (header.tensors.empty()) return "";
    return tensor(header.tensors.back().name) + ": " + (field_.empty() ? "" : field_ + ": ");
  }

  [[noreturn]] void unexpected(const std::string& got) const {
    std::string expected = "an object";
    if (place_ == Place::kMetadata || field_ == "dtype") {
      expected = "a string";
    } else if (field_ == "shape") {
      expected = "a list of whole numbers";
    } else if (field_ == "data_offsets") {
      expected = "two whole numbers";
    }
    fail(where() + "expected " + expected + ", got " + got);
  }

  Place place_ = Place::kStart;
  bool in_metadata_ = false;
  bool seen_metadata_ = false;
  bool seen_shape_ = false;
  bool seen_offsets_ = false;
  std::string field_;  // of the tensor, or the key of the metadata
  std::vector<std::uint64_t> offsets_;
};

void check_sizes(const std::vector<SafetensorsEntry>& tensors, std::uint64_t data_size) {
  for (const SafetensorsEntry& entry : tensors) {
    const std::string what = tensor(entry.name) + ": ";
    if (entry.begin > entry.end) fail(what + "data_offsets " + range(entry) + " are reversed");
    if (entry.end > data_size) {
      fail(what + "data_offsets " + range(entry) + " leave the data of " +
           std::to_string(data_size) + " bytes");
    }
    const std::uint64_t size = byte_size(entry);
    if (size != entry.end - entry.begin) {
      fail(what + describe(entry) + " takes " + std::to_string(size) + " bytes, data_offsets " +
           range(entry) + " hold " + std::to_string(entry.end - entry.begin));
    }
  }
}

/// `tensors` in the order of their data.
void check_tiling(const std::vector<SafetensorsEntry>& tensors, std::uint64_t data_size) {
  std::uint64_t covered = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const SafetensorsEntry& entry = tensors[i];
    if (entry.begin < covered) {
      fail(tensor(entry.name) + " at " + range(entry) + " overlaps " + tensor(tensors[i - 1].name) +
           " at " + range(tensors[i - 1]));
    }
    if (entry.begin > covered) {
      fail(std::to_string(entry.begin - covered) + " bytes before " + tensor(entry.name) + " at " +
           range(entry) + " belong to no tensor");
    }
    covered = entry.end;
  }
  if (covered < data_size) {
    fail(std::to_string(data_size - covered) + " bytes after " +
         (tensors.empty() ? "the header" : tensor(tensors.back().name)) + " belong to no tensor");
  }
}

std::uint64_t read_length(std::string_view file) {
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) {
    length = length << 8U | static_cast<unsigned char>(file[i]);
  }
  return length;
}

}  // namespace

SafetensorsHeader read_safetensors_header(std::string_view file) {
  if (file.size() < kLengthBytes) {
    fail("a file begins with the 8 bytes of its header's length, this one has " +
         std::to_string(file.size()) + " bytes");
  }
  if (file.starts_with("PK\x03\x04")) {
    fail(
        "this is a ZIP archive, as torch.save writes; safetensors.torch.save_file writes what is "
        "expected");
  }
  const std::uint64_t length = read_length(file);
  if (length > kMaxHeaderBytes) {
    fail("a header has at most 100000000 bytes, this one claims " + std::to_string(length));
  }
  if (length > file.size() - kLengthBytes) {
    fail("the header claims " + std::to_string(length) + " bytes, the file has " +
         std::to_string(file.size() - kLengthBytes) + " after its length");
  }
  const std::string_view text = file.substr(kLengthBytes, length);
  if (!text.starts_with('{')) fail("the header does not begin with '{'");
  // The parser would take it for the end, and leave what follows unread.
  if (text.find('\0') != std::string_view::npos) fail("the header holds a NUL byte");

  HeaderReader reader;
  json::sax_parse(text, &reader);
  SafetensorsHeader header = std::move(reader.header);
  header.data_begin = kLengthBytes + length;

  std::vector<SafetensorsEntry>& tensors = header.tensors;
  std::sort(tensors.begin(), tensors.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(tensors.begin(), tensors.end(),
                         [](const auto& a, const auto& b) { return a.name == b.name; });
  if (twice != tensors.end()) fail(tensor(twice->name) + ": given twice");

  const std::uint64_t data_size = file.size() - header.data_begin;
  check_sizes(tensors, data_size);
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  check_tiling(tensors, data_size);
  return header;
}

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
      fail(tensor(entry.name) + ": " + describe(entry) + " overflows the file");
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
      fail(in_quotes(name) + ": the name or its text is no UTF-8");
    }
  };
  if (!header.metadata.empty()) add(std::string(kMetadataName), header.metadata);
  for (const SafetensorsEntry& entry : header.tensors) {
    check_name(entry.name);
    if (entry.name == kMetadataName)
      fail(tensor(entry.name) + ": the name belongs to the metadata");
    add(entry.name, {{"dtype", entry.dtype},
                     {"shape", entry.shape},
                     {"data_offsets", {entry.begin, entry.end}}});
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeaderBytes) {
    fail("a header has at most 100000000 bytes, this one would take " +
         std::to_string(text.size()));
  }

  std::string bytes(kLengthBytes, '\0');
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    bytes[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  }
  return bytes + text;
}

}  // namespace mini::detail
