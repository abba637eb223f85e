# SPDX-License-Identifier: MIT
"""The peer of bench_training: the same GPT in idiomatic PyTorch.

bench_training starts this program and exchanges lines with it: each request and each answer is one
JSON object on one line. Requires torch and safetensors.
"""

import json
import sys
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

# Shapes: B batch, T sequence, C = n_embd, nh = n_head, hs = C / nh, V = vocab_size.


class LayerNorm(nn.Module):
    def __init__(self, n_embd):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n_embd))

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, None, 1e-5)


class Attention(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.n_head = n_head
        self.c_attn = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=False)

    def forward(self, x, cache=None):
        B, T, C = x.shape
        q, k, v = (
            part.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)  # (B, nh, T, hs)
            for part in self.c_attn(x).split(C, dim=2)
        )
        if cache is not None:
            k, v = cache.append(k, v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=T > 1)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class MLP(nn.Module):
    def __init__(self, n_embd):
        super().__init__()
        self.c_fc = nn.Linear(n_embd, 4 * n_embd, bias=False)
        self.c_proj = nn.Linear(4 * n_embd, n_embd, bias=False)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.ln_1 = LayerNorm(n_embd)
        self.attn = Attention(n_embd, n_head)
        self.ln_2 = LayerNorm(n_embd)
        self.mlp = MLP(n_embd)

    def forward(self, x, cache=None):
        x = x + self.attn(self.ln_1(x), cache)
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab_size, block_size, n_layer, n_head, n_embd):
        super().__init__()
        self.block_size = block_size
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocab_size, n_embd),
                "wpe": nn.Embedding(block_size, n_embd),
                "h": nn.ModuleList(Block(n_embd, n_head) for _ in range(n_layer)),
                "ln_f": LayerNorm(n_embd),
            }
        )
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight

    def forward(self, idx, targets=None, caches=None, position=0):
        t = self.transformer
        positions = torch.arange(position, position + idx.shape[1])
        x = t["wte"](idx) + t["wpe"](positions)  # (B, T, C)
        for i, block in enumerate(t["h"]):
            x = block(x, None if caches is None else caches[i])
        x = t["ln_f"](x)
        if targets is None:
            return self.lm_head(x[:, [-1], :])  # (B, 1, V)
        logits = self.lm_head(x)  # (B, T, V)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


class Cache:
    """Keys and values of one layer, in buffers allocated once."""

    def __init__(self, model):
        n_head = model.transformer["h"][0].attn.n_head
        n_embd = model.transformer["wte"].weight.shape[1]
        self.k, self.v = torch.empty(2, 1, n_head, model.block_size, n_embd // n_head)
        self.length = 0

    def append(self, k, v):
        end = self.length + k.shape[2]
        self.k[:, :, self.length : end] = k
        self.v[:, :, self.length : end] = v
        self.length = end
        return self.k[:, :, :end], self.v[:, :, :end]


@torch.inference_mode()
def generate(model, idx, new_tokens):
    for _ in range(new_tokens):
        logits = model(idx[:, -model.block_size :])
        idx = torch.cat((idx, logits[:, -1].argmax(-1, keepdim=True)), dim=1)
    return idx


@torch.inference_mode()
def generate_cached(model, idx, new_tokens):
    caches = [Cache(model) for _ in model.transformer["h"]]
    tokens = [idx]
    for position in range(new_tokens):
        logits = model(tokens[-1], caches=caches, position=position)
        tokens.append(logits[:, -1].argmax(-1, keepdim=True))
    return torch.cat(tokens, dim=1)


class Peer:
    def load(self, path, threads, learning_rate, **sizes):
        torch.set_num_threads(threads)
        tensors = load_file(path)
        self.idx, self.targets = tensors.pop("idx"), tensors.pop("targets")  # (N, B, T)
        self.model = GPT(**sizes)
        self.model.load_state_dict(tensors)
        self.compiled = torch.compile(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=learning_rate)
        return {"version": torch.__version__}

    def train(self, steps, compiled):
        model = self.compiled if compiled else self.model
        losses = []
        start = time.perf_counter()
        for step in range(steps):
            batch = step % len(self.idx)
            self.optimizer.zero_grad(set_to_none=True)
            loss = model(self.idx[batch], self.targets[batch])
            loss.backward()
            self.optimizer.step()
            losses.append(loss.detach())
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "losses": [loss.item() for loss in losses]}

    def generate(self, new_tokens, cached):
        prompt = self.idx[:1, 0, :1]  # (1, 1)
        start = time.perf_counter()
        tokens = (generate_cached if cached else generate)(self.model, prompt, new_tokens)
        return {"seconds": time.perf_counter() - start, "tokens": tokens[0].tolist()}


def main():
    peer = Peer()
    for line in sys.stdin:
        request = json.loads(line)
        answer = getattr(peer, request.pop("command"))(**request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
