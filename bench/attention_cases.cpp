// SPDX-License-Identifier: MIT
#include "attention_cases.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include "mini/attention.h"

namespace mini::app {

const std::vector<Shape> kShapes = {
    {1, 1, 4, 4, 32, false},        {32, 4, 64, 64, 32, false},     {32, 4, 64, 64, 32, true},
    {3, 5, 77, 77, 40, false},      {3, 5, 77, 77, 40, true},       {8, 12, 256, 256, 64, false},
    {8, 12, 256, 256, 64, true},    {1, 12, 1024, 1024, 64, false}, {1, 12, 1024, 1024, 64, true},
    {1, 1, 4096, 4096, 64, false},  {1, 1, 4096, 4096, 64, true},   {1, 16, 2048, 2048, 128, false},
    {1, 16, 2048, 2048, 128, true}, {12, 12, 1024, 1024, 64, true}, {1, 12, 1, 64, 64, false},
    {1, 12, 1, 1024, 64, false},    {1, 12, 1, 4096, 64, false},
};

std::string Shape::name() const {
  return fmt::format("{},{},{}x{},{}{}", batch, heads, tq, tk, head_size, causal ? ",causal" : "");
}

double Shape::operations() const {
  const double pairs = causal ? 0.5 * static_cast<double>(tq) * static_cast<double>(tk + 1)
                              : static_cast<double>(tq) * static_cast<double>(tk);
  return 4.0 * static_cast<double>(batch * heads * head_size) * pairs;
}

namespace {

AttentionOptions options_of(const Shape& shape) {
  return {.causal = shape.causal ? Causal::kUpperLeft : Causal::kNone};
}

Attention composite(const Shape& shape) {
  return [shape](const Tensors& qkv) {
    return attention_steps(qkv[0], qkv[1], qkv[2], options_of(shape)).output;
  };
}

}  // namespace

Implementation ours(const Shape& shape) {
  return {"mini", [shape](const Tensors& qkv) {
            return mini::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], options_of(shape));
          }};
}

std::vector<Implementation> peers_of(const Shape& shape) {
  const auto sdpa = [shape](const Tensors& qkv) {
    return at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0.0, shape.causal);
  };
  std::vector<Implementation> peers{{"sdpa_4d", sdpa}};
  if (shape.heads == 1) {
    // The peer gets (B, T, hs), because callers with such tensors do not add a dimension.
    peers.push_back(
        {"sdpa_3d", [sdpa](const Tensors& qkv) {
           return sdpa({qkv[0].squeeze(1), qkv[1].squeeze(1), qkv[2].squeeze(1)}).unsqueeze(1);
         }});
  }
  const double scores = static_cast<double>(shape.batch * shape.heads * shape.tq * shape.tk);
  if (scores < 2e7) {  // for more scores, the traffic of the (Tq, Tk) matrices dominates the time
    peers.push_back({"composite", composite(shape)});
  }
  return peers;
}

Tensors call(const Attention& attention, const Tensors& qkv, const at::Tensor& upstream) {
  const at::Tensor output = attention(qkv);
  if (!upstream.defined()) {
    return {output};
  }
  Tensors results = torch::autograd::grad({output}, qkv, {upstream});
  results.push_back(output.detach());
  return results;
}

void verify(const Implementation& implementation, const Shape& shape, const Tensors& qkv,
            const at::Tensor& upstream) {
  // The heads are independent of each other, so one head is enough.
  const auto head = [](const at::Tensor& t) { return t.detach().slice(0, 0, 1).slice(1, 0, 1); };
  Tensors exact_inputs;
  for (const at::Tensor& t : qkv) {
    exact_inputs.push_back(head(t).to(at::kDouble).requires_grad_(upstream.defined()));
  }
  const Tensors exact = call(composite(shape), exact_inputs,
                             upstream.defined() ? head(upstream).to(at::kDouble) : at::Tensor());
  const Tensors actual = call(implementation.attention, qkv, upstream);
  for (size_t i = 0; i < exact.size(); ++i) {
    const at::Tensor expected = exact[i].detach();
    const double error = (head(actual[i]) - expected).abs().max().item<double>();
    const double size = expected.abs().max().item<double>();
    TORCH_CHECK(error <= 1e-4 * (1.0 + size), "bench_attention: expected ", implementation.name,
                " at ", shape.name(), " to agree with float64, got an error of ", error,
                " in result ", i, "; no time was measured");
  }
}

}  // namespace mini::app
