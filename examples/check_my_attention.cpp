#include <mini/conformance.h>
#include <torch/torch.h>

#include <iostream>

// The function to check: the formula as it is often written.
at::Tensor my_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const mini::AttentionOptions& options) {
  if (options.training || options.grouped_queries || options.causal != mini::Causal::kNone) {
    C10_THROW_ERROR(NotImplementedError, "only masks and scales");
  }
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(-1))));
  auto scores = torch::matmul(q, k.transpose(-2, -1)) * scale;
  if (options.mask && options.mask->scalar_type() == torch::kBool) {
    scores = scores.masked_fill(options.mask->logical_not(), -1e9);
  } else if (options.mask) {
    scores = scores + *options.mask;
  }
  return torch::matmul(torch::softmax(scores, -1), v);
}

int main() {
  for (const mini::ConformanceResult& result : mini::check_attention(my_attention)) {
    if (result.status == mini::Conformance::kFails) {
      std::cout << result.point << ": " << result.rule << "\n  " << result.detail << '\n';
    }
  }
}
