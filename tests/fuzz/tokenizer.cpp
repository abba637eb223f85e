// SPDX-License-Identifier: MIT
// libFuzzer's target for tokenizer files. Tokenizer::load must either refuse the bytes or return a
// tokenizer that decodes and encodes every token.
#include "mini/tokenizer.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "memory_file.h"

using mini::Tokenizer;
using mini::fuzz::MemoryFile;
using mini::fuzz::require;

namespace {

std::optional<Tokenizer> load(const MemoryFile& file) {
  try {
    return Tokenizer::load(file.path());
  } catch (const c10::Error&) {  // every other exception is a finding
    return std::nullopt;
  }
}

// LibTorch's operators dominate the time, so only some tokens are decoded and encoded.
void check_tokens(const Tokenizer& tokenizer) {
  const int64_t size = tokenizer.vocab_size();
  require(size > 0, "the vocabulary has a token");
  const at::Tensor tokens = at::tensor({int64_t{0}, size / 2, size - 1});
  const std::string text = tokenizer.decode(tokens);
  require(at::equal(tokenizer.encode(text), tokens), "encode() inverts decode()");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static MemoryFile file;
  file.replace({reinterpret_cast<const char*>(data), size});
  if (const std::optional<Tokenizer> tokenizer = load(file)) check_tokens(*tokenizer);
  return 0;
}
