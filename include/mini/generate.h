// SPDX-License-Identifier: MIT
// Text generation: a GPT continues sequences of tokens, one token at a time.
//
// Papers  Fan et al. 2018, "Hierarchical Neural Story Generation" (top-k); Holtzman et al. 2020,
//         "The Curious Case of Neural Text Degeneration" (top-p).
// Shapes  B batch, T length of the prompt, V = vocab_size.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "mini/export.h"
#include "mini/gpt.h"

namespace mini {

/// The context of a token once a sequence is longer than block_size. Cached keys and values contain
/// learned positions. A full cache cannot drop its oldest token, since the positions of all
/// remaining tokens would change.
enum class FullContext {
  /// The last block_size tokens, recomputed for each new token. Exact, but slow.
  kExact,
  /// When the context is full, drop its older half, recompute the newer half once, and continue
  /// with the cache. Much faster, but a token may see only the block_size / 2 tokens before it.
  kKeepHalf,
};

/// How `generate` chooses tokens. temperature, top_k and top_p apply in this order.
struct GenerateOptions {
  /// Number of tokens to add to each sequence.
  int64_t new_tokens = 0;
  /// Divisor of the logits. Values below 1 make likely tokens likelier. 0 is greedy: always the
  /// most likely token. Ties go to the lowest id.
  double temperature = 1.0;
  /// Keep exactly the k most likely tokens. Ties go to the lower ids. Values above V keep all.
  std::optional<int64_t> top_k = std::nullopt;
  /// In (0, 1]. Keep the smallest set of most likely tokens whose probabilities sum to at least
  /// top_p. The probabilities are renormalised after top_k. Ties go to the lower ids.
  std::optional<double> top_p = std::nullopt;
  /// Seed of a generator that only this call uses. If unset, the call uses LibTorch's global
  /// generator. Each new token of each sequence takes one random number, in batch order; greedy
  /// generation takes none.
  std::optional<uint64_t> seed = std::nullopt;
  /// Cache the keys and values of earlier tokens instead of recomputing them for each token. The
  /// logits are the same up to rounding.
  bool use_cache = true;
  /// What a token sees once its sequence is longer than block_size.
  FullContext full_context = FullContext::kExact;
};

/// Continues each sequence of tokens.  (B, T) int64 -> (B, T + new_tokens)
///
/// The result is the prompt followed by the new tokens. The prompt may be longer than block_size:
/// the model sees its last block_size tokens.
///
/// After each step, `on_token(next)` is called with the new token of every sequence: next (B) is a
/// view of the result. If `on_token` throws, generation stops and the exception propagates.
///
/// The model runs in evaluation mode. The previous mode of each module is restored on return, even
/// if an exception is thrown. A model that is already in evaluation mode is only read, so threads
/// may share it. No gradients are recorded.
///
/// Throws c10::Error before any work if an option is out of range, or if tokens is not (B, T) int64
/// with T above 0 and ids in [0, V). Throws c10::Error if the model's logits contain NaN or
/// +infinity, or are all -infinity.
MINI_API at::Tensor generate(GPT& model, const at::Tensor& tokens, const GenerateOptions& options,
                             const std::function<void(const at::Tensor& next)>& on_token = {});

}  // namespace mini
