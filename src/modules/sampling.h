// SPDX-License-Identifier: MIT
// The choice of one token from one row of logits, none of them NaN.
#pragma once

#include <cstdint>
#include <span>

#include "mini/generate.h"

namespace mini::detail {

/// The likeliest token, of equals the lowest id.
int64_t greedy_token(std::span<const double> logits);

/// The token at `place`, from [0, 1), of the cumulative softmax(logits / temperature) over what
/// top_k and top_p keep; never one that they do not keep, nor one of probability 0.
int64_t sampled_token(std::span<const double> logits, const GenerateOptions& options, double place);

}  // namespace mini::detail
