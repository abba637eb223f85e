// SPDX-License-Identifier: MIT
// Registers the public operator mini::scaled_dot_product_attention for Python
// (`torch.ops.load_library`). Its contract is that of mini/attention.h.
#include <torch/library.h>

#include "attention/fused_operator.h"
#include "mini/attention.h"

namespace mini::detail {
namespace {

Causal causal_by_name(c10::string_view name) {
  if (name == "none") return Causal::kNone;
  if (name == "upper_left") return Causal::kUpperLeft;
  TORCH_CHECK(name == "lower_right",
              "scaled_dot_product_attention: expected causal \"none\", \"upper_left\" or "
              "\"lower_right\", got \"",
              name, "\"");
  return Causal::kLowerRight;
}

at::Tensor attention_operator(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::optional<at::Tensor>& mask, std::optional<double> scale,
                              c10::string_view causal, bool grouped_queries) {
  return scaled_dot_product_attention(q, k, v,
                                      {.mask = mask,
                                       .scale = scale,
                                       .causal = causal_by_name(causal),
                                       .grouped_queries = grouped_queries});
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(mini, library) {
  if (!registers_operators()) return;
  library.def(
      "scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? mask=None, *, "
      "float? scale=None, str causal=\"none\", bool grouped_queries=False) -> Tensor",
      attention_operator);
}

}  // namespace mini::detail
