# SPDX-License-Identifier: MIT
"""Pretrained GPTs: loading and saving, compared with transformers.

The program MINI_GPT_MODELS is gpt_models.cpp, built with the tests.
"""

import json
import os
import unittest
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "warning"

import torch  # noqa: E402
import transformers  # noqa: E402
from program_case import ProgramTest  # noqa: E402
from safetensors import safe_open  # noqa: E402
from safetensors.torch import load_file, save_file, save_model  # noqa: E402
from torch import nn  # noqa: E402
from transformers import GPT2Config, GPT2LMHeadModel  # noqa: E402
from transformers.pytorch_utils import Conv1D  # noqa: E402

SMALL = {"vocab_size": 101, "n_positions": 40, "n_embd": 24, "n_layer": 2, "n_head": 3}
LARGER = {"vocab_size": 1009, "n_positions": 64, "n_embd": 80, "n_layer": 3, "n_head": 5}
HEADS = str(SMALL["n_head"])


def scramble(model, seed):
    """Adds noise to every parameter, so that none keeps its initial 0 or 1."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return model.eval()


def gpt2(sizes=SMALL, seed=1, **fields):
    torch.manual_seed(seed)
    config = GPT2Config(**sizes, bos_token_id=None, eos_token_id=None, **fields)
    return scramble(GPT2LMHeadModel(config), seed)


class NanoAttention(nn.Module):
    def __init__(self, n_embd, n_head, bias):
        super().__init__()
        self.n_head = n_head
        self.c_attn = nn.Linear(n_embd, 3 * n_embd, bias=bias)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=bias)

    def forward(self, x):
        q, k, v = (
            part.unflatten(-1, (self.n_head, -1)).transpose(1, 2)
            for part in self.c_attn(x).chunk(3, -1)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).flatten(2))


class NanoBlock(nn.Module):
    def __init__(self, n_embd, n_head, bias):
        super().__init__()
        self.ln_1 = nn.LayerNorm(n_embd, bias=bias)
        self.attn = NanoAttention(n_embd, n_head, bias)
        self.ln_2 = nn.LayerNorm(n_embd, bias=bias)
        self.mlp = nn.ModuleDict(
            {
                "c_fc": nn.Linear(n_embd, 4 * n_embd, bias=bias),
                "c_proj": nn.Linear(4 * n_embd, n_embd, bias=bias),
            }
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        inner = nn.functional.gelu(self.mlp["c_fc"](self.ln_2(x)))
        return x + self.mlp["c_proj"](inner)


class NanoGPT(nn.Module):
    """A model with nanoGPT's names and shapes."""

    def __init__(self, vocab_size, n_positions, n_embd, n_layer, n_head, bias):
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocab_size, n_embd),
                "wpe": nn.Embedding(n_positions, n_embd),
                "h": nn.ModuleList(NanoBlock(n_embd, n_head, bias) for _ in range(n_layer)),
                "ln_f": nn.LayerNorm(n_embd, bias=bias),
            }
        )
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1])
        x = self.transformer["wte"](tokens) + self.transformer["wpe"](positions)
        for block in self.transformer["h"]:
            x = block(x)
        return self.lm_head(self.transformer["ln_f"](x))


def nanogpt(bias, seed=1):
    return scramble(NanoGPT(**SMALL, bias=bias), seed)


def untied(state_dict):
    """The state_dict without the tied head, which save_file refuses to write twice."""
    return {name: t for name, t in state_dict.items() if not name.endswith("lm_head.weight")}


