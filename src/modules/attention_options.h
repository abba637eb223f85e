// SPDX-License-Identifier: MIT
// The attention options of a module, made from the module's own options.
#pragma once

#include <optional>

#include "mini/attention.h"

namespace mini::detail {

/// `options` is a HeadOptions or a MultiHeadAttentionOptions. Dropout acts if `training`.
template <typename ModuleOptions>
AttentionOptions attention_options(const ModuleOptions& options,
                                   const std::optional<at::Tensor>& mask, bool training) {
  return {.mask = mask,
          .scale = options.scale(),
          .causal = options.causal() ? Causal::kLowerRight : Causal::kNone,
          .dropout = options.dropout(),
          .training = training};
}

}  // namespace mini::detail
