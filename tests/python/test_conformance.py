# SPDX-License-Identifier: MIT
"""Checks the operator in Python against the contract of attention, point by point.

The points are the rows of docs/conformance.md in which the column "operator" says yes. The oracle
is the formula in float64. The environment variable MINI_LIBRARY is the path of the library.
"""
import math
import os
import pathlib

import torch

torch.ops.load_library(os.environ["MINI_LIBRARY"])
attention = torch.ops.mini.scaled_dot_product_attention

INF, NAN = math.inf, math.nan
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "conformance.md"
CHECKS = {}


def point(rule):
    def register(check):
        CHECKS[rule] = check
        return check

    return register


def draw(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=torch.float64).to(dtype)


def inputs(*leading, tq=5, tk=5, d_k=8, d_v=8, dtype=torch.float32):
    return [draw(*leading, n, d, dtype=dtype) for n, d in ((tq, d_k), (tk, d_k), (tk, d_v))]


def formula(q, k, v, mask=None, *, scale=None, causal="none", grouped_queries=False):
    q, k, v = q.double(), k.double(), v.double()
    if grouped_queries:
        group = q.shape[-3] // k.shape[-3]
        k, v = k.repeat_interleave(group, -3), v.repeat_interleave(group, -3)
    scores = q @ k.mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    tq, tk = scores.shape[-2:]
    visible = torch.ones(tq, tk, dtype=torch.bool)
    if causal != "none":
        visible = visible.tril(tk - tq if causal == "lower_right" else 0)
    if mask is not None and mask.dtype == torch.bool:
        visible = visible & mask
    elif mask is not None:
        visible = visible & (mask != -INF)
        scores = scores + mask.double().masked_fill(mask == -INF, 0)
    visible = visible.expand(scores.shape)
    nothing = ~visible.any(-1, keepdim=True)
    weights = scores.masked_fill(~visible, -INF).masked_fill(nothing, 0).softmax(-1)
    return weights.masked_fill(nothing, 0) @ v


def agrees(tensors, *args, gradients=True, **options):
    tensors = [t.detach().requires_grad_(gradients) for t in tensors]
    tight = tensors[0].dtype in (torch.float32, torch.float64)
    actual, expected = attention(*tensors, *args, **options), formula(*tensors, *args, **options)
    rtol, atol = (1e-5, 2e-6) if tight else (torch.finfo(actual.dtype).eps, 1e-5)
    assert actual.dtype == tensors[0].dtype
    torch.testing.assert_close(actual.double(), expected, rtol=rtol, atol=atol)
    if gradients and tight:
        upstream = draw(*actual.shape)
        for got, wanted in zip(
            torch.autograd.grad(actual, tensors, upstream.to(actual.dtype)),
            torch.autograd.grad(expected, tensors, upstream.double()),
        ):
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=2e-5)


def same(actual, expected):
    torch.testing.assert_close(
        actual, torch.as_tensor(expected, dtype=actual.dtype).expand_as(actual), rtol=0, atol=0,
        equal_nan=True,
    )  # fmt: skip


def refuses(*args, **options):
    try:
        attention(*args, **options)
    except RuntimeError:
        return
    raise AssertionError("no error")


def column(*values):
    return torch.tensor(values, dtype=torch.float32).view(1, -1, 1)


def keep(*shape):
    mask = draw(*shape) > -0.4
    mask[..., 0] = True
    return mask


def one_row_hidden():
    return torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 1]], dtype=torch.bool)


def as_float(mask):
    return draw(*mask.shape).masked_fill(~mask, -INF)


# ---- Values and shapes


@point("softmax(q kᵀ / √d_k) v")
def _():
    x, v = torch.tensor([[[1.0, 0], [0, 1], [1, 1]]]), torch.tensor([[[1.0, 2], [3, 4], [5, 6]]])
    expected = torch.tensor([3.51046953, 4.51046953])
    torch.testing.assert_close(attention(x, x, v)[0, 2], expected, rtol=1e-6, atol=1e-6)


