// SPDX-License-Identifier: MIT
#include "mini/gpt.h"

#include <cmath>
#include <string>
#include <vector>

#include "support/module_support.h"

using namespace mini;
using namespace mini::test;

namespace {

// The equation of a GPT, computed with LibTorch's functions from the weights' names.
at::Tensor reference_logits(const GPT& model, const at::Tensor& idx) {
  const auto weights = model->named_parameters();
  const GPTOptions& options = model->options;
  const auto weight = [&](const std::string& name) {
    const at::Tensor* found = weights.find("transformer." + name);
    return found == nullptr ? at::Tensor() : *found;
  };
  const auto norm = [&](const at::Tensor& rows, const std::string& name) {
    return at::layer_norm(rows, {options.n_embd()}, weight(name + ".weight"),
                          weight(name + ".bias"));
  };
  const auto linear = [&](const at::Tensor& rows, const std::string& name) {
    return at::linear(rows, weight(name + ".weight"), weight(name + ".bias"));
  };
  const auto heads = [&](const at::Tensor& wide) {
    return wide.reshape({wide.size(0), wide.size(1), options.n_head(), -1}).transpose(1, 2);
  };
  const at::Tensor positions = at::arange(idx.size(1));
  at::Tensor x =
      at::embedding(weight("wte.weight"), idx) + at::embedding(weight("wpe.weight"), positions);
  for (int64_t layer = 0; layer < options.n_layer(); ++layer) {
    const std::string block = "h." + std::to_string(layer);
    const auto qkv = linear(norm(x, block + ".ln_1"), block + ".attn.c_attn").chunk(3, -1);
    const at::Tensor attended = at::scaled_dot_product_attention(
        heads(qkv[0]), heads(qkv[1]), heads(qkv[2]), {}, 0.0, /*is_causal=*/true);
    x = x + linear(attended.transpose(1, 2).flatten(2), block + ".attn.c_proj");
    const at::Tensor inner = linear(norm(x, block + ".ln_2"), block + ".mlp.c_fc");
    x = x + linear(at::gelu(inner, options.gelu_approximate()), block + ".mlp.c_proj");
  }
  return at::linear(norm(x, "ln_f"), weight("wte.weight"));
}

}  // namespace

TEST_CASE("GPTOptions default to the lesson's sizes", "[gpt]") {
  const GPTOptions options(65);
  CHECK(options.vocab_size() == 65);
  CHECK(options.block_size() == 64);
  CHECK(options.n_layer() == 4);
  CHECK(options.n_head() == 4);
  CHECK(options.n_embd() == 128);
  CHECK(options.dropout() == 0.0);
  CHECK_FALSE(options.bias());
  CHECK(options.gelu_approximate() == "none");
  CHECK_FALSE(options.seed());
  GPT model(options);
  const at::NoGradGuard no_grad;
  CHECK(model(at::zeros({32, 64}, at::kLong)).sizes() == at::IntArrayRef({32, 64, 65}));
}

TEST_CASE("GPT computes embeddings, blocks, final norm and tied head", "[gpt]") {
  for (const bool bias : {false, true}) {
    for (const char* gelu : {"none", "tanh"}) {
      INFO("bias " << bias << ", gelu " << gelu);
      GPT model(small_gpt_options().bias(bias).gelu_approximate(gelu).seed(1));
      scramble(*model, 0.3, 2);
      const at::Tensor idx = random_ids({2, 6}), targets = random_ids({2, 6});
      const at::Tensor expected = reference_logits(model, idx);
      CHECK_THAT(model(idx), AllClose(expected, 1e-4, 1e-4));
      CHECK_THAT(model->last_logits(idx), AllClose(expected.select(1, 5), 1e-4, 1e-4));

      const at::Tensor expected_loss =
          at::nll_loss(expected.log_softmax(-1).flatten(0, 1), targets.flatten());
      const at::Tensor loss = model->loss(idx, targets);
      CHECK(loss.dim() == 0);
      CHECK_THAT(loss, AllClose(expected_loss, 1e-5, 1e-5));

      const auto parameters = model->parameters();
      const auto expected_gradients = torch::autograd::grad({expected_loss}, parameters);
      const auto gradients = torch::autograd::grad({loss}, parameters);
      for (size_t i = 0; i < parameters.size(); ++i) {
        INFO(parameter_names(*model)[i]);
        CHECK_THAT(gradients[i], AllClose(expected_gradients[i], 1e-3, 1e-5));
      }
    }
  }
}

