// SPDX-License-Identifier: MIT
// Results that do not depend on LibTorch's default dtype.
#include <functional>

#include "mini/checkpoint.h"
#include "mini/generate.h"
#include "mini/optimizer.h"
#include "mini/pretrained.h"
#include "mini/safetensors.h"
#include "mini/state_dict.h"
#include "support/files.h"
#include "support/pretrained_support.h"

using namespace mini;
using namespace mini::test;

namespace {

/// float64 is the default dtype while an object exists.
struct DoubleByDefault {
  DoubleByDefault() { torch::set_default_dtype(c10::scalarTypeToTypeMeta(at::kDouble)); }
  ~DoubleByDefault() { torch::set_default_dtype(c10::scalarTypeToTypeMeta(at::kFloat)); }
};

}  // namespace

TEST_CASE("loaded models are float32, whatever the default dtype is", "[default_dtype]") {
  GPT source = scrambled_gpt(small_gpt_options().bias(true).seed(1).gelu_approximate("tanh"));
  GPT in_double = scrambled_gpt(small_gpt_options().bias(true).seed(1).gelu_approximate("tanh"));
  in_double->to(at::kDouble);
  const TemporaryFolder folder;
  save_gpt2(folder / "gpt2", source);
  save_gpt2(folder / "gpt2 double", in_double);
  save_nanogpt(folder / "nanogpt", source);
  const Tensors tensors = state_dict(*source, kGPTAliases);

  const DoubleByDefault double_by_default;
  const std::vector<std::function<GPT()>> loaders = {
      [&] { return load_gpt2(folder / "gpt2"); },
      [&] { return load_gpt2(folder / "gpt2", {.convert_dtype = true}); },
      [&] { return load_gpt2(folder / "gpt2 double", {.convert_dtype = true}); },
      [&] { return load_nanogpt(folder / "nanogpt", kHeads, {.gelu_approximate = "tanh"}); },
      [&] { return load_nanogpt(tensors, kHeads, {.gelu_approximate = "tanh"}); },
  };
  for (const auto& load : loaders) {
    GPT loaded = load();
    check_same_parameters(*loaded, *source);
    for (const at::Tensor& parameter : loaded->parameters()) {
      CHECK(parameter.scalar_type() == at::kFloat);
    }
    CHECK_THAT(logits(loaded), Equals(logits(source)));
    CHECK(
        generate(loaded, at::zeros({1, 1}, at::kLong), {.new_tokens = 12, .seed = 1})
            .equal(generate(source, at::zeros({1, 1}, at::kLong), {.new_tokens = 12, .seed = 1})));
  }
}

TEST_CASE("training and checkpoints of a float32 model do not depend on the default dtype",
          "[default_dtype]") {
  const at::Tensor idx = at::arange(16).view({2, 8}).remainder(11);
  const TemporaryFolder folder;
  struct Run {
    GPT model = scrambled_gpt(small_gpt_options().bias(true).seed(1));
    AdamW optimizer{decay_groups(*model, torch::optim::AdamWOptions(0.01))};
  };
  const auto train = [&](Run& run, int steps) {
    for (int step = 0; step < steps; ++step) {
      run.optimizer.zero_grad();
      run.model->loss(idx, idx).backward();
      run.optimizer.step();
    }
  };
  Run expected, actual;
  train(expected, 4);
  train(actual, 1);
  const DoubleByDefault double_by_default;
  train(actual, 1);
  save_checkpoint(folder / "checkpoint", *actual.model, actual.optimizer, {.step = 2});
  train(actual, 1);
  load_checkpoint(folder / "checkpoint", *actual.model, actual.optimizer, {});
  train(actual, 2);
  check_same_parameters(*actual.model, *expected.model);
}

TEST_CASE("new modules have the default dtype, as LibTorch's do", "[default_dtype]") {
  const DoubleByDefault double_by_default;
  GPT model(small_gpt_options().bias(true).seed(1));
  for (const at::Tensor& parameter : model->parameters()) {
    CHECK(parameter.scalar_type() == at::kDouble);
  }
  CHECK(logits(model).scalar_type() == at::kDouble);
  CHECK(Head(HeadOptions(8, 4).seed(1))->query->weight.scalar_type() == at::kDouble);
}
