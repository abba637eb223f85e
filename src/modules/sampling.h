// SPDX-License-Identifier: MIT
// Chooses one token from a row of logits without NaN.
#pragma once

#include <cstdint>
#include <span>

#include "mini/generate.h"

namespace mini::detail {

/// The most likely token. Ties go to the lowest id.
int64_t greedy_token(std::span<const double> logits);

/// A token from softmax(logits / temperature) over the tokens that top_k and top_p keep: the token
/// whose interval of the cumulative distribution contains `uniform`, a number in [0, 1). A token
/// that they do not keep or whose probability is 0 is never returned.
int64_t sampled_token(std::span<const double> logits, const GenerateOptions& options,
                      double uniform);

}  // namespace mini::detail
