// SPDX-License-Identifier: MIT
#include "mini/tokenizer.h"

#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "files/json_file.h"
#include "files/utf8.h"
#include "files/with_prefix.h"

namespace mini {
namespace {

constexpr int32_t kNoToken = -1;  // in `ids_`: the vocabulary lacks this code point

detail::Utf8 character_at(std::string_view text, std::size_t offset) {
  const detail::Utf8 next = detail::first_character(text.substr(offset));
  const bool utf16 = offset == 0 && (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff"));
  TORCH_CHECK(next.kind == detail::Utf8::kCharacter, "Tokenizer: expected UTF-8, got ",
              utf16                                    ? "the byte-order mark of UTF-16"
              : next.kind == detail::Utf8::kIncomplete ? "an incomplete character"
                                                       : "an invalid sequence",
              " at byte ", offset);
  return next;
}

}  // namespace

Tokenizer Tokenizer::characters(std::string_view text) {
  TORCH_CHECK(
      !text.empty(),
      "Tokenizer::characters: expected a text of at least one character, got an empty text");
  std::vector<std::string_view> seen;  // by code point
  for (std::size_t offset = 0; offset < text.size();) {
    const detail::Utf8 next = character_at(text, offset);
    if (next.code_point >= seen.size()) seen.resize(next.code_point + 1);
    seen[next.code_point] = text.substr(offset, next.length);
    offset += next.length;
  }
  Tokenizer tokenizer;
  for (std::size_t code_point = 0; code_point < seen.size(); ++code_point) {
    if (!seen[code_point].empty()) {
      tokenizer.add_character(static_cast<char32_t>(code_point), seen[code_point]);
    }
  }
  return tokenizer;
}

Tokenizer Tokenizer::bytes() {
  Tokenizer tokenizer;
  for (int byte = 0; byte < 256; ++byte) {
    tokenizer.vocabulary_.emplace_back(1, static_cast<char>(byte));
  }
  tokenizer.vocab_size_ = 256;
  return tokenizer;
}

Tokenizer Tokenizer::ids(int64_t vocab_size) {
  TORCH_CHECK(vocab_size > 0 && vocab_size <= std::numeric_limits<int32_t>::max(),
              "Tokenizer::ids: expected a vocab_size from 1 to 2^31 - 1, got ", vocab_size);
  Tokenizer tokenizer;
  tokenizer.vocab_size_ = vocab_size;
  return tokenizer;
}

void Tokenizer::add_character(char32_t code_point, std::string_view utf8) {
  if (code_point >= ids_.size()) ids_.resize(code_point + 1, kNoToken);
  ids_[code_point] = static_cast<int32_t>(vocab_size_++);
  vocabulary_.emplace_back(utf8);
}

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  const auto require = [](bool holds, const std::string& expected, const detail::Json& got) {
    if (!holds) throw std::runtime_error("expected " + expected + ", got " + got.dump());
  };
  const auto from_json = [&](const detail::Json& json) {
    const auto type = detail::json_member<std::string>(json, "type");
    if (type == "bytes") return bytes();
    if (type == "ids") {
      const auto vocab_size = detail::json_member<int32_t>(json, "vocab_size");
      require(vocab_size > 0, "a vocab_size above 0", vocab_size);
      return ids(vocab_size);
    }
    require(type == "characters", "a type characters, bytes or ids", type);
    const auto vocabulary = detail::json_member<detail::Json>(json, "vocabulary");
    require(vocabulary.is_array() && !vocabulary.empty(), "a list of characters", vocabulary);
    Tokenizer tokenizer;
    for (const detail::Json& entry : vocabulary) {
      require(entry.is_string(), "a vocabulary of characters", entry);
      const auto text = entry.get<std::string>();
      require(!text.empty() && character_at(text, 0).length == text.size(),
              "a vocabulary of single characters", entry);
      const char32_t code_point = character_at(text, 0).code_point;
      require(code_point >= tokenizer.ids_.size() || tokenizer.ids_[code_point] == kNoToken,
              "a vocabulary of distinct characters", entry);
      tokenizer.add_character(code_point, text);
    }
    return tokenizer;
  };
  return detail::with_prefix<std::runtime_error>(
      "Tokenizer::load: ", [&] { return detail::read_json(path, from_json); });
}

void Tokenizer::save(const std::filesystem::path& path) const {
  const char* type = vocabulary_.empty() ? "ids" : ids_.empty() ? "bytes" : "characters";
  detail::Json json = {{"type", type}};
  if (vocabulary_.empty()) json["vocab_size"] = vocab_size_;
  if (!ids_.empty()) json["vocabulary"] = vocabulary_;
  detail::with_prefix<std::runtime_error>("Tokenizer::save: ",
                                          [&] { detail::write_json(path, json); });
}

at::Tensor Tokenizer::encode(std::string_view text) const {
  std::vector<int64_t> ids;
  ids.reserve(text.size());
  for (std::size_t offset = 0; offset < text.size();) ids.push_back(next_token(text, offset));
  return at::tensor(ids, at::kLong);
}

int64_t Tokenizer::next_token(std::string_view text, std::size_t& offset) const {
  if (vocabulary_.empty()) return next_id(text, offset);
  if (ids_.empty()) return static_cast<unsigned char>(text[offset++]);
  const detail::Utf8 next = character_at(text, offset);
  const int32_t id = next.code_point < ids_.size() ? ids_[next.code_point] : kNoToken;
  TORCH_CHECK(id != kNoToken, "Tokenizer: expected one of the ", vocab_size(),
              " characters of the vocabulary, got '",
              detail::visible(text.substr(offset, next.length)), "' (",
              detail::code_point_name(next.code_point), ") at byte ", offset);
  offset += next.length;
  return id;
}

// A token includes the white space before and after it, so the last token ends where the text does.
int64_t Tokenizer::next_id(std::string_view text, std::size_t& offset) const {
  constexpr std::string_view kWhiteSpace = " \t\r\n";
  const auto place = [&](std::size_t found) { return std::min(found, text.size()); };
  const std::size_t begin = place(text.find_first_not_of(kWhiteSpace, offset));
  const std::size_t end = place(text.find_first_of(kWhiteSpace, begin));
  int64_t id = -1;
  const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, id);
  TORCH_CHECK(error == std::errc() && stop == text.data() + end && id >= 0 && id < vocab_size_,
              "Tokenizer: expected a token id from 0 to ", vocab_size_ - 1, ", got '",
              detail::visible(text.substr(begin, std::min<std::size_t>(end - begin, 20))),
              "' at byte ", begin);
  offset = place(text.find_first_not_of(kWhiteSpace, end));
  return id;
}

std::string Tokenizer::decode(const at::Tensor& tokens) const {
  TORCH_CHECK(tokens.defined() && at::isIntegralType(tokens.scalar_type(), /*includeBool=*/false),
              "Tokenizer::decode: expected tokens of an integer type, got ",
              tokens.defined() ? c10::toString(tokens.scalar_type()) : "an undefined tensor");
  const at::Tensor ids = tokens.to(at::kLong).contiguous();
  std::string text;
  for (const int64_t id : at::ArrayRef<int64_t>(ids.const_data_ptr<int64_t>(),
                                                static_cast<std::size_t>(ids.numel()))) {
    TORCH_CHECK(id >= 0 && id < vocab_size(), "Tokenizer::decode: expected token ids from 0 to ",
                vocab_size() - 1, ", got ", id);
    if (!text.empty()) text += separator();
    text += vocabulary_.empty() ? std::to_string(id) : vocabulary_[static_cast<std::size_t>(id)];
  }
  return text;
}

}  // namespace mini
