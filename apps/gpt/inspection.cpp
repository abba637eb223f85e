// SPDX-License-Identifier: MIT
#include "gpt/inspection.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>
#include <stdexcept>

#include "figures/display_text.h"
#include "gpt/heads_page.h"
#include "mini/safetensors.h"

namespace mini::app {
namespace {

double root(int64_t head_size) { return std::sqrt(static_cast<double>(head_size)); }

// q, k (heads, T, hs)
void add_layer(Inspection& inspection, int64_t layer, const at::Tensor& q, const at::Tensor& k) {
  int64_t head = 0;
  for (const HeadComparison& one :
       compare_heads(q, k, 1.0 / inspection.divisor, inspection.causal, inspection.values_each())) {
    inspection.views.push_back({one, layer, head++});
  }
}

// The tensor `name` of a file, as (layers, heads, T, hs).
at::Tensor load_heads(const std::string& file, const SafetensorsFile& content,
                      const std::string& name) {
  const at::Tensor* found = content.tensors.find(name);
  if (found == nullptr) {
    throw std::runtime_error(fmt::format("'{}' has no tensor {}", file, name));
  }
  TORCH_CHECK(
      found->dim() >= 2 && found->dim() <= 4 && found->numel() > 0 && found->is_floating_point(),
      "'", file, "': expected ", name,
      " as (layers, heads, T, hs), (heads, T, hs) or (T, hs), each ",
      "above 0, with a floating dtype, got ", found->scalar_type(), ' ', found->sizes());
  at::Tensor heads = *found;
  while (heads.dim() < 4) {
    heads = heads.unsqueeze(0);
  }
  return heads.to(at::promote_types(heads.scalar_type(), at::kFloat));
}

}  // namespace

bool InspectedHead::is_finite() const {
  return std::isfinite(unscaled.figures.entropy) && std::isfinite(scaled.figures.entropy);
}

double InspectedHead::change() const {
  return std::abs(scaled.figures.entropy_share - unscaled.figures.entropy_share);
}

bool Inspection::divides_by_root() const { return divisor == root(head_size); }

int64_t Inspection::values_each() const {
  const int64_t cells = cells_of_heads_page(layers * heads);
  return (tokens + cells - 1) / cells;
}

Inspection inspect_model(TrainedModel& trained, const at::Tensor& idx) {
  const GPTOptions& sizes = trained.model->options;
  TORCH_CHECK(idx.size(1) <= sizes.block_size(), "expected a prompt of at most ",
              sizes.block_size(), " tokens, the block size of this model, got ", idx.size(1),
              ": train a model with a larger --block-size, or pass queries and keys of any ",
              "length with --tensors");
  const int64_t head_size = sizes.n_embd() / sizes.n_head();
  const bool undivided = sizes.scale() == 1.0;
  Inspection inspection{
      .layers = sizes.n_layer(),
      .heads = sizes.n_head(),
      .tokens = idx.size(1),
      .head_size = head_size,
      .causal = true,
      .divisor = sizes.scale() && !undivided ? 1.0 / *sizes.scale() : root(head_size),
      .undivided = undivided};
  trained.model->for_each_projection(
      idx, [&](int64_t layer, const MultiHeadAttentionImpl::Projections& heads) {
        add_layer(inspection, layer, heads.q[0], heads.k[0]);
      });
  for (int64_t i = 0; i < inspection.tokens; ++i) {
    inspection.texts.push_back(detail::printable(trained.tokenizer.decode(idx[0][i])));
  }
  return inspection;
}

Inspection inspect_tensors(const std::string& file, bool causal) {
  const SafetensorsFile content = load_safetensors(file);
  const at::Tensor q = load_heads(file, content, "q");
  const at::Tensor k = load_heads(file, content, "k");
  TORCH_CHECK(q.sizes() == k.sizes() && q.scalar_type() == k.scalar_type(), "'", file,
              "': expected q and k of one shape and dtype, got q ", content.tensors["q"].sizes(),
              ' ', content.tensors["q"].scalar_type(), " and k ", content.tensors["k"].sizes(), ' ',
              content.tensors["k"].scalar_type());
  Inspection inspection{.layers = q.size(0),
                        .heads = q.size(1),
                        .tokens = q.size(2),
                        .head_size = q.size(3),
                        .causal = causal,
                        .divisor = root(q.size(3))};
  for (int64_t layer = 0; layer < inspection.layers; ++layer) {
    add_layer(inspection, layer, q[layer], k[layer]);
  }
  return inspection;
}

}  // namespace mini::app