class Pretrained(ProgramTest):
    program = "MINI_GPT_MODELS"

    def evaluate(self, model, vocab_size):
        """Returns tokens, a prompt, and what the C++ program computes for them with `model`."""
        tokens = torch.randint(vocab_size, (3, 17))
        prompt = torch.randint(vocab_size, (2, 5))
        save_file({"tokens": tokens, "prompt": prompt}, self.path("input"))
        self.run_tool("evaluate", self.path(model), HEADS, self.path("input"), self.path("output"))
        return tokens, prompt, load_file(self.path("output"))

    def load_without_a_warning(self, directory):
        with warnings.catch_warnings(), self.assertNoLogs("transformers", "WARNING"):
            warnings.simplefilter("error")
            model, info = GPT2LMHeadModel.from_pretrained(
                self.path(directory), output_loading_info=True
            )
        for kind, names in info.items():
            self.assertFalse(names, kind)
        return model.eval()

    def assert_gradients(self, results, model):
        for name, parameter in model.named_parameters():
            gradient = parameter.grad
            module = model.get_submodule(name.rpartition(".")[0])
            if isinstance(module, Conv1D) and gradient.dim() == 2:
                gradient = gradient.T
            error = (results["gradient of " + name] - gradient).abs().max()
            self.assertLess(error, 1e-4 * gradient.abs().max(), name)
        self.assertEqual(
            {name for name in results if name.startswith("gradient of ")},
            {"gradient of " + name for name, _ in model.named_parameters()},
        )

    def test_a_gpt2_computes_the_same_in_cpp(self):
        for sizes in SMALL, LARGER:
            for seed in 1, 2:
                with self.subTest(vocab_size=sizes["vocab_size"], seed=seed):
                    model = gpt2(sizes, seed)
                    model.save_pretrained(self.path("model"))
                    tokens, prompt, results = self.evaluate("model", sizes["vocab_size"])

                    expected = model(tokens, labels=tokens)
                    torch.testing.assert_close(
                        results["logits"], expected.logits, rtol=1e-4, atol=1e-4
                    )
                    torch.testing.assert_close(
                        results["loss"], expected.loss, rtol=1e-4, atol=1e-4
                    )
                    expected.loss.backward()
                    self.assert_gradients(results, model)
                    continued = model.generate(prompt, max_new_tokens=20, do_sample=False)
                    self.assertEqual(results["greedy"].tolist(), continued.tolist())

    def test_each_activation_equals_that_of_transformers(self):
        logits = {}
        for activation in "gelu_new", "gelu_pytorch_tanh", "gelu":
            model = gpt2(activation_function=activation)
            model.save_pretrained(self.path("model"))
            torch.manual_seed(5)
            tokens, _, results = self.evaluate("model", SMALL["vocab_size"])
            torch.testing.assert_close(results["logits"], model(tokens).logits, rtol=0, atol=2e-5)
            logits[activation] = results["logits"]
        difference = (logits["gelu"] - logits["gelu_new"]).abs().max()
        self.assertGreater(difference, 2e-4)

    def test_a_gpt2_without_the_division_computes_the_same_in_cpp(self):
        model = gpt2(scale_attn_weights=False)
        model.save_pretrained(self.path("model"))
        tokens, _, results = self.evaluate("model", SMALL["vocab_size"])
        torch.testing.assert_close(results["logits"], model(tokens).logits, rtol=0, atol=2e-5)
        self.run_tool("save-gpt2", self.path("model"), "0", self.path("from_cpp"))
        loaded = self.load_without_a_warning("from_cpp")
        torch.testing.assert_close(loaded(tokens).logits, model(tokens).logits, rtol=0, atol=0)

    def test_a_gpt2_saved_without_its_head_loads_in_cpp(self):
        model = gpt2()
        model.transformer.save_pretrained(self.path("model"))
        self.assertIn("wte.weight", load_file(self.folder / "model/model.safetensors"))
        tokens, _, results = self.evaluate("model", SMALL["vocab_size"])
        torch.testing.assert_close(results["logits"], model(tokens).logits, rtol=1e-4, atol=1e-4)

    def test_a_gpt2_saved_in_cpp_loads_without_a_warning(self):
        model = gpt2(activation_function="gelu")
        model.save_pretrained(self.path("from_python"))
        self.run_tool("save-gpt2", self.path("from_python"), "0", self.path("from_cpp"))
        loaded = self.load_without_a_warning("from_cpp")
        self.assertEqual(loaded.state_dict().keys(), model.state_dict().keys())
        for name, tensor in model.state_dict().items():
            self.assertTrue(torch.equal(loaded.state_dict()[name], tensor), name)
        tokens = torch.randint(SMALL["vocab_size"], (2, 9))
        torch.testing.assert_close(loaded(tokens).logits, model(tokens).logits, rtol=0, atol=0)
        prompt = tokens[:, :3]
        with self.assertNoLogs("transformers", "WARNING"):
            loaded.generate(prompt, max_new_tokens=3, do_sample=False)

        # The file has the names and metadata that transformers writes.
        written = load_file(self.folder / "from_cpp/model.safetensors")
        self.assertEqual(
            written.keys(), load_file(self.folder / "from_python/model.safetensors").keys()
        )
        with safe_open(self.path("from_cpp/model.safetensors"), "pt") as file:
            self.assertEqual(file.metadata(), {"format": "pt"})

    def test_nanogpt_weights_load_in_cpp_and_back_in_python(self):
        for bias in False, True:
            with self.subTest(bias=bias):
                model = nanogpt(bias)
                save_model(model, self.path("from_python"))
                tokens, _, results = self.evaluate("from_python", SMALL["vocab_size"])
                logits = model(tokens)
                torch.testing.assert_close(results["logits"], logits, rtol=1e-4, atol=1e-4)
                nn.functional.cross_entropy(
                    logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()
                ).backward()
                self.assert_gradients(results, model)

                self.run_tool(
                    "save-nanogpt", self.path("from_python"), HEADS, self.path("from_cpp")
                )
                other = nanogpt(bias, seed=2)
                other.load_state_dict(load_file(self.path("from_cpp")), strict=True)
                self.assertTrue(torch.equal(other(tokens), logits))

    def test_a_compiled_nanogpt_with_mask_buffers_loads_in_cpp(self):
        model = nanogpt(bias=True)
        wrapped = torch.compile(model)  # compiles nothing until it is called
        tensors = untied(wrapped.state_dict())
        self.assertTrue(all(name.startswith("_orig_mod.") for name in tensors))
        tensors["_orig_mod.transformer.h.0.attn.bias"] = torch.ones(1, 1, 40, 40).tril()
        save_file(tensors, self.path("model"))
        tokens, _, results = self.evaluate("model", SMALL["vocab_size"])
        torch.testing.assert_close(results["logits"], model(tokens), rtol=1e-4, atol=1e-4)

    def test_a_nanogpt_without_biases_becomes_a_gpt2(self):
        model = nanogpt(bias=False)
        save_model(model, self.path("model"))
        self.run_tool("save-gpt2", self.path("model"), HEADS, self.path("gpt2"))
        loaded = self.load_without_a_warning("gpt2")
        biases = [p for name, p in loaded.named_parameters() if name.endswith(".bias")]
        self.assertEqual(len(biases), 2 * 6 + 1)
        self.assertTrue(all(not bias.any() for bias in biases))
        tokens = torch.randint(SMALL["vocab_size"], (2, 9))
        torch.testing.assert_close(loaded(tokens).logits, model(tokens), rtol=1e-4, atol=1e-4)

    def test_errors_name_what_cannot_be_loaded(self):
        def error(model):
            model.save_pretrained(self.path("model"))
            return self.run_tool(
                "save-gpt2", self.path("model"), "0", self.path("out"), status=1
            )

        for fields, message in [
            ({"activation_function": "relu"}, "activation_function: expected gelu_new"),
            ({"n_inner": 50}, "n_inner: expected null or 4 * n_embd with n_embd = 24, got 50"),
            ({"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon: expected 1e-05, got 1e-06"),
            ({"scale_attn_by_inverse_layer_idx": True}, "expected false, got true"),
            ({"add_cross_attention": True}, "add_cross_attention: expected false, got true"),
            ({"tie_word_embeddings": False}, "tie_word_embeddings: expected true, got false"),
        ]:
            with self.subTest(message):
                self.assertIn(message, error(gpt2(**fields)))
        with self.subTest("dtype"):
            self.assertIn("expected Float, got BFloat16", error(gpt2().bfloat16()))
        with self.subTest("vocabulary"):
            gpt2().save_pretrained(self.path("model"))
            config = json.loads((self.folder / "model/config.json").read_text())
            config["vocab_size"] = 103
            (self.folder / "model/config.json").write_text(json.dumps(config))
            message = self.run_tool(
                "save-gpt2", self.path("model"), "0", self.path("out"), status=1
            )
            self.assertIn("vocab_size is 103 in config.json, but 101 in model.saf", message)
        with self.subTest("shards"):
            gpt2().save_pretrained(self.path("shards"), max_shard_size="30KB")
            message = self.run_tool(
                "save-gpt2", self.path("shards"), "0", self.path("out"), status=1
            )
            self.assertIn("shards (model.safetensors.index.json)", message)
        self.assertFalse((self.folder / "out").exists())


if __name__ == "__main__":
    transformers.logging.disable_progress_bar()
    unittest.main()
