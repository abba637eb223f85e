// SPDX-License-Identifier: MIT
// Text as token ids, and back.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "mini/export.h"

namespace mini {

/// A vocabulary: which pieces of text the ids 0 to vocab_size - 1 stand for.
class MINI_API Tokenizer {
 public:
  /// One token for each different character (Unicode code point) of `text`, in their order.
  /// Throws c10::Error if the text is empty or no UTF-8, with the offset of the byte that is none.
  static Tokenizer characters(std::string_view text);
  /// One token for each of the 256 bytes: takes any text, in any encoding.
  static Tokenizer bytes();
  /// Text is the ids themselves, decimal with white space between: "1 2 3". For a model whose own
  /// tokenizer is elsewhere.  Throws c10::Error for a vocab_size outside [1, 2^31).
  static Tokenizer ids(int64_t vocab_size);

  /// Reads what `save` wrote.  Throws c10::Error, with the path, if the file is something else.
  static Tokenizer load(const std::filesystem::path& path);
  /// Writes {"type": "bytes"}, {"type": "ids", "vocab_size": 101} or {"type": "characters",
  /// "vocabulary": ["\n", " ", ...]}.
  /// Throws c10::Error if the file cannot be written; an old one stays as it was then.
  void save(const std::filesystem::path& path) const;

  int64_t vocab_size() const { return vocab_size_; }

  /// The ids of a text.  -> (T) int64
  /// Throws c10::Error for a character that the vocabulary lacks, and for text that is no UTF-8,
  /// with the character and its offset in bytes; for what is no id likewise.
  at::Tensor encode(std::string_view text) const;
  /// One step of `encode`: the token that begins at `offset`, which moves behind it.
  int64_t next_token(std::string_view text, std::size_t& offset) const;

  /// The text of ids of any integer type and shape, row by row.
  /// Throws c10::Error for an id that is not in the vocabulary.
  std::string decode(const at::Tensor& tokens) const;
  /// What stands between the texts of two tokens: a space between ids, otherwise nothing.
  std::string_view separator() const { return vocabulary_.empty() ? " " : ""; }

 private:
  Tokenizer() = default;
  void add_character(char32_t code_point, std::string_view utf8);
  int64_t next_id(std::string_view text, std::size_t& offset) const;

  int64_t vocab_size_ = 0;
  std::vector<std::string> vocabulary_;  // by id; empty for ids
  std::vector<int32_t> ids_;  // by code point, up to the largest; empty but for characters
};

}  // namespace mini