@point("any T and head size")
def _():
    for size in (1, 2, 7, 17, 65):
        for d in (1, 3, 8, 33):
            agrees(inputs(2, tq=size, tk=size, d_k=d, d_v=d))


point("q, k, v (T, d)")(lambda: agrees(inputs()))
point("q, k, v (B, T, d)")(lambda: agrees(inputs(2)))
point("q, k, v (B, nh, T, d)")(lambda: agrees(inputs(2, 2)))
point("q, k, v of five dimensions")(lambda: agrees(inputs(2, 2, 2)))


@point("Tq ≠ Tk")
def _():
    for tq, tk in ((1, 9), (3, 70), (66, 5)):
        agrees(inputs(2, tq=tq, tk=tk))


@point("d_v ≠ d_k")
def _():
    agrees(inputs(2, d_v=3))
    agrees(inputs(2, d_k=3, d_v=20))


@point("any strides, of upstream gradients too")
def _():
    q, k, v = draw(2, 6, 6).mT, draw(6, 6).expand(2, 6, 6), draw(2, 6, 12)[..., ::2]
    agrees((q, k, v))
    leaf = q.detach().requires_grad_()
    attention(leaf, k, v).sum().backward()
    expected = q.double().requires_grad_()
    formula(expected, k, v).sum().backward()
    torch.testing.assert_close(leaf.grad.double(), expected.grad, rtol=1e-4, atol=2e-5)


@point("B = 0 or T = 0")
def _():
    assert attention(*inputs(0)).shape == (0, 5, 8)
    assert attention(*inputs(2, tq=0, tk=0)).shape == (2, 0, 8)


@point("Tk = 0 or Tq = 0")
def _():
    same(attention(*inputs(2, tk=0)), torch.zeros(2, 5, 8))
    assert attention(*inputs(2, tq=0)).shape == (2, 0, 8)


@point("inputs and thread count are unchanged, the output is new memory")
def _():
    tensors, threads = inputs(2), torch.get_num_threads()
    copies = [t.clone() for t in tensors]
    same(attention(*tensors), attention(*tensors))
    attention(*tensors).zero_()
    assert all(map(torch.equal, tensors, copies)) and torch.get_num_threads() == threads


# ---- Scale and masks


@point("scale 1, 0, negative")
def _():
    for scale in (1.0, 0.0, 0.5, -0.3):
        agrees(inputs(2), scale=scale)


@point("scale NaN or infinite")
def _():
    for scale in (NAN, INF, -INF):
        refuses(*inputs(2), scale=scale)


point("bool mask: true = may attend")(lambda: agrees(inputs(2), keep(5, 5)))


@point("float mask, -infinity hides")
def _():
    agrees(inputs(2), draw(5, 5))
    agrees(inputs(2), as_float(keep(5, 5)))


@point("mask broadcasts from size 1 and fewer dimensions")
def _():
    for shape in [(5,), (1, 5), (5, 1), (1, 1), (2, 1, 5), (1, 5, 5)]:
        agrees(inputs(2), keep(*shape))
        agrees(inputs(2), draw(*shape))


@point("float mask of another dtype")
def _():
    mask = draw(5, 5, dtype=torch.bfloat16)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        agrees(inputs(2), mask.to(dtype))


@point("the lowest float32 in a mask does not hide")
def _():
    q, k, v = inputs(2)
    output = attention(q, k, v, torch.full((5, 5), torch.finfo(torch.float32).min))
    torch.testing.assert_close(output, v.mean(1, keepdim=True).expand_as(output))


@point("gradient of a mask, alone")
def _():
    for shape in [(5, 5), (1, 5), (2, 1, 5)]:
        q, k, v = inputs(2)
        mask, expected = [draw(*shape).requires_grad_()], None
        upstream = draw(2, 5, 8)
        got = torch.autograd.grad(attention(q, k, v, *mask), mask, upstream)[0]
        expected = torch.autograd.grad(formula(q, k, v, *mask), mask, upstream.double())[0]
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=2e-5)


