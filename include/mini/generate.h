// SPDX-License-Identifier: MIT
// Text from a GPT: one token after another, each drawn from what the model expects next.
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

/// What happens when a sequence has grown beyond block_size. Positions are learned, each token's
/// keys and values hold its position, so a full cache cannot slide.
enum class FullContext {
  /// Each token is computed from the block_size tokens before it, anew each time: nothing is
  /// approximated, and nothing cached.
  kExact,
  /// The older half of the context is forgotten, the rest computed anew once and then continued
  /// with
  /// the cache: much faster, but a token may see as few as block_size / 2 tokens before it.
  kKeepHalf,
};

/// How `generate` chooses tokens. The filters apply in the order of these members.
struct GenerateOptions {
  /// Tokens to add to each sequence.
  int64_t new_tokens = 0;
  /// Divides the logits: below 1 likely tokens become likelier. 0 is greedy: always the likeliest
  /// token, of equals the lowest id.
  double temperature = 1.0;
  /// Keep the k likeliest tokens, exactly k (of equals the lower ids), at most V.
  std::optional<int64_t> top_k = std::nullopt;
  /// Keep the fewest likeliest tokens whose probabilities, of those that top_k left, add up to at
  /// least this; in (0, 1].
  std::optional<double> top_p = std::nullopt;
  /// Seed of the draws, made by a generator of the call's own; unset draws from LibTorch's global
  /// generator. One number is drawn for each sequence in turn, token by token; none if greedy.
  std::optional<uint64_t> seed = std::nullopt;
  /// Keep keys and values of earlier tokens instead of computing them anew for each token. The
  /// logits are the same up to rounding.
  bool use_cache = true;
  FullContext full_context = FullContext::kExact;
};

/// Continues each sequence of tokens.  (B, T) int64 -> (B, T + new_tokens): the prompt, then what
/// is new. Sequences may be longer than block_size: the model sees the last block_size tokens.
///
/// Each new token is handed to `on_token` at once, as next (B), a view of the result. If it throws,
/// generation ends with that exception.
///
/// The model runs in evaluation mode; what was training is so again afterwards, also after an
/// exception. A model in evaluation mode is only read, so threads may share it. No gradients.
///
/// Throws c10::Error for options out of range, and for tokens that are no (B, T) int64 with T above
/// 0 or hold an id outside [0, V), before any work; and for logits that are NaN or +infinity.
MINI_API at::Tensor generate(GPT& model, const at::Tensor& tokens, const GenerateOptions& options,
                             const std::function<void(const at::Tensor& next)>& on_token = {});

}  // namespace mini
