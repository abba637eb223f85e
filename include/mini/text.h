// SPDX-License-Identifier: MIT
// A text to train on: read once, kept as tokens in a file, looked at through windows.
//
//     const mini::TextFile text("tinyshakespeare.txt");
//     const auto tokenizer = mini::Tokenizer::characters(text.bytes());
//     mini::write_tokens("tokens.safetensors", text.bytes(), tokenizer);
//
//     const auto tokens = mini::read_tokens("tokens.safetensors", tokenizer.vocab_size());
//     const auto [train, validation] = mini::split_tokens(tokens);
//     mini::RandomWindows windows(train, /*batch_size=*/32, /*block_size=*/64, /*seed=*/1337);
//     const mini::Batch batch = windows.next();
//
// Shapes  N tokens of a text, B windows in a batch, T tokens in a window.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>

#include "mini/export.h"
#include "mini/tokenizer.h"

namespace mini::detail {
class MappedFile;
}

namespace mini {

/// The bytes of a file, mapped: they come from the disk as they are read, so that a large text
/// takes no memory. They live as long as the object or a copy of it.
/// Throws c10::Error, with the path, if it cannot be read, is no regular file, or is empty.
class MINI_API TextFile {
 public:
  explicit TextFile(const std::filesystem::path& path);
  std::string_view bytes() const;

 private:
  std::shared_ptr<const detail::MappedFile> file_;
};

/// Encodes `text` and writes its tokens to `path`, piece by piece, whole or not at all.
///
/// The file is a safetensors file of one tensor, `tokens` (N): U16 where the ids fit, else U32. Its
/// metadata says `vocab_size`.
/// Throws c10::Error as `Tokenizer::encode` does, or if the file cannot be written.
MINI_API void write_tokens(const std::filesystem::path& path, std::string_view text,
                           const Tokenizer& tokenizer);

/// Maps the tokens that `write_tokens` wrote.  -> (N) uint16 or uint32
/// Throws c10::Error, with the path, if the file is something else or of another vocab_size.
MINI_API at::Tensor read_tokens(const std::filesystem::path& path, int64_t vocab_size);

struct TokenSplit {
  at::Tensor train, validation;
};

/// The first 90 %, rounded down, and the rest: views of `tokens` (N).
MINI_API TokenSplit split_tokens(const at::Tensor& tokens);

/// Windows and what follows in each place: targets[b][t] is the token after inputs[b][t].
struct Batch {
  at::Tensor inputs, targets;  // (B, T) int64
};

/// Batches of windows that begin anywhere in a text, each place as likely as the others.
///
/// `tokens` (N) is of any integer type; B = batch_size, T = block_size. The windows depend on the
/// seed and on how many were drawn before, on nothing else.
/// Throws c10::Error for sizes below 1 and for a text that has no block_size + 1 tokens.
class MINI_API RandomWindows {
 public:
  RandomWindows(at::Tensor tokens, int64_t batch_size, int64_t block_size, uint64_t seed);

  Batch next();

  /// The only state: whoever saves and restores it goes on with the same windows.
  at::Generator& generator() { return generator_; }

 private:
  at::Tensor tokens_;
  int64_t batch_size_, block_size_;
  at::Generator generator_;
};

/// Calls `visit` with windows one behind the other, in which each token but the first is a target
/// exactly once: batches of up to batch_size windows (B, T), then the rest as one shorter window.
///
/// `tokens` (N) is of any integer type. Throws c10::Error for sizes below 1 and for less than two
/// tokens.
MINI_API void for_each_window(const at::Tensor& tokens, int64_t batch_size, int64_t block_size,
                              const std::function<void(const Batch&)>& visit);

}  // namespace mini