@point("mask of a wrong shape or of integers")
def _():
    refuses(*inputs(2), torch.ones(4, 5, dtype=torch.bool))
    refuses(*inputs(2), torch.ones(5, 5, dtype=torch.long))


@point("mask of three dimensions for q of four")
def _():
    refuses(*inputs(2, 2), torch.ones(2, 5, 5, dtype=torch.bool))


# ---- Causality and hidden keys


@point("causal, Tq = Tk")
def _():
    for causal in ("upper_left", "lower_right"):
        agrees(inputs(2), causal=causal)
        agrees(inputs(2, tq=66, tk=66), causal=causal)


def unequal(causal):
    for tq, tk in ((2, 5), (5, 2), (3, 70), (70, 33)):
        agrees(inputs(2, tq=tq, tk=tk), causal=causal)


point("causal upper left, Tq ≠ Tk")(lambda: unequal("upper_left"))
point("causal lower right, Tq ≠ Tk")(lambda: unequal("lower_right"))


@point("causal with a mask")
def _():
    for causal in ("upper_left", "lower_right"):
        agrees(inputs(2), keep(5, 5), causal=causal)
        agrees(inputs(2), draw(5, 5), causal=causal)


def empty_row(mask):
    tensors = inputs(2, tq=3, tk=3)
    same(attention(*tensors, mask)[:, 1], 0.0)
    agrees(tensors, mask)


point("a query that sees no key, bool mask")(lambda: empty_row(one_row_hidden()))
point("a query that sees no key, float mask")(lambda: empty_row(as_float(one_row_hidden())))


@point("gradients with a query that sees no key")
def _():
    q, k, v = (t.requires_grad_() for t in inputs(2, tq=3, tk=3))
    gradients = torch.autograd.grad(attention(q, k, v, one_row_hidden()).sum(), (q, k, v))
    same(gradients[0][:, 1], 0.0)
    agrees((q, k, v), one_row_hidden())


@point("queries that see no key by causality")
def _():
    tensors = inputs(2, tk=2)
    same(attention(*tensors, causal="lower_right")[:, :3], 0.0)
    agrees(tensors, causal="lower_right")


@point("a hidden key has weight 0, however large its score")
def _():
    mask = torch.tensor([[True, False], [True, False]])
    for m in (mask, torch.zeros(2, 2).masked_fill(~mask, -INF)):
        same(attention(column(1e5, 1e5), column(-1e5, 1e5), column(1, 2), m), 1.0)


@point("NaN or infinity in a hidden key")
def _():
    q, k, v = inputs(2)
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[:, 2] = False
    for value in (NAN, INF):
        k[:, 2] = value
        finite = k.clone()
        finite[:, 2] = 0
        same(attention(q, k, v, mask), attention(q, finite, v, mask))


@point("NaN in a visible key")
def _():
    q, k, v = inputs(2)
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[:2, 2] = False
    k[:, 2] = NAN
    nan = attention(q, k, v, mask).isnan()
    assert not nan[:, :2].any() and nan[:, 2:].all()


point("infinite scores")(lambda: same(attention(column(-INF), column(1, 2), column(1, 3)), NAN))


@point("+infinity in a mask")
def _():
    output = attention(*inputs(1, tq=2, tk=2), torch.tensor([[0.0, INF], [0, 0]]))
    assert output[0, 0].isnan().all() and not output[0, 1].isnan().any()


@point("scores of ±50,000")
def _():
    for factor in (100, 250):
        for sign in (-1, 1):
            keys = column(sign * 200, sign * 201)
            agrees((column(factor, factor), keys, column(1, 2)))


@point("digits of large scores")
def _():
    for size in (32.0, 256.0, 1024.0):
        q, k = torch.tensor([[[size, 1]]]), torch.tensor([[[size, 0], [size, -1]]])
        output = attention(q, k, column(0, 1), scale=1.0)
        torch.testing.assert_close(output.item(), 0.2689414213699951, rtol=1e-6, atol=0)


# ---- Dtypes and errors


@point("output in the dtype and on the device of q")
def _():
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        assert attention(*inputs(2, dtype=dtype)).dtype == dtype


