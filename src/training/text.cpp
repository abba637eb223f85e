// SPDX-License-Identifier: MIT
#include "mini/text.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/stack.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "files/atomic_file.h"
#include "files/mapped_file.h"
#include "files/safetensors_header.h"
#include "files/utf8.h"
#include "files/with_prefix.h"
#include "mini/safetensors.h"

namespace mini {
namespace {

constexpr const char* kTensorName = "tokens";
constexpr const char* kVocabSize = "vocab_size";

/// Writes the token ids as elements of type Id, uint16_t or uint32_t.
template <typename Id>
void write_tokens_as(const std::filesystem::path& path, std::string_view text,
                     const Tokenizer& tokenizer) {
  int64_t count = 0;
  for (std::size_t offset = 0; offset < text.size(); ++count) tokenizer.next_token(text, offset);

  detail::SafetensorsHeader header;
  header.metadata = {{kVocabSize, std::to_string(tokenizer.vocab_size())}};
  header.tensors.push_back({.name = kTensorName,
                            .dtype = sizeof(Id) == 2 ? "U16" : "U32",
                            .shape = {count},
                            .begin = 0,
                            .end = 0});
  detail::place_tensors(header.tensors);

  detail::AtomicFile file(path);
  file.write(detail::write_safetensors_header(header));
  constexpr std::size_t kPiece = 1 << 16;
  std::vector<Id> piece;
  piece.reserve(kPiece);
  for (std::size_t offset = 0; offset < text.size();) {
    piece.clear();
    while (piece.size() < kPiece && offset < text.size()) {
      piece.push_back(static_cast<Id>(tokenizer.next_token(text, offset)));
    }
    file.write({reinterpret_cast<const char*>(piece.data()), piece.size() * sizeof(Id)});
  }
  file.commit();
}

void check_windows(const char* function, const at::Tensor& tokens, int64_t batch_size,
                   int64_t block_size) {
  TORCH_CHECK(batch_size > 0 && block_size > 0, function,
              ": expected batch_size and block_size above 0, got batch_size ", batch_size,
              " and block_size ", block_size);
  TORCH_CHECK(tokens.defined() && tokens.dim() == 1 &&
                  at::isIntegralType(tokens.scalar_type(), /*includeBool=*/false),
              function, ": expected tokens (N) of an integer type, got ",
              tokens.defined() ? c10::str(tokens.scalar_type(), ' ', tokens.sizes())
                               : "an undefined tensor");
}

}  // namespace

TextFile::TextFile(const std::filesystem::path& path)
    : file_(detail::with_prefix<std::runtime_error>(
          "TextFile: ", [&] { return std::make_shared<const detail::MappedFile>(path); })) {
  TORCH_CHECK(!bytes().empty(), "TextFile: '", path.string(), "' is empty");
}

std::string_view TextFile::bytes() const { return file_->bytes(); }

std::string_view TextFile::text() const { return detail::without_mark(bytes()); }

void write_tokens(const std::filesystem::path& path, std::string_view text,
                  const Tokenizer& tokenizer) {
  const auto write_as =
      tokenizer.vocab_size() <= 1 << 16 ? write_tokens_as<uint16_t> : write_tokens_as<uint32_t>;
  detail::with_prefix<std::runtime_error>("write_tokens: ",
                                          [&] { write_as(path, text, tokenizer); });
}

at::Tensor read_tokens(const std::filesystem::path& path, int64_t vocab_size) {
  const SafetensorsFile file = load_safetensors(path);
  const at::Tensor* tokens = file.tensors.find(kTensorName);
  TORCH_CHECK(file.tensors.size() == 1 && tokens != nullptr && tokens->dim() == 1 &&
                  (tokens->scalar_type() == at::kUInt16 || tokens->scalar_type() == at::kUInt32),
              "read_tokens: ", path.string(), ": expected one tensor '", kTensorName,
              "' (N) of U16 or U32");
  const auto saved = file.metadata.find(kVocabSize);
  TORCH_CHECK(saved != file.metadata.end() && saved->second == std::to_string(vocab_size),
              "read_tokens: ", path.string(), ": expected tokens of a vocabulary of ", vocab_size,
              ", got ", saved == file.metadata.end() ? "none" : saved->second);
  return *tokens;
}

TokenSplit split_tokens(const at::Tensor& tokens) {
  TORCH_CHECK(tokens.defined() && tokens.dim() == 1, "split_tokens: expected tokens (N), got ",
              tokens.defined() ? c10::str(tokens.sizes()) : "an undefined tensor");
  const int64_t count = tokens.size(0);
  const int64_t train = count / 10 * 9 + count % 10 * 9 / 10;  // count * 9 / 10 could overflow
  return {tokens.narrow(0, 0, train), tokens.narrow(0, train, count - train)};
}

RandomWindows::RandomWindows(at::Tensor tokens, int64_t batch_size, int64_t block_size,
                             uint64_t seed)
    : tokens_(std::move(tokens)),
      batch_size_(batch_size),
      block_size_(block_size),
      generator_(at::make_generator<at::CPUGeneratorImpl>(seed)) {
  check_windows("RandomWindows", tokens_, batch_size, block_size);
  TORCH_CHECK(tokens_.size(0) > block_size, "RandomWindows: expected more tokens than block_size ",
              block_size, ", got ", tokens_.size(0));
}

Batch RandomWindows::next() {
  const at::Tensor begins =
      at::randint(tokens_.size(0) - block_size_, {batch_size_}, generator_);  // (B)
  std::vector<at::Tensor> windows;
  for (int64_t b = 0; b < batch_size_; ++b) {
    const int64_t begin = begins.const_data_ptr<int64_t>()[b];
    windows.push_back(tokens_.narrow(0, begin, block_size_ + 1).to(at::kLong));
  }
  const at::Tensor all = at::stack(windows);  // (B, T + 1)
  return {all.narrow(1, 0, block_size_).contiguous(), all.narrow(1, 1, block_size_).contiguous()};
}

void for_each_window(const at::Tensor& tokens, int64_t batch_size, int64_t block_size,
                     const std::function<void(const Batch&)>& visit) {
  check_windows("for_each_window", tokens, batch_size, block_size);
  TORCH_CHECK(tokens.size(0) >= 2, "for_each_window: expected at least 2 tokens, got ",
              tokens.size(0));
  const auto visit_windows = [&](int64_t begin, int64_t targets, int64_t T) {
    const at::Tensor piece = tokens.narrow(0, begin, targets + 1).to(at::kLong);
    visit({piece.narrow(0, 0, targets).view({-1, T}), piece.narrow(0, 1, targets).view({-1, T})});
  };
  const int64_t targets = tokens.size(0) - 1;
  const int64_t windows = targets / block_size, in_full_windows = windows * block_size;
  const int64_t most = std::min(batch_size, windows);  // batch_size * block_size could overflow
  for (int64_t window = 0; window < windows; window += most) {
    visit_windows(window * block_size, std::min(most, windows - window) * block_size, block_size);
  }
  const int64_t rest = targets - in_full_windows;
  if (rest > 0) visit_windows(in_full_windows, rest, rest);
}

}  // namespace mini