TEST_CASE("the scale of a GPT is the factor on the scores of every block", "[gpt]") {
  const at::Tensor idx = random_ids({2, 6});
  for (const double scale : {1.0, 0.25, -2.0}) {
    GPT model(small_gpt_options().scale(scale).seed(1));
    scramble(*model, 0.3, 2);
    int64_t layers = 0;
    model->for_each_attention(idx, [&](int64_t, const AttentionSteps& steps) {
      CHECK_THAT(steps.scaled_scores, AllClose(steps.scores * scale, 1e-6, 1e-6));
      ++layers;
    });
    CHECK(layers == 2);
    // The forward pass uses the same factor: the model equals one whose queries are multiplied.
    GPT multiplied(small_gpt_options().seed(1));
    scramble(*multiplied, 0.3, 2);
    const at::NoGradGuard no_grad;
    for (size_t layer = 0; layer < 2; ++layer) {
      const auto attn = multiplied->transformer->h->at<BlockImpl>(layer).attn;
      attn->c_attn->weight.narrow(0, 0, 12).mul_(scale * 2.0);  // hs 4: 2 undoes the division
    }
    CHECK_THAT(model(idx), AllClose(multiplied(idx), 1e-4, 1e-4));
  }
}

TEST_CASE("the logits of a GPT do not depend on later tokens", "[gpt]") {
  GPT model(small_gpt_options().seed(1));
  scramble(*model, 0.3, 2);
  const at::Tensor idx = random_ids({2, 6});
  at::Tensor changed = idx.clone();
  changed.narrow(1, 3, 3).add_(1).remainder_(11);
  const at::Tensor before = model(idx), after = model(changed);
  CHECK_THAT(after.narrow(1, 0, 3), AllClose(before.narrow(1, 0, 3), 0, 1e-6));
  CHECK_FALSE(at::allclose(after.select(1, 3), before.select(1, 3)));
}

TEST_CASE("GPT computes the same logits in pieces with caches as in one call", "[gpt]") {
  GPT model(small_gpt_options().bias(true).seed(1));
  scramble(*model, 0.3, 2);
  const at::NoGradGuard no_grad;
  const at::Tensor idx = random_ids({2, 8});
  const at::Tensor expected = model(idx);
  std::vector<KvCache> caches = model->make_caches();
  CHECK(caches.size() == 2);
  std::vector<at::Tensor> pieces;
  int64_t done = 0;
  for (const int64_t length : {3, 1, 2, 1}) {
    pieces.push_back(model->forward(idx.narrow(1, done, length), &caches));
    done += length;
  }
  CHECK_THAT(at::cat(pieces, 1), AllClose(expected.narrow(1, 0, 7), 1e-4, 1e-5));
  CHECK(caches[1].length() == 7);
  CHECK_THROWS_WITH(model->forward(idx.narrow(1, 0, 2), &caches),
                    ContainsSubstring("GPT::forward: expected at most block_size = 8 tokens, got 2 "
                                      "after 7 in the caches"));
  CHECK_THAT(model->last_logits(idx.narrow(1, 7, 1), &caches),
             AllClose(expected.select(1, 7), 1e-4, 1e-5));

  for (KvCache& cache : caches) cache.clear();
  caches.pop_back();
  CHECK_THROWS_WITH(model->forward(idx, &caches),
                    ContainsSubstring("expected one cache for each of the 2 blocks, got 1"));
  caches.emplace_back(8).append(at::zeros({2, 3, 1, 4}), at::zeros({2, 3, 1, 4}));
  CHECK_THROWS_WITH(model->forward(idx.narrow(1, 0, 1), &caches),
                    ContainsSubstring("expected caches of equal length, got 0 and 1"));
}