def dtype_agrees(dtype):
    agrees(inputs(2, dtype=dtype))
    agrees(inputs(2, tq=130, tk=130, d_k=33, d_v=33, dtype=dtype))
    q, k, v = inputs(2, tq=9, tk=9, d_k=16, d_v=16, dtype=dtype)
    agrees((q, k, v + 10))


point("float64")(lambda: dtype_agrees(torch.float64))
point("bfloat16, computed in float32")(lambda: dtype_agrees(torch.bfloat16))
point("float16, computed in float32")(lambda: dtype_agrees(torch.float16))
point("integers")(lambda: refuses(*[torch.ones(2, 5, 8, dtype=torch.long)] * 3))


@point("q, k, v of different dtypes")
def _():
    q, k, v = inputs(2)
    refuses(q, k.double(), v)
    refuses(q, k, v.bfloat16())


@point("wrong shapes, an undefined tensor")
def _():
    q, k, v = inputs(2)
    refuses(q, k[..., :7], v)
    refuses(q, k, v[:, :4])
    refuses(q[0, 0], k[0, 0], v[0, 0])
    refuses(q, None, v)


@point("leading dimensions are not broadcast")
def _():
    q, k, v = inputs(2)
    refuses(q[:1], k, v)
    refuses(q, k[:1], v[:1])


@point("q, k, v on different devices")
def _():
    q, k, v = inputs(2)
    refuses(q, k.to("meta"), v)


point("d_k = 0 without a scale")(lambda: refuses(*inputs(2, d_k=0)))


# ---- Gradients and grouped queries


@point("gradients of q, k, v")
def _():
    agrees(inputs(2))
    agrees(inputs(2, tq=65, tk=65, d_k=7, d_v=7))


@point("gradient of one input alone")
def _():
    for i in range(3):
        tensors = inputs(2)
        tensors[i].requires_grad_()
        upstream = draw(2, 5, 8)
        got = torch.autograd.grad(attention(*tensors), tensors[i], upstream)[0]
        expected = torch.autograd.grad(formula(*tensors), tensors[i], upstream.double())[0]
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=2e-5)


@point("one key: dq and dk are 0")
def _():
    q, k, v = inputs(2, tq=9, tk=1)
    q, k = q.requires_grad_(), (k * 100).requires_grad_()
    for gradient in torch.autograd.grad(attention(q, k, v), (q, k), draw(2, 9, 8)):
        same(gradient, 0.0)


@point("second-order gradients")
def _():
    def second(attend):
        torch.manual_seed(5)
        leaves = [t.requires_grad_() for t in inputs(1, tq=3, tk=3, d_k=2, d_v=2)]
        upstream, direction = draw(1, 3, 2), draw(1, 3, 2)
        output = attend(*leaves)
        dq = torch.autograd.grad(output, leaves[0], upstream.to(output.dtype), create_graph=True)[0]
        return torch.autograd.grad(dq, leaves, direction)

    torch.testing.assert_close(second(attention), second(formula), rtol=1e-4, atol=1e-5)


@point("grouped queries")
def _():
    for heads in (1, 2, 4):
        q, k, v = inputs(2, 4)
        agrees((q, k[:, :heads], v[:, :heads]), grouped_queries=True)


@point("query heads not a multiple of key/value heads")
def _():
    q, k, v = inputs(2, 4)
    refuses(q, k[:, :3], v[:, :3], grouped_queries=True)


if __name__ == "__main__":
    rows = [line.split("|")[1:-1] for line in PAGE.read_text().splitlines() if line.startswith("|")]
    operator = [cell.strip() for cell in rows[0]].index("operator")
    offered = [row[0].strip() for row in rows[2:] if row[operator].strip() != "-"]
    assert offered == list(CHECKS), set(offered) ^ set(CHECKS) or "another order"
    for rule, check in CHECKS.items():
        torch.manual_seed(1)
        try:
            check()
        except Exception:
            print("failed:", rule, flush=True)
            raise
    print(len(CHECKS), "points passed")
