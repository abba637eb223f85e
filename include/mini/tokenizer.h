// SPDX-License-Identifier: MIT
// Tokenizers: convert text to token ids and back.
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

/// A vocabulary: the piece of text for each of the ids 0 to vocab_size - 1.
class MINI_API Tokenizer {
 public:
  /// One token for each distinct character (Unicode code point) of `text`, in code point order.
  /// Throws c10::Error if the text is empty or not UTF-8. The message contains the offset of the
  /// invalid bytes.
  static Tokenizer characters(std::string_view text);
  /// One token for each of the 256 byte values. Accepts any text in any encoding.
  static Tokenizer bytes();
  /// The text is the ids themselves, as decimal numbers separated by white space: "1 2 3". For
  /// models whose tokenizer is not part of this library.
  /// Throws c10::Error if vocab_size is not in [1, 2^31).
  static Tokenizer ids(int64_t vocab_size);

  /// Reads a file that `save` wrote.
  /// Throws c10::Error, with the path, if the file cannot be read or has another format.
  static Tokenizer load(const std::filesystem::path& path);
  /// Writes a JSON file: {"type": "bytes"}, {"type": "ids", "vocab_size": 101} or
  /// {"type": "characters", "vocabulary": ["\n", " ", ...]}.
  /// Throws c10::Error if the file cannot be written. On error, an older file is unchanged.
  void save(const std::filesystem::path& path) const;

  /// The number of tokens.
  int64_t vocab_size() const { return vocab_size_; }

  /// Returns the ids of a text.  -> (T) int64
  /// Throws c10::Error, with the offset in bytes, if the text is not UTF-8, if the vocabulary lacks
  /// a character, or, for `ids`, if the text contains anything but ids of the vocabulary.
  at::Tensor encode(std::string_view text) const;
  /// One step of `encode`: returns the token at `offset`, and moves `offset` to the next token.
  /// `offset` must be below text.size().
  int64_t next_token(std::string_view text, std::size_t& offset) const;

  /// Returns the text of `tokens`, in row-major order. They may have any integer dtype and shape.
  /// Throws c10::Error if an id is not in the vocabulary.
  std::string decode(const at::Tensor& tokens) const;
  /// The text that `decode` puts between two tokens: a space for `ids`, otherwise "".
  std::string_view separator() const { return vocabulary_.empty() ? " " : ""; }

 private:
  Tokenizer() = default;
  void add_character(char32_t code_point, std::string_view utf8);
  int64_t next_id(std::string_view text, std::size_t& offset) const;

  int64_t vocab_size_ = 0;
  std::vector<std::string> vocabulary_;  // by id; empty for `ids`
  std::vector<int32_t> ids_;             // by code point; empty unless the tokens are characters
};

}  // namespace mini
