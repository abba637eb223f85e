// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "files/safetensors_format.h"
#include "files/safetensors_header.h"
#include "files/utf8.h"

namespace mini::detail {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxDimensions = 64;  // LibTorch's operators accept no more
constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};

std::string range(const SafetensorsEntry& entry) {
  return "[" + std::to_string(entry.begin) + ", " + std::to_string(entry.end) + "]";
}

/// Receives the events of the JSON parser and builds the header directly, without a JSON document
/// in between. Memory therefore depends only on bytes that are in the file.
class HeaderReader final : public nlohmann::json_sax<json> {
 public:
  SafetensorsHeader header;

  bool start_object(std::size_t) override {
    if (place_ == Place::kStart) return enter(Place::kHeader);
    if (place_ == Place::kHeader) return enter(in_metadata_ ? Place::kMetadata : Place::kTensor);
    unexpected("an object");
  }

  bool key(std::string& name) override {
    if (place_ == Place::kHeader) {
      begin_member(name);
    } else if (place_ == Place::kMetadata) {
      field_ = name;
      if (header.metadata.contains(name)) refuse("metadata " + in_quotes(name) + ": given twice");
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
      if (entry().shape.size() == kMaxDimensions) unexpected("more than 64");
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
      const SafetensorsDtype* dtype = find_dtype(text);
      if (dtype == nullptr) refuse(where() + "the format has no type " + in_quotes(text));
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
    refuse((between ? "" : where()) + "the header is not JSON: " + what);
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
      if (seen_metadata_) refuse("__metadata__: given twice");
      seen_metadata_ = true;
    } else {
      check_name(name);
      header.tensors.emplace_back().name = name;
      seen_fields_.clear();
      offsets_.clear();
    }
  }

  void begin_field(const std::string& name) {
    field_.clear();
    const auto* const field = std::ranges::find(kFields, name);
    if (field == kFields.end()) refuse(where() + "unknown field " + in_quotes(name));
    field_ = name;
    if (!seen_fields_.insert(*field).second) refuse(where() + "given twice");
  }

  void end_tensor() {
    field_.clear();
    for (const std::string_view field : kFields) {
      if (!seen_fields_.contains(field)) refuse(where() + std::string(field) + " is missing");
    }
    entry().begin = offsets_[0];
    entry().end = offsets_[1];
  }

  /// The start of a message: "tensor 'w': shape: ", or less if the parser is not inside a field.
  std::string where() const {
    if (in_metadata_) {
      return field_.empty() ? "__metadata__: " : "metadata " + in_quotes(field_) + ": ";
    }
    if (header.tensors.empty()) return "";
    return tensor_name(header.tensors.back().name) + ": " + (field_.empty() ? "" : field_ + ": ");
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
    refuse(where() + "expected " + expected + ", got " + got);
  }

  Place place_ = Place::kStart;
  bool in_metadata_ = false;
  bool seen_metadata_ = false;
  std::string field_;                       // of the tensor, or the key of the metadata
  std::set<std::string_view> seen_fields_;  // of the tensor
  std::vector<std::uint64_t> offsets_;
};

/// True if `start`, the start of a file, is text. The last character may be cut off.
bool is_text(std::string_view start) {
  while (!start.empty()) {
    const Utf8 next = first_character(start);
    if (next.kind == Utf8::kIncomplete) return true;
    const bool white =
        next.code_point == '\t' || next.code_point == '\r' || next.code_point == '\n';
    if (next.kind == Utf8::kInvalid || (next.code_point < 0x20 && !white)) return false;
    start.remove_prefix(next.length);
  }
  return true;
}

/// The format of a file that is not in the safetensors format, by its first bytes; "" if unknown.
/// The length of a header may consist of the bytes that another format begins with. Such a file is
/// safetensors if its header begins with '{'.
std::string other_format(std::string_view file) {
  using namespace std::string_view_literals;
  if (file.size() > kLengthBytes && file[kLengthBytes] == '{' &&
      file.substr(4, 4) == "\0\0\0\0"sv) {
    return "";
  }
  constexpr std::pair<std::string_view, const char*> kFormats[] = {
      {"version https://git-lfs", "a pointer of Git LFS; `git lfs pull` fetches the file"},
      {"GGUF", "a GGUF file, the format of llama.cpp"},
      {"PK\x03\x04",
       "a ZIP archive, the format of torch.save; save the tensors with "
       "safetensors.torch.save_file"},
      {"\x1f\x8b", "a gzip archive"},
      {"\x28\xb5\x2f\xfd", "a Zstandard archive"},
      {"\xfd"
       "7zXZ",
       "an XZ archive"},
      {"\x89HDF\r\n\x1a\n", "an HDF5 file, the format of Keras"},
      {"\x93NUMPY", "a NumPy file"}};
  for (const auto& [start, format] : kFormats) {
    if (file.starts_with(start)) return format;
  }
  // An opcode follows the version of a pickle. No opcode is 0.
  if (file.size() > 2 && file[0] == '\x80' && file[1] >= 2 && file[1] <= 5 && file[2] != '\0') {
    return "a Python pickle, an old format of torch.save; save the tensors with "
           "safetensors.torch.save_file";
  }
  const std::size_t first = without_mark(file).find_first_not_of(" \t\r\n");
  const std::string_view text =
      first == std::string_view::npos ? "" : without_mark(file).substr(first);
  if (text.starts_with('<')) return "an HTML or XML page";
  if (text.starts_with('{') || text.starts_with('[')) return "JSON";
  return !file.empty() && is_text(file.substr(0, 64)) ? "text" : "";
}

