// SPDX-License-Identifier: MIT
#include "mini/gpt.h"

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "mini/state_dict.h"
#include "support/module_support.h"

using namespace mini;
using namespace mini::test;

namespace {

using Names = std::vector<std::string>;

GPTOptions small() { return GPTOptions(11).block_size(8).n_layer(2).n_head(3).n_embd(12); }

at::Tensor random_ids(std::vector<int64_t> sizes) { return at::randint(11, sizes, at::kLong); }

// The equation in LibTorch's own functions, the weights by their names.
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

TEST_CASE("a GPT's defaults are the lesson's sizes", "[gpt]") {
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

TEST_CASE("a GPT has nanoGPT's parameters, each once", "[gpt]") {
  const GPT plain(small());
  CHECK(parameter_names(*plain) ==
        Names{"transformer.wte.weight", "transformer.wpe.weight", "transformer.h.0.ln_1.weight",
              "transformer.h.0.attn.c_attn.weight", "transformer.h.0.attn.c_proj.weight",
              "transformer.h.0.ln_2.weight", "transformer.h.0.mlp.c_fc.weight",
              "transformer.h.0.mlp.c_proj.weight", "transformer.h.1.ln_1.weight",
              "transformer.h.1.attn.c_attn.weight", "transformer.h.1.attn.c_proj.weight",
              "transformer.h.1.ln_2.weight", "transformer.h.1.mlp.c_fc.weight",
              "transformer.h.1.mlp.c_proj.weight", "transformer.ln_f.weight"});
  const GPT with_bias(small().n_layer(1).bias(true));
  CHECK(parameter_names(*with_bias) ==
        Names{"transformer.wte.weight", "transformer.wpe.weight", "transformer.h.0.ln_1.weight",
              "transformer.h.0.ln_1.bias", "transformer.h.0.attn.c_attn.weight",
              "transformer.h.0.attn.c_attn.bias", "transformer.h.0.attn.c_proj.weight",
              "transformer.h.0.attn.c_proj.bias", "transformer.h.0.ln_2.weight",
              "transformer.h.0.ln_2.bias", "transformer.h.0.mlp.c_fc.weight",
              "transformer.h.0.mlp.c_fc.bias", "transformer.h.0.mlp.c_proj.weight",
              "transformer.h.0.mlp.c_proj.bias", "transformer.ln_f.weight",
              "transformer.ln_f.bias"});
  CHECK(plain->transformer->wte->weight.sizes() == at::IntArrayRef({11, 12}));
  CHECK(plain->transformer->wpe->weight.sizes() == at::IntArrayRef({8, 12}));
  CHECK(plain->transformer->wte->options.num_embeddings() == 11);
  CHECK(plain->buffers().empty());
  for (const at::Tensor& parameter : plain->parameters()) {
    CHECK(parameter.requires_grad());
    CHECK(parameter.is_leaf());
  }
}

TEST_CASE("a GPT is embeddings, blocks, a norm and the tied head", "[gpt]") {
  for (const bool bias : {false, true}) {
    for (const char* gelu : {"none", "tanh"}) {
      INFO("bias " << bias << ", gelu " << gelu);
      GPT model(small().bias(bias).gelu_approximate(gelu).seed(1));
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

TEST_CASE("a GPT starts with GPT-2's weights, drawn in the order of its parameters", "[gpt]") {
  const GPT model(GPTOptions(65).bias(true).seed(42));
  auto generator = at::make_generator<at::CPUGeneratorImpl>(42);
  for (const auto& parameter : model->named_parameters()) {
    INFO(parameter.key());
    const at::Tensor& value = parameter.value();
    if (value.dim() == 2) {
      const bool residual = parameter.key().find("c_proj") != std::string::npos;
      const double std = residual ? 0.02 / std::sqrt(8.0) : 0.02;
      CHECK_THAT(value, Equals(at::empty(value.sizes()).normal_(0, std, generator)));
      CHECK(std::abs(value.std().item<double>() / std - 1) < 0.05);
    } else {
      const bool is_bias = parameter.key().find("bias") != std::string::npos;
      CHECK_THAT(value, Equals(at::full(value.sizes(), is_bias ? 0.0 : 1.0)));
    }
  }
}

TEST_CASE("a seeded GPT leaves the global generator alone; another one follows it", "[gpt]") {
  torch::manual_seed(7);
  const at::Tensor expected = at::rand({5});
  torch::manual_seed(7);
  const GPT first(small().seed(42)), second(small().seed(42)), other(small().seed(43));
  CHECK_THAT(at::rand({5}), Equals(expected));
  check_same_parameters(*second, *first);
  CHECK_FALSE(at::equal(other->transformer->wte->weight, first->transformer->wte->weight));

  torch::manual_seed(42);
  const GPT unseeded(small()), next(small());
  check_same_parameters(*unseeded, *first);
  CHECK_FALSE(at::equal(next->transformer->wte->weight, first->transformer->wte->weight));

  const auto& h = first->transformer->h;
  CHECK_FALSE(at::equal(h->at<BlockImpl>(0).attn->c_attn->weight,
                        h->at<BlockImpl>(1).attn->c_attn->weight));
}

TEST_CASE("modules made after a GPT draw their weights again", "[gpt]") {
  const GPT model(small());
  torch::manual_seed(1);
  const Mlp mlp(MlpOptions(6));
  torch::manual_seed(1);
  const torch::nn::Linear c_fc(torch::nn::LinearOptions(6, 24).bias(false));
  CHECK_THAT(mlp->c_fc->weight, Equals(c_fc->weight));
}

TEST_CASE("the future does not leak through a GPT", "[gpt]") {
  GPT model(small().seed(1));
  scramble(*model, 0.3, 2);
  const at::Tensor idx = random_ids({2, 6});
  at::Tensor changed = idx.clone();
  changed.narrow(1, 3, 3).add_(1).remainder_(11);
  const at::Tensor before = model(idx), after = model(changed);
  CHECK_THAT(after.narrow(1, 0, 3), AllClose(before.narrow(1, 0, 3), 0, 1e-6));
  CHECK_FALSE(at::allclose(after.select(1, 3), before.select(1, 3)));
}

TEST_CASE("with caches, a GPT's logits step by step are those at once", "[gpt]") {
  GPT model(small().bias(true).seed(1));
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
                    ContainsSubstring("expected a cache for each of the 2 blocks, got 1"));
  caches.emplace_back(8).append(at::zeros({2, 3, 1, 4}), at::zeros({2, 3, 1, 4}));
  CHECK_THROWS_WITH(model->forward(idx.narrow(1, 0, 1), &caches),
                    ContainsSubstring("expected caches of one length, got 0 and 1"));
}

TEST_CASE("for_each_attention shows what each block's attention computes", "[gpt]") {
  GPT model(small().seed(1));
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

TEST_CASE("for_each_projection gives what each block's attention is made of", "[gpt]") {
  GPT model(small().seed(1));
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

TEST_CASE("a GPT's dropout acts in training and not in evaluation", "[gpt]") {
  const at::Tensor idx = random_ids({2, 6});
  GPT model(small().seed(1).dropout(0.5)), plain(small().seed(1));
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

  SECTION("on the embeddings too") {
    model->transformer->h->eval();  // what remains is their dropout
    CHECK_FALSE(at::equal(model(idx), model(idx)));
  }
  SECTION("and in every block") {
    for (const auto& block : *model->transformer->h) {
      CHECK(block->as<Block>()->options.dropout() == 0.5);
    }
  }
}

TEST_CASE("a GPT's head stays tied", "[gpt]") {
  GPT model(small().seed(1));
  const at::Tensor idx = random_ids({2, 6});
  const auto is_tied = [&](GPTImpl& gpt) {
    const at::NoGradGuard no_grad;
    gpt.transformer->wte->weight.zero_();  // as the head it makes all logits 0
    return gpt.forward(idx).abs().sum().item<double>() == 0;
  };
  SECTION("after clone") {
    const auto clone = clone_of(model);
    CHECK_THAT(clone->forward(idx), Equals(model(idx)));
    CHECK(clone->parameters().size() == model->parameters().size());
    CHECK(is_tied(*clone));
    CHECK(model(idx).abs().sum().item<double>() > 0);  // a copy, not shared
    const auto names = parameter_names(*clone);
    for (size_t i = 1; i < names.size(); ++i) {
      INFO(names[i]);
      CHECK_FALSE(clone->parameters()[i].is_alias_of(model->parameters()[i]));
    }
  }
  SECTION("after to()") {
    const at::Tensor expected = model(idx);
    model->to(at::kDouble);
    CHECK_THAT(model(idx), AllClose(expected, 1e-4, 1e-5));
    CHECK(model(idx).scalar_type() == at::kDouble);
    CHECK(is_tied(*model));
    CHECK(model->parameters().size() == 15);
  }
  SECTION("after loading, from either name") {
    GPT other(small().seed(2));
    const auto tensors = state_dict(*model, kGPTAliases);
    CHECK(tensors.size() == 16);
    CHECK(tensors["lm_head.weight"].is_alias_of(model->transformer->wte->weight));
    load_state_dict(*other, tensors, {.aliases = kGPTAliases});
    check_same_parameters(*other, *model);
    CHECK_THAT(other(idx), Equals(model(idx)));

    torch::OrderedDict<std::string, at::Tensor> by_alias;
    for (const auto& item : tensors) {
      if (item.key() != "transformer.wte.weight") by_alias.insert(item.key(), item.value());
    }
    GPT third(small().seed(3));
    load_state_dict(*third, by_alias, {.aliases = kGPTAliases});
    CHECK_THAT(third(idx), Equals(model(idx)));
    CHECK(is_tied(*third));
  }
  SECTION("after torch::save and torch::load") {
    std::stringstream stream;
    torch::save(model, stream);
    GPT loaded(small().seed(2));
    torch::load(loaded, stream);
    CHECK_THAT(loaded(idx), Equals(model(idx)));
    CHECK(is_tied(*loaded));
  }
  SECTION("so that tokens never seen learn through the head alone") {
    model->loss(idx, idx).backward();
    const at::Tensor gradient = model->transformer->wte->weight.grad();
    const at::Tensor unseen = at::ones({11}, at::kBool).index_fill(0, idx.flatten(), 0);
    REQUIRE(unseen.any().item<bool>());
    CHECK(gradient.abs().sum(1).min().item<double>() > 0);
  }
}

TEST_CASE("a GPT computes in bfloat16, its loss in float32", "[gpt]") {
  GPT model(small().seed(1));
  scramble(*model, 0.3, 2);
  const at::Tensor idx = random_ids({2, 6});
  const at::Tensor logits = model(idx), loss = model->loss(idx, idx);
  model->to(at::kBFloat16);
  CHECK(model(idx).scalar_type() == at::kBFloat16);
  CHECK_THAT(model(idx), AllClose(logits, 5e-2, 5e-2));  // bfloat16 has 8 bits
  CHECK(model->loss(idx, idx).scalar_type() == at::kFloat);
  CHECK_THAT(model->loss(idx, idx), AllClose(loss, 2e-2, 0));
  model->loss(idx, idx).backward();
  CHECK(model->transformer->wte->weight.grad().scalar_type() == at::kBFloat16);
}

TEST_CASE("a GPT learns a sequence by heart", "[gpt]") {
  GPT model(small().seed(1));
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-2));
  const at::Tensor text = at::arange(9).mul(3).remainder(11).unsqueeze(0);
  const at::Tensor idx = text.narrow(1, 0, 8), targets = text.narrow(1, 1, 8);
  const double before = model->loss(idx, targets).item<double>();
  CHECK(std::abs(before - std::log(11.0)) < 0.1);  // it knows nothing: near ln V
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

TEST_CASE("a GPT takes an empty batch and no tokens", "[gpt]") {
  GPT model(small());
  CHECK(model(at::zeros({0, 6}, at::kLong)).sizes() == at::IntArrayRef({0, 6, 11}));
  CHECK(model(at::zeros({2, 0}, at::kLong)).sizes() == at::IntArrayRef({2, 0, 11}));
}

TEST_CASE("a GPT works in Sequential", "[gpt]") {
  GPT model(small());
  torch::nn::Sequential sequence(model, torch::nn::Linear(11, 2));
  const at::Tensor idx = random_ids({2, 6});
  CHECK(sequence->forward(idx).sizes() == at::IntArrayRef({2, 6, 2}));
}

TEST_CASE("a GPT prints as it is made", "[gpt]") {
  CHECK(printed(*GPT(GPTOptions(65))) ==
        "mini::GPT(vocab_size=65, block_size=64, n_layer=4, n_head=4, n_embd=128)");
  const GPT model(small().bias(true).dropout(0.1).gelu_approximate("tanh").seed(42));
  CHECK(printed(*model) ==
        "mini::GPT(vocab_size=11, block_size=8, n_layer=2, n_head=3, n_embd=12, dropout=0.1, "
        "bias=true, gelu_approximate=tanh, seed=42)");
  CHECK(printed(*model->transformer) ==
        "mini::Transformer(vocab_size=11, block_size=8, n_layer=2, n_head=3, n_embd=12, "
        "dropout=0.1, bias=true, gelu_approximate=tanh, seed=42)");
  CHECK(printed(*model->transformer->h->at<BlockImpl>(1).attn) ==
        "mini::MultiHeadAttention(n_embd=12, n_head=3, bias=true, causal=true, dropout=0.1)");
}

TEST_CASE("a GPT refuses options that cannot be", "[gpt]") {
  const auto refused = [](const GPTOptions& options, const char* message) {
    CHECK_THROWS_WITH(GPT(options), ContainsSubstring(message));
  };
  refused(GPTOptions(0),
          "GPT: expected vocab_size, block_size and n_layer above 0, got vocab_size 0, block_size "
          "64 and n_layer 4");
  refused(small().block_size(0), "got vocab_size 11, block_size 0 and n_layer 2");
  refused(small().n_layer(0), "and n_layer 0");
  refused(small().n_head(5),
          "GPT: expected n_embd to be a multiple of n_head, both above 0, got n_embd 12 and n_head "
          "5");
  refused(small().n_head(0), "got n_embd 12 and n_head 0");
  refused(small().n_embd(0), "got n_embd 0 and n_head 3");
  refused(small().dropout(NAN), "GPT: expected a dropout probability in [0, 1], got nan");
  refused(small().gelu_approximate("fast"),
          "GPT: expected gelu_approximate to be none or tanh, got fast");
}

TEST_CASE("a GPT refuses tokens that cannot be", "[gpt]") {
  GPT model(small());
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
  CHECK_THROWS_WITH(model->loss(idx, idx.narrow(1, 0, 5)),
                    ContainsSubstring("GPT::loss: expected idx and targets of one shape (B, T), B "
                                      "and T above 0, got idx [2, 6] and targets [2, 5]"));
  CHECK_THROWS_WITH(model->loss(idx.narrow(1, 0, 0), idx.narrow(1, 0, 0)),
                    ContainsSubstring("got idx [2, 0] and targets [2, 0]"));
  CHECK_THROWS_WITH(model->last_logits(idx.narrow(1, 0, 0)),
                    ContainsSubstring("GPT::last_logits: expected at least one token, got [2, 0]"));
}
