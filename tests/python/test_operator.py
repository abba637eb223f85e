# SPDX-License-Identifier: MIT
"""Compares the operator in Python with PyTorch's own attention.

The oracle is PyTorch's math path, which computes the formula step by step. The environment
variable MINI_LIBRARY is the path of the library.
"""
import itertools
import os

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

torch.ops.load_library(os.environ["MINI_LIBRARY"])
attention = torch.ops.mini.scaled_dot_product_attention
forward = torch.ops.mini._attention_forward.default
backward = torch.ops.mini._attention_backward.default

EVERY_CHECK = (
    "test_schema",
    "test_autograd_registration",
    "test_faketensor",
    "test_aot_dispatch_static",
    "test_aot_dispatch_dynamic",
)


def inputs(*leading, tq=9, tk=12, d_k=16, d_v=8, dtype=torch.float32):
    torch.manual_seed(1)
    draw = lambda *shape: torch.randn(*leading, *shape, dtype=dtype, requires_grad=True)
    return draw(tq, d_k), draw(tk, d_k), draw(tk, d_v)


def oracle(q, k, v, mask=None, *, scale=None, causal="none", grouped_queries=False):
    """PyTorch's attention. Causality becomes part of the mask: PyTorch accepts only one of them."""
    if causal != "none":
        tq, tk = q.shape[-2], k.shape[-2]
        seen = torch.ones(tq, tk, dtype=torch.bool).tril(tk - tq if causal == "lower_right" else 0)
        if mask is None:
            mask = seen
        elif mask.dtype == torch.bool:
            mask = mask & seen
        else:
            mask = mask.masked_fill(~seen, float("-inf"))
    with sdpa_kernel(SDPBackend.MATH):
        return sdpa(q, k, v, mask, scale=scale, enable_gqa=grouped_queries)


def agree(actual, expected, with_gradients, rtol=1e-4, atol=1e-5):
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)
    upstream = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(actual, with_gradients, upstream),
        torch.autograd.grad(expected, with_gradients, upstream),
        rtol=rtol,
        atol=atol,
    )


def masks(*leading, tq=9, tk=12):
    """Masks of each kind and of each shape that broadcasts to the scores (*leading, tq, tk)."""
    torch.manual_seed(2)
    shapes = [(tq, tk), (1, tk), (tq, 1), (1, 1), (*leading, tq, tk)]
    if len(leading) == 2:
        shapes += [(leading[0], 1, 1, tk), (1, leading[1], tq, 1)]
    for shape in shapes:
        keep = torch.rand(shape) < 0.6  # some rows see no key
        yield keep
        yield torch.randn(shape)
        yield torch.randn(shape).masked_fill(~keep, float("-inf"))
        yield torch.randn(shape, dtype=torch.float64)


def test_masks_and_causal_forms():
    for leading in [(), (3,), (2, 4)]:
        for causal in ("none", "upper_left", "lower_right"):
            for mask in (None, *masks(*leading)):
                q, k, v = qkv = inputs(*leading)
                in_float32 = mask.float() if mask is not None and mask.is_floating_point() else mask
                agree(
                    attention(q, k, v, mask, causal=causal),
                    oracle(q, k, v, in_float32, causal=causal),
                    qkv,
                )


def test_causal_forms_between_unequal_lengths():
    for tq, tk in [(1, 1), (1, 7), (7, 1), (5, 9), (9, 5), (8, 8), (130, 70), (70, 130)]:
        q, k, v = qkv = inputs(2, tq=tq, tk=tk)
        for causal in ("upper_left", "lower_right"):
            agree(attention(q, k, v, causal=causal), oracle(q, k, v, causal=causal), qkv)
        if tq == tk:
            agree(attention(q, k, v, causal="upper_left"), sdpa(q, k, v, is_causal=True), qkv)


def test_scale():
    for scale in (1.0, 0.5, -0.3, 0.0):
        q, k, v = qkv = inputs(2, 3)
        agree(attention(q, k, v, scale=scale), oracle(q, k, v, scale=scale), qkv)


def test_grouped_queries():
    for key_heads in (1, 2, 4):
        q, k, v = qkv = inputs(2, 4)
        shared = (q, k[:, :key_heads], v[:, :key_heads])
        for causal, mask in itertools.product(("none", "lower_right"), (None, *masks(2, 4))):
            if mask is not None and mask.dtype == torch.float64:
                continue
            options = {"causal": causal, "grouped_queries": True}
            agree(attention(*shared, mask, **options), oracle(*shared, mask, **options), qkv)