TEST_CASE("after an error in one block of a GPT every cache is unchanged", "[gpt]") {
  const at::NoGradGuard no_grad;
  GPT model(small_gpt_options().seed(1));
  const at::Tensor idx = random_ids({2, 3});
  std::vector<KvCache> caches = model->make_caches();
  model->forward(idx, &caches);
  caches[1] = KvCache(8);
  caches[1].append(at::zeros({2, 1, 3, 2}), at::zeros({2, 1, 3, 2}));  // of another model
  CHECK_THROWS_WITH(model->forward(idx, &caches), ContainsSubstring("KvCache::append"));
  CHECK(caches[0].length() == 3);
  CHECK(caches[1].length() == 3);
}

TEST_CASE("the clone of a GPT keeps the training mode of every module", "[gpt]") {
  GPT model(small_gpt_options().dropout(0.5));
  const auto modes = [](const torch::nn::Module& module) {
    std::vector<bool> training;
    for (const auto& child : module.modules(/*include_self=*/false)) {
      training.push_back(child->is_training());
    }
    return training;
  };
  model->eval();
  CHECK(modes(*clone_of(model)) == modes(*model));
  CHECK_FALSE(clone_of(model)->transformer->h->is_training());
  model->transformer->h[1]->train();
  model->transformer->ln_f->train();
  CHECK(modes(*clone_of(model)) == modes(*model));
}

TEST_CASE("for_each_attention passes the attention steps of each block", "[gpt]") {
  GPT model(small_gpt_options().seed(1));
  scramble(*model, 0.3, 2);
  const at::NoGradGuard no_grad;
  const at::Tensor idx = random_ids({2, 6});
  std::vector<int64_t> layers;
  at::Tensor x = model->transformer->wte(idx) + model->transformer->wpe->weight.narrow(0, 0, 6);
  model->for_each_attention(idx, [&](int64_t layer, const AttentionSteps& steps) {
    layers.push_back(layer);
    BlockImpl& block = model->transformer->h->at<BlockImpl>(static_cast<size_t>(layer));
    const AttentionSteps expected = block.attention_steps(x);
    CHECK_THAT(steps.scores, AllClose(expected.scores, 1e-5, 1e-6));
    CHECK_THAT(steps.scaled_scores, AllClose(expected.scaled_scores, 1e-5, 1e-6));
    CHECK_THAT(steps.weights, AllClose(expected.weights, 1e-5, 1e-6));
    CHECK_THAT(steps.output, AllClose(expected.output, 1e-5, 1e-6));
    CHECK(steps.weights.sizes() == at::IntArrayRef({2, 3, 6, 6}));
    CHECK_THAT(steps.weights.triu(1), Equals(at::zeros({2, 3, 6, 6})));
    x = block.forward(x);
  });
  CHECK(layers == std::vector<int64_t>{0, 1});
}

TEST_CASE("for_each_projection passes the queries, keys and values of each block", "[gpt]") {
  GPT model(small_gpt_options().seed(1));
  scramble(*model, 0.3, 2);
  const at::NoGradGuard no_grad;
  const at::Tensor idx = random_ids({2, 6});
  std::vector<AttentionSteps> expected;
  model->for_each_attention(
      idx, [&](int64_t, const AttentionSteps& steps) { expected.push_back(steps); });
  int64_t layers = 0;
  model->for_each_projection(
      idx, [&](int64_t layer, const MultiHeadAttentionImpl::Projections& heads) {
        CHECK(layer == layers++);
        const AttentionSteps steps =
            attention_steps(heads.q, heads.k, heads.v, {.causal = Causal::kLowerRight});
        const AttentionSteps& e = expected[static_cast<size_t>(layer)];
        CHECK_THAT(steps.weights, AllClose(e.weights, 1e-5, 1e-6));
        CHECK_THAT(steps.output, AllClose(e.output, 1e-5, 1e-6));
      });
  CHECK(layers == 2);
}

TEST_CASE("GPT applies dropout in training mode only", "[gpt]") {
  const at::Tensor idx = random_ids({2, 6});
  GPT model(small_gpt_options().seed(1).dropout(0.5)), plain(small_gpt_options().seed(1));
  CHECK_FALSE(at::equal(model(idx), model(idx)));
  torch::manual_seed(3);
  const at::Tensor first = model(idx);
  torch::manual_seed(3);
  CHECK_THAT(model(idx), Equals(first));
  CHECK_FALSE(at::equal(model->loss(idx, idx), model->loss(idx, idx)));

  model->eval();
  CHECK_THAT(model(idx), Equals(model(idx)));
  CHECK_THAT(model(idx), Equals(plain(idx)));
  CHECK_THAT(model->loss(idx, idx), Equals(plain->loss(idx, idx)));
  model->train();
  CHECK_FALSE(at::equal(model(idx), model(idx)));

  SECTION("to the embeddings") {
    model->transformer->h->eval();  // only the dropout of the embeddings remains active
    CHECK_FALSE(at::equal(model(idx), model(idx)));
  }
  SECTION("in every block") {
    for (const auto& block : *model->transformer->h) {
      CHECK(block->as<Block>()->options.dropout() == 0.5);
    }
  }
}

