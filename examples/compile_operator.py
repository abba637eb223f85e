import sys

import torch

torch.ops.load_library(sys.argv[1])  # libmini_transformer.so


def layer(q, k, v):
    return torch.ops.mini.scaled_dot_product_attention(q, k, v, causal="lower_right").relu()


compiled = torch.compile(layer, fullgraph=True, dynamic=True)
for length in (16, 50):
    inputs = [torch.randn(2, 4, length, 32, requires_grad=True) for _ in range(3)]  # (B, nh, T, hs)
    torch.testing.assert_close(compiled(*inputs), layer(*inputs))
    compiled(*inputs).sum().backward()
    print(f"T = {length}: the same output, gradients {list(inputs[0].grad.shape)}")