def test_gradients_of_a_mask():
    for shape in [(9, 12), (1, 12), (2, 1, 9, 1)]:
        q, k, v = qkv = inputs(2, 4)
        mask = torch.randn(shape, requires_grad=True)
        agree(
            attention(q, k, v, mask, causal="lower_right"),
            oracle(q, k, v, mask, causal="lower_right"),
            (*qkv, mask),
        )


def test_dtypes():
    for dtype, tolerance in [(torch.float64, 1e-9), (torch.bfloat16, 3e-2), (torch.float16, 4e-3)]:
        q, k, v = qkv = inputs(2, 3, dtype=dtype)
        agree(attention(q, k, v), oracle(q, k, v), qkv, rtol=tolerance, atol=tolerance)


def test_autocast():
    q, k, v = qkv = inputs(2, 3)
    mask = torch.randn(9, 12)
    for dtype in (torch.bfloat16, torch.float16):
        expected = attention(q.to(dtype), k.to(dtype), v.to(dtype), mask)
        with torch.autocast("cpu", dtype):
            assert sdpa(q, k, v).dtype == dtype
            actual = attention(q, k.to(dtype), v, mask)
            assert attention(*(t.double() for t in qkv)).dtype == torch.float64
        assert torch.equal(actual, expected)
        for gradient in torch.autograd.grad(actual.sum(), qkv):
            assert gradient.dtype == torch.float32

    @torch.compile(fullgraph=True, backend="aot_eager")
    def layer(q, k, v):
        with torch.autocast("cpu", torch.bfloat16):
            return attention(q, k, v, mask)

    agree(layer(q, k, v), attention(*(t.bfloat16() for t in qkv), mask), qkv)


def test_second_order():
    q, k, v = inputs(2, tq=3, tk=4, d_k=2, d_v=2, dtype=torch.float64)
    torch.autograd.gradcheck(attention, (q, k, v))
    torch.autograd.gradgradcheck(attention, (q, k, v))

    def penalty(attend):
        q, k, v = qkv = inputs(2)
        gradients = torch.autograd.grad(attend(q, k, v).square().sum(), qkv, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in gradients), qkv)

    torch.testing.assert_close(penalty(attention), penalty(oracle), rtol=1e-3, atol=1e-3)


def test_errors_are_exceptions():
    q, k, v = inputs(2)
    mask = torch.ones(9, 12, dtype=torch.bool)
    for bad, message in [
        (lambda: attention(q, k[..., :8], v),
         "q and k must share head_size d_k, got q [2, 9, 16] and k [2, 12, 8]"),
        (lambda: attention(q, k[:, :5], v), "must share their length Tk, got k [2, 5, 16] and v ["),
        (lambda: attention(q[:1], k, v),
         "(they are not broadcast), got q [1, 9, 16] and k [2, 12, 16]"),
        (lambda: attention(q[0], k, v), "the same number of dimensions, at least 2, got q [9, 16]"),
        (lambda: attention(q[0, 0], k[0, 0], v[0, 0]), "at least 2, got q [16]"),
        (lambda: attention(q, k.double(), v), "share a dtype, got q Float, k Double, v Float"),
        (lambda: attention(q.long(), k.long(), v.long()),
         "expected float32, float64, bfloat16 or float16, got Long"),
        (lambda: attention(q, k.to("meta"), v), "be on one device, got q cpu, k meta, v cpu"),
        (lambda: attention(q, k, v, mask[:, 1:]), "broadcasts to the scores [2, 9, 12], got [9, 11"),
        (lambda: attention(q, k, v, mask[None, None]), "expected a mask of at most two dimensions"),
        (lambda: attention(q, k, v, mask.int()), "mask of bool (true = may attend) or of a floating"),
        (lambda: attention(q, k, v, mask.to("meta")), "on the device of q, got meta and q cpu"),
        (lambda: attention(q, k, v, scale=float("nan")), "expected a finite scale, got nan"),
        (lambda: attention(q[..., :0], k[..., :0], v), "scale 1 / sqrt(d_k) is undefined for d_k = 0"),
        (lambda: attention(q, k, v, causal="sideways"),
         'expected causal "none", "upper_left" or "lower_right", got "sideways"'),
        (lambda: attention(q[:, None].expand(2, 3, 9, 16), k[:, None].expand(2, 2, 12, 16),
                           v[:, None].expand(2, 2, 12, 8), grouped_queries=True),
         "the heads of q must be a multiple of those of k and v, got 3 and 2"),
    ]:  # fmt: skip
        try:
            bad()
        except RuntimeError as error:
            assert str(error).startswith("scaled_dot_product_attention: "), str(error)
            assert message in str(error), (message, str(error))
        else:
            raise AssertionError(f"no error that says: {message}")