void check_sizes(const std::vector<SafetensorsEntry>& tensors, std::uint64_t data_size) {
  for (const SafetensorsEntry& entry : tensors) {
    const std::string what = tensor_name(entry.name) + ": ";
    if (entry.begin > entry.end) refuse(what + "data_offsets " + range(entry) + " are reversed");
    if (entry.end > data_size) {
      refuse(what + "data_offsets " + range(entry) + " exceed the data, which has " +
             std::to_string(data_size) + " bytes");
    }
    const std::uint64_t size = byte_size(entry);
    if (size != entry.end - entry.begin) {
      refuse(what + type_and_shape(entry) + " needs " + std::to_string(size) +
             " bytes, but data_offsets " + range(entry) + " span " +
             std::to_string(entry.end - entry.begin) + " bytes");
    }
  }
}

/// Checks that each byte of the data belongs to exactly one tensor. `tensors` are in the order of
/// their data.
void check_tiling(const std::vector<SafetensorsEntry>& tensors, std::uint64_t data_size) {
  std::uint64_t covered = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const SafetensorsEntry& entry = tensors[i];
    if (entry.begin < covered) {
      refuse(tensor_name(entry.name) + " at " + range(entry) + " overlaps " +
             tensor_name(tensors[i - 1].name) + " at " + range(tensors[i - 1]));
    }
    if (entry.begin > covered) {
      refuse(std::to_string(entry.begin - covered) + " bytes before " + tensor_name(entry.name) +
             " at " + range(entry) + " belong to no tensor");
    }
    covered = entry.end;
  }
  if (covered < data_size) {
    refuse(std::to_string(data_size - covered) + " bytes after " +
           (tensors.empty() ? "the header" : tensor_name(tensors.back().name)) +
           " belong to no tensor");
  }
}

}  // namespace

SafetensorsHeader read_safetensors_header(std::string_view file) {
  const auto require = [&](bool holds, const std::string& problem) {
    if (holds) return;
    const std::string other = other_format(file);
    refuse(other.empty() ? problem : "expected a safetensors file, got " + other);
  };
  require(file.size() >= kLengthBytes,
          "expected at least 8 bytes, which hold the length of the header, got " +
              std::to_string(file.size()) + " bytes");
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  require(length <= kMaxHeaderBytes,
          "expected a header of at most 100000000 bytes, got the length " + std::to_string(length));
  require(length <= file.size() - kLengthBytes,
          "the length of the header is " + std::to_string(length) + " bytes, but only " +
              std::to_string(file.size() - kLengthBytes) + " bytes follow");
  const std::string_view text = file.substr(kLengthBytes, length);
  require(text.starts_with('{'), "the header does not begin with '{'");
  // The parser treats a NUL as the end of its input and would ignore the rest.
  if (text.find('\0') != std::string_view::npos) refuse("the header contains a NUL byte");

  HeaderReader reader;
  json::sax_parse(text, &reader);
  SafetensorsHeader header = std::move(reader.header);
  header.data_begin = kLengthBytes + length;

  std::vector<SafetensorsEntry>& tensors = header.tensors;
  std::ranges::sort(tensors, {}, &SafetensorsEntry::name);
  const auto twice = std::ranges::adjacent_find(tensors, std::equal_to(), &SafetensorsEntry::name);
  if (twice != tensors.end()) refuse(tensor_name(twice->name) + ": given twice");

  const std::uint64_t data_size = file.size() - header.data_begin;
  check_sizes(tensors, data_size);
  std::ranges::sort(tensors, {}, [](const SafetensorsEntry& entry) {
    return std::tie(entry.begin, entry.end, entry.name);
  });
  check_tiling(tensors, data_size);
  return header;
}

}  // namespace mini::detail