TEST_CASE("GPT computes logits in bfloat16 and the loss in float32", "[gpt]") {
  GPT model(small_gpt_options().seed(1));
  scramble(*model, 0.3, 2);
  const at::Tensor idx = random_ids({2, 6});
  const at::Tensor logits = model(idx), loss = model->loss(idx, idx);
  model->to(at::kBFloat16);
  CHECK(model(idx).scalar_type() == at::kBFloat16);
  CHECK_THAT(model(idx), AllClose(logits, 5e-2, 5e-2));  // bfloat16 has 8 bits of precision
  CHECK(model->loss(idx, idx).scalar_type() == at::kFloat);
  CHECK_THAT(model->loss(idx, idx), AllClose(loss, 2e-2, 0));
  model->loss(idx, idx).backward();
  CHECK(model->transformer->wte->weight.grad().scalar_type() == at::kBFloat16);
}

TEST_CASE("GPT can be trained to memorise a sequence", "[gpt]") {
  GPT model(small_gpt_options().seed(1));
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-2));
  const at::Tensor text = at::arange(9).mul(3).remainder(11).unsqueeze(0);
  const at::Tensor idx = text.narrow(1, 0, 8), targets = text.narrow(1, 1, 8);
  const double before = model->loss(idx, targets).item<double>();
  CHECK(std::abs(before - std::log(11.0)) < 0.1);  // an untrained model: ln V
  for (int step = 0; step < 100; ++step) {
    optimizer.zero_grad();
    model->loss(idx, targets).backward();
    for (const at::Tensor& parameter : model->parameters()) {
      REQUIRE(parameter.grad().defined());
    }
    optimizer.step();
  }
  CHECK(model->loss(idx, targets).item<double>() < 0.1);
  CHECK_THAT(model(idx).argmax(-1), Equals(targets));
}

TEST_CASE("GPT accepts an empty batch and empty sequences", "[gpt]") {
  GPT model(small_gpt_options());
  CHECK(model(at::zeros({0, 6}, at::kLong)).sizes() == at::IntArrayRef({0, 6, 11}));
  CHECK(model(at::zeros({2, 0}, at::kLong)).sizes() == at::IntArrayRef({2, 0, 11}));
}

TEST_CASE("GPT works in Sequential", "[gpt]") {
  GPT model(small_gpt_options());
  torch::nn::Sequential sequence(model, torch::nn::Linear(11, 2));
  const at::Tensor idx = random_ids({2, 6});
  CHECK(sequence->forward(idx).sizes() == at::IntArrayRef({2, 6, 2}));
}

TEST_CASE("GPT prints its constructor call", "[gpt]") {
  CHECK(printed(*GPT(GPTOptions(65))) ==
        "mini::GPT(vocab_size=65, block_size=64, n_layer=4, n_head=4, n_embd=128)");
  const GPT model(
      small_gpt_options().bias(true).dropout(0.1).scale(0.5).gelu_approximate("tanh").seed(42));
  CHECK(printed(*model) ==
        "mini::GPT(vocab_size=11, block_size=8, n_layer=2, n_head=3, n_embd=12, dropout=0.1, "
        "bias=true, scale=0.5, gelu_approximate=tanh, seed=42)");
  CHECK(printed(*model->transformer) ==
        "mini::Transformer(vocab_size=11, block_size=8, n_layer=2, n_head=3, n_embd=12, "
        "dropout=0.1, bias=true, scale=0.5, gelu_approximate=tanh, seed=42)");
  CHECK(printed(*model->transformer->h->at<BlockImpl>(1).attn) ==
        "mini::MultiHeadAttention(n_embd=12, n_head=3, bias=true, causal=true, dropout=0.1, "
        "scale=0.5)");
}