def test_opcheck():
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        for leading in [(), (2,), (2, 3)]:
            args = inputs(*leading, dtype=dtype)
            torch.library.opcheck(attention.default, args, test_utils=EVERY_CHECK)
            if dtype != torch.float64:  # the private operators do not support float64
                private = (*args, None, None, 0, False)
                torch.library.opcheck(forward, private, test_utils=EVERY_CHECK)
    packed = torch.randn(2, 9, 3, 4, 16).permute(2, 0, 3, 1, 4)
    torch.library.opcheck(attention.default, packed.unbind(0), test_utils=EVERY_CHECK)

    q, k, v = (t.detach() for t in inputs(2, 3))
    output, softmax_stats, exact_output = forward(q, k, v, None, None, 0, False)
    assert exact_output.numel() == 0  # only half types keep it
    saved = (torch.randn_like(output), q, k, v, output, softmax_stats, None, None, 0, False)
    torch.library.opcheck(backward, saved, test_utils=EVERY_CHECK)


def test_opcheck_of_every_option():
    args = inputs(2, 4)
    q, k, v = args
    keep = torch.rand(9, 12) < 0.8
    bias = torch.randn(4, 9, 12)[None]
    for arguments, options in [
        ((*args, keep), {}),
        ((*args, bias), {"causal": "lower_right"}),
        ((*args, bias.clone().requires_grad_()), {"causal": "upper_left"}),
        (args, {"scale": 0.5}),
        (args, {"causal": "upper_left"}),
        ((q, k[:, :2], v[:, :2]), {"grouped_queries": True}),
        (tuple(t.double() for t in (q, k[:, :2], v[:, :2])),
         {"grouped_queries": True, "causal": "lower_right"}),
    ]:  # fmt: skip
        leaves = [t.detach().requires_grad_(t.requires_grad) for t in arguments]
        torch.library.opcheck(attention.default, leaves, options, test_utils=EVERY_CHECK)


def compiled_agrees(function, draws, dynamic, backend="aot_eager"):
    """Checks that `function`, compiled as one graph, agrees with itself on each of `draws`.

    If `dynamic`, it is compiled at most twice.
    """
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic, backend=backend)
    for tensors in draws:
        with_gradients = [t for t in tensors if t.requires_grad]
        agree(compiled(*tensors), function(*tensors), with_gradients)
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert graphs <= (2 if dynamic else len(draws)), graphs


def with_mask(tq, kind):
    q, k, v = inputs(2, 3, tq=tq)
    mask = torch.rand(tq, 12) < 0.7 if kind == "bool" else torch.randn(tq, 12)
    return q, k, v, mask.requires_grad_(kind == "with gradient")


def test_compile():
    for dynamic in (False, True):
        compiled_agrees(
            lambda q, k, v: attention(q * 2, k, v, causal="lower_right") + 1,
            [inputs(2, 3, tq=tq) for tq in (5, 9, 17)],
            dynamic,
        )
        compiled_agrees(
            lambda q, k, v: attention(q, k[:, :1], v[:, :1], scale=0.5, grouped_queries=True),
            [inputs(2, 3, tq=tq) for tq in (5, 9, 17)],
            dynamic,
        )
        compiled_agrees(
            lambda q, k, v: attention(q, k, v, causal="lower_right").float(),
            [inputs(2, tq=tq, dtype=torch.float64) for tq in (5, 9, 17)],
            dynamic,
        )
        for kind in ("bool", "float", "with gradient"):
            compiled_agrees(
                lambda q, k, v, mask: attention(q, k, v, mask, causal="lower_right"),
                [with_mask(tq, kind) for tq in (5, 9, 17)],
                dynamic,
            )


def test_compile_with_the_default_backend():
    if " " in torch.__file__:
        print("skipped: PyTorch's compiler cannot link against a torch in a folder with a space:")
        return
    compiled_agrees(
        lambda q, k, v: attention(q * 2, k, v, causal="lower_right") + 1,
        [inputs(2, 3, tq=tq) for tq in (5, 9)],
        dynamic=True,
        backend="inductor",
    )


def test_errors_of_a_compiled_function():
    q, k, v = inputs(2)
    compiled = torch.compile(attention, fullgraph=True, backend="aot_eager")
    try:
        compiled(q, k[..., :8], v)
    except Exception as error:
        assert "q and k must share head_size d_k" in str(error), str(error)
    else:
        raise AssertionError("no error")


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(name, "passed", flush=True)
