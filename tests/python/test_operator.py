# SPDX-License-Identifier: MIT
"""The operator in Python beside PyTorch's own attention.  usage: test_operator.py LIBRARY"""
import sys

import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

torch.ops.load_library(sys.argv[1])
attention = torch.ops.mini.scaled_dot_product_attention


def inputs(*leading, tq=9, tk=12, d_k=16, d_v=8, grad=True):
    torch.manual_seed(1)
    draw = lambda *shape: torch.randn(*leading, *shape, requires_grad=grad)
    return draw(tq, d_k), draw(tk, d_k), draw(tk, d_v)


def agree(actual, expected, qkv):
    upstream = torch.randn_like(expected)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        torch.autograd.grad(actual, qkv, upstream),
        torch.autograd.grad(expected, qkv, upstream),
        rtol=1e-4,
        atol=1e-5,
    )


def test_values_and_gradients():
    keep = torch.rand(9, 12) < 0.6
    keep[:, 0] = True  # PyTorch makes NaN of a row that sees nothing
    for leading in [(), (3,), (2, 4)]:
        q, k, v = qkv = inputs(*leading)
        agree(attention(q, k, v), sdpa(q, k, v), qkv)
        agree(attention(q, k, v, scale=0.5), sdpa(q, k, v, scale=0.5), qkv)
        agree(attention(q, k, v, keep), sdpa(q, k, v, keep), qkv)
        agree(attention(q, k, v, causal="upper_left"), sdpa(q, k, v, is_causal=True), qkv)
        lower_right = torch.ones(9, 12, dtype=torch.bool).tril(3)
        agree(attention(q, k, v, causal="lower_right"), sdpa(q, k, v, lower_right), qkv)
    q, k, v = inputs(2, 4)
    shared = (q, k[:, :2], v[:, :2])
    agree(attention(*shared, grouped_queries=True), sdpa(*shared, enable_gqa=True), (q, k, v))


def test_errors_are_exceptions():
    q, k, v = inputs(2)
    for bad, fragment in [
        (lambda: attention(q, k[..., :8], v), "d_k"),
        (lambda: attention(q, k.double(), v), "dtype"),
        (lambda: attention(q.long(), k.long(), v.long()), "float32"),
        (lambda: attention(q, k.to("meta"), v), "device"),
        (lambda: attention(q, k, v, causal="sideways"), "sideways"),
    ]:
        try:
            bad()
        except Exception as error:
            assert fragment in str(error), (fragment, str(error))
        else:
            raise AssertionError(f"no error that speaks of {fragment}")


def test_opcheck():
    forward = torch.ops.mini._attention_forward.default
    for dtype in (torch.float32, torch.bfloat16):
        for leading in [(), (2,), (2, 3)]:
            q, k, v = (t.detach().to(dtype).requires_grad_() for t in inputs(*leading))
            torch.library.opcheck(forward, (q, k, v, None, None, 0, False))
            torch.library.opcheck(attention.default, (q, k, v))
    packed = torch.randn(2, 9, 3, 4, 16).permute(2, 0, 3, 1, 4)
    torch.library.opcheck(attention.default, tuple(packed.unbind(0)))


def test_compile():
    compiled = torch.compile(
        lambda q, k, v: attention(q * 2, k, v, causal="lower_right") + 1,
        fullgraph=True,
        dynamic=True,
        backend="aot_eager",
    )
    torch._dynamo.reset()
    counter = torch._dynamo.utils.counters
    for tq in (5, 9, 17):
        q, k, v = qkv = inputs(2, 3, tq=tq)
        agree(compiled(q, k, v), attention(q * 2, k, v, causal="lower_right") + 1, qkv)
    assert counter["stats"]["unique_graphs"] <= 2, counter["stats"]


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(name, "passed")