TEST_CASE("GPT rejects invalid options", "[gpt]") {
  const auto rejects = [](const GPTOptions& options, const char* message) {
    CHECK_THROWS_WITH(GPT(options), ContainsSubstring(message));
  };
  rejects(GPTOptions(0),
          "GPT: expected vocab_size, block_size and n_layer above 0, got vocab_size 0, block_size "
          "64 and n_layer 4");
  rejects(small_gpt_options().block_size(0), "got vocab_size 11, block_size 0 and n_layer 2");
  rejects(small_gpt_options().n_layer(0), "and n_layer 0");
  rejects(small_gpt_options().n_head(5),
          "GPT: expected n_embd to be a multiple of n_head, both above 0, got n_embd 12 and n_head "
          "5");
  rejects(small_gpt_options().n_head(0), "got n_embd 12 and n_head 0");
  rejects(small_gpt_options().n_embd(0), "got n_embd 0 and n_head 3");
  rejects(small_gpt_options().dropout(NAN),
          "GPT: expected a dropout probability in [0, 1], got nan");
  rejects(small_gpt_options().scale(INFINITY), "GPT: expected a finite scale, got inf");
  rejects(small_gpt_options().gelu_approximate("fast"),
          "GPT: expected gelu_approximate \"none\" or \"tanh\", got \"fast\"");
}

TEST_CASE("GPT rejects invalid tokens", "[gpt]") {
  GPT model(small_gpt_options());
  const at::Tensor idx = at::zeros({2, 6}, at::kLong);
  CHECK_THROWS_WITH(
      model(at::zeros({1, 9}, at::kLong)),
      ContainsSubstring("GPT::forward: expected at most block_size = 8 tokens, got 9"));
  CHECK_THROWS_WITH(model(at::zeros({6}, at::kLong)),
                    ContainsSubstring("GPT::forward: expected token ids (B, T), got [6]"));
  CHECK_THROWS_WITH(model(at::Tensor()), ContainsSubstring("got an undefined tensor"));
  CHECK_THROWS_WITH(model(at::zeros({2, 6}, at::kInt)),
                    ContainsSubstring("GPT::forward: expected token ids of int64 (Long), got Int"));
  CHECK_THROWS_WITH(model(at::zeros({2, 6}, at::device(at::kMeta).dtype(at::kLong))),
                    ContainsSubstring("must be on one device, got ids meta and weights cpu"));
  for (const int64_t id : {-1, 11}) {
    at::Tensor wrong = idx.clone();
    wrong[1][3] = id;
    const std::string message =
        c10::str(": expected token ids from 0 to vocab_size - 1 = 10, got ", id, " at [1, 3]");
    CHECK_THROWS_WITH(model(wrong), ContainsSubstring("GPT::forward" + message));
    CHECK_THROWS_WITH(model->loss(wrong, idx), ContainsSubstring("GPT::loss" + message));
    CHECK_THROWS_WITH(model->loss(idx, wrong), ContainsSubstring("GPT::loss, targets" + message));
    CHECK_THROWS_WITH(model->last_logits(wrong), ContainsSubstring("GPT::last_logits" + message));
    CHECK_THROWS_WITH(model->for_each_attention(wrong, [](int64_t, const AttentionSteps&) {}),
                      ContainsSubstring("GPT::for_each_attention" + message));
    CHECK_THROWS_WITH(model->for_each_projection(
                          wrong, [](int64_t, const MultiHeadAttentionImpl::Projections&) {}),
                      ContainsSubstring("GPT::for_each_projection" + message));
  }
  CHECK_THROWS_WITH(
      model->loss(idx, idx.narrow(1, 0, 5)),
      ContainsSubstring("GPT::loss: expected idx and targets of equal shape (B, T), B "
                        "and T above 0, got idx [2, 6] and targets [2, 5]"));
  CHECK_THROWS_WITH(model->loss(idx.narrow(1, 0, 0), idx.narrow(1, 0, 0)),
                    ContainsSubstring("got idx [2, 0] and targets [2, 0]"));
  CHECK_THROWS_WITH(model->last_logits(idx.narrow(1, 0, 0)),
                    ContainsSubstring("GPT::last_logits: expected at least one token, got [2, 0]"));
}
