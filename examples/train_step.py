import statistics
import sys
import time

import torch
from torch.nn.functional import scaled_dot_product_attention

torch.ops.load_library(sys.argv[1])  # libmini_transformer.so


def mini_attention(q, k, v):
    return torch.ops.mini.scaled_dot_product_attention(q, k, v, causal="lower_right")


def torch_attention(q, k, v):
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def train_step(attention):
    """The seconds that one step takes, and the weight after it."""
    torch.manual_seed(42)
    x, target = torch.randn(8, 256, 128), torch.randn(8, 4, 256, 32)  # (B, T, C), (B, nh, T, hs)
    layer = torch.nn.Linear(128, 3 * 128)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    start = time.perf_counter()
    q, k, v = layer(x).view(8, 256, 3, 4, 32).permute(2, 0, 3, 1, 4)  # each (B, nh, T, hs)
    loss = (attention(q, k, v) - target).square().mean()
    loss.backward()
    optimizer.step()
    return time.perf_counter() - start, layer.weight.detach()


steps = [(train_step(torch_attention), train_step(mini_attention)) for _ in range(30)]
for (_, expected), (_, weight) in steps:
    torch.testing.assert_close(weight, expected)
ratio = statistics.median(theirs for (theirs, _), _ in steps) / statistics.median(
    ours for _, (ours, _) in steps
)
print(f"the same weights after the step; PyTorch's time / ours: {ratio:.2f}")
