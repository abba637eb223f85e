// SPDX-License-Identifier: MIT
// Training text: a mapped text file, a file of its tokens, and batches of windows over the tokens.
//
//     const mini::TextFile file("tinyshakespeare.txt");
//     const auto tokenizer = mini::Tokenizer::characters(file.text());
//     mini::write_tokens("tokens.safetensors", file.text(), tokenizer);
//
//     const auto tokens = mini::read_tokens("tokens.safetensors", tokenizer.vocab_size());
//     const auto [train, validation] = mini::split_tokens(tokens);
//     mini::RandomWindows windows(train, /*batch_size=*/32, /*block_size=*/64, /*seed=*/1337);
//     const mini::Batch batch = windows.next();
//
// Shapes  N tokens in a text, B windows in a batch, T tokens in a window.
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

/// A memory-mapped text file. Pages are read from the disk on first access, so a text may be larger
/// than the memory.
class MINI_API TextFile {
 public:
  /// Throws c10::Error, with the path, if the file cannot be read, is not a regular file, or
  /// is empty.
  explicit TextFile(const std::filesystem::path& path);
  /// Returns the bytes of the file. They are valid as long as the object or a copy of it exists.
  std::string_view bytes() const;
  /// Returns `bytes()` without a byte-order mark (U+FEFF) at the start.
  std::string_view text() const;

 private:
  std::shared_ptr<const detail::MappedFile> file_;
};

/// Encodes `text` and writes its tokens to the file `path`. The memory used does not depend on the
/// length of the text.
///
/// The file is a safetensors file with one tensor, `tokens` (N). Its dtype is U16 if vocab_size is
/// at most 2^16, else U32. The metadata contains `vocab_size`.
///
/// Throws c10::Error if `tokenizer` cannot encode the text, or if the file cannot be written. On
/// error, an older file at `path` is unchanged.
MINI_API void write_tokens(const std::filesystem::path& path, std::string_view text,
                           const Tokenizer& tokenizer);

/// Maps a file that `write_tokens` wrote and returns its tokens.  -> (N) uint16 or uint32
/// Throws c10::Error, with the path, if the file cannot be read, if it holds anything but one
/// tensor `tokens` (N) of U16 or U32, or if its vocab_size differs from the argument.
MINI_API at::Tensor read_tokens(const std::filesystem::path& path, int64_t vocab_size);

/// The result of `split_tokens`.
struct TokenSplit {
  at::Tensor train, validation;
};

/// Splits `tokens` (N) into the first 90 %, rounded down, and the rest. Both are views of `tokens`.
/// Throws c10::Error if `tokens` is not one-dimensional.
MINI_API TokenSplit split_tokens(const at::Tensor& tokens);

/// A batch of windows and their targets: targets[b][t] is the token that follows inputs[b][t].
struct Batch {
  at::Tensor inputs, targets;  // (B, T) int64
};

/// Draws batches of windows that begin at random positions in a text. All positions are equally
/// likely.
class MINI_API RandomWindows {
 public:
  /// `tokens` (N) has any integer dtype; B = batch_size, T = block_size.
  /// `seed` is the seed of `generator()`.
  /// Throws c10::Error if batch_size or block_size is below 1, or if N is below block_size + 1.
  RandomWindows(at::Tensor tokens, int64_t batch_size, int64_t block_size, uint64_t seed);

  /// Returns the next batch. Its windows depend only on the tokens, the seed, and the number of
  /// windows drawn before.
  Batch next();

  /// Returns the generator that draws the positions. It is the only state: after its state is
  /// restored, `next` returns the same batches again.
  at::Generator& generator() { return generator_; }

 private:
  at::Tensor tokens_;
  int64_t batch_size_, block_size_;
  at::Generator generator_;
};

/// Calls `visit` with batches of consecutive windows, in the order of the text. Every token except
/// the first is a target exactly once. Use it, for instance, to evaluate the loss over a whole
/// text.
///
/// A batch has batch_size windows (B, T) with T = block_size; the last batch may have fewer. If the
/// remaining targets do not fill a window, they form one last batch with a single shorter window.
/// `tokens` (N) has any integer dtype.
///
/// Throws c10::Error if batch_size or block_size is below 1, or if N is below 2.
MINI_API void for_each_window(const at::Tensor& tokens, int64_t batch_size, int64_t block_size,
                              const std::function<void(const Batch&)>& visit);

}  // namespace mini
