"""Norms have the gradients of jitnorm's functions wherever torch differentiates; other ops raise an error."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import jitnorm
import jitnorm.torch

ROWS, SIZE, EPS = 6, 64, 1e-6
Norm = Callable[..., Any]


def leaf(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype).requires_grad_()


def add(x: Any, residual: Any, weight: Any) -> tuple[Any, Any]:
    return jitnorm.add_rmsnorm(x, residual, weight, EPS)


def add_in_place(x: Any, residual: Any, weight: Any) -> tuple[Any, Any]:
    x, residual = x * 1, residual * 1
    jitnorm.fused_add_rmsnorm(x, residual, weight, EPS)
    return x, residual


def rms(h: Any, weight: Any) -> Any:
    return h * torch.rsqrt(h.square().mean(-1, keepdim=True) + EPS) * weight


def rms_of_sum(x: Any, residual: Any, weight: Any) -> tuple[Any, Any]:
    return rms(x + residual, weight), x + residual


def plain_layernorm(x: Any, gamma: Any, beta: Any) -> Any:
    return torch.nn.functional.layer_norm(x, (SIZE,), gamma, beta, EPS)


# Of each op: the call, the same in plain torch, and the shapes of its arguments.
OPS: dict[str, tuple[Norm, Norm, tuple[tuple[int, ...], ...]]] = {
    "rmsnorm": (lambda x, w: jitnorm.rmsnorm(x, w, EPS), rms, ((ROWS, SIZE), (SIZE,))),
    "gemma_rmsnorm": (
        lambda x, w: jitnorm.gemma_rmsnorm(x, w, EPS), lambda x, w: rms(x, w + 1), ((ROWS, SIZE), (SIZE,))
    ),
    "rmsnorm_bias": (
        lambda x, w, b: jitnorm.rmsnorm_bias(x, w, b, EPS), lambda x, w, b: rms(x, w) + b,
        ((ROWS, SIZE), (SIZE,), (SIZE,)),
    ),
    "layernorm": (
        lambda x, w, b: jitnorm.layernorm(x, w, b, EPS), plain_layernorm, ((ROWS, SIZE), (SIZE,), (SIZE,))
    ),
    "add_rmsnorm": (add, rms_of_sum, ((ROWS, SIZE), (ROWS, SIZE), (SIZE,))),
    "fused_add_rmsnorm": (add_in_place, rms_of_sum, ((ROWS, SIZE), (ROWS, SIZE), (SIZE,))),
    "qk_rmsnorm": (
        lambda q, k, a, b: jitnorm.qk_rmsnorm(q, k, a, b, EPS), lambda q, k, a, b: (rms(q, a), rms(k, b)),
        ((3, 4, SIZE), (3, 2, SIZE), (SIZE,), (SIZE,)),
    ),
}  # fmt: skip


class Operators(TorchDispatchMode):
    """Records the names of the operators that torch calls."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


def scalar(results: Any) -> Any:
    """A number that depends on each result in a different way."""
    parts = results if isinstance(results, tuple) else (results,)
    return sum((part.double() * (i + 1)).cos().sum() for i, part in enumerate(parts))


def gradients(function: Norm, leaves: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(scalar(function(*leaves)), leaves)


@pytest.mark.parametrize("name", OPS)
def test_gradients_are_those_of_float64(name: str) -> None:
    function, plain, shapes = OPS[name]
    leaves = [leaf(*shape, seed=i) for i, shape in enumerate(shapes)]
    exact = gradients(plain, [each.detach().double().requires_grad_() for each in leaves])
    for found, expected in zip(gradients(function, leaves), exact, strict=True):
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["rmsnorm", "add_rmsnorm", "qk_rmsnorm"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_gradients_have_the_dtype_of_their_tensor_and_its_accuracy(name: str, dtype: torch.dtype) -> None:
    function, plain, shapes = OPS[name]
    leaves = [leaf(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)]
    exact = gradients(plain, [each.detach().double().requires_grad_() for each in leaves])
    for found, expected, own in zip(gradients(function, leaves), exact, leaves, strict=True):
        assert found.dtype == own.dtype
        torch.testing.assert_close(found.double(), expected, rtol=0.03, atol=0.1)


def test_rounding_counts_as_the_identity() -> None:
    tensors = [torch.randn(shape, generator=torch.Generator().manual_seed(1)).bfloat16() for shape in ((6, 96), (96,))]

    def of(rounding: str) -> Any:
        x, weight = (tensor.clone().requires_grad_() for tensor in tensors)
        y = jitnorm.rmsnorm(x, weight, rounding=rounding)
        return y, torch.autograd.grad(y.sum(), (x, weight))

    (y, found), (other, expected) = of("hf"), of("once")
    assert not torch.equal(y, other)
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", ["rmsnorm", "fused_add_rmsnorm", "layernorm", "qk_rmsnorm"])
def test_compiled_gradients_have_the_same_bits(name: str, backend: str) -> None:
    function, _, shapes = OPS[name]
    leaves = [leaf(*shape, seed=i) for i, shape in enumerate(shapes)]

    def products(*given: Any) -> Any:  # of which inductor's arithmetic has the bits of eager torch's
        results = function(*given)
        return sum(part.sum() for part in (results if isinstance(results, tuple) else (results,)))

    expected = torch.autograd.grad(products(*leaves), leaves)
    compiled = torch.compile(products, fullgraph=True, backend=backend)
    for found, each in zip(torch.autograd.grad(compiled(*leaves), leaves), expected, strict=True):
        assert torch.equal(found, each)


def test_transforms_of_torch_func_get_the_same_gradients() -> None:
    x, weight = leaf(ROWS, SIZE), leaf(SIZE, seed=1)
    plain = (x.detach(), weight.detach())
    bias = torch.ones(SIZE)
    for norm in (
        jitnorm.rmsnorm,
        lambda x, w: torch.ops.jitnorm.rmsnorm(x, w, EPS),
        lambda x, w: jitnorm.layernorm(x, w, bias),
    ):

        def loss(x: Any, w: Any, norm: Any = norm) -> Any:
            return norm(x, w).square().sum()

        expected = torch.autograd.grad(loss(x, weight), (x, weight))
        found = torch.func.grad(loss, (0, 1))(*plain)
        assert all(map(torch.equal, found, expected))
        rows = torch.func.vmap(torch.func.grad(loss), in_dims=(0, None))(*plain)
        assert torch.equal(rows, expected[0])
        for refused in (torch.func.hessian(loss), lambda *given: torch.func.jvp(loss, given, given)):
            with pytest.raises(TypeError, match=r"^\w+: (requires grad|has a tangent)"):
                refused(*plain)


@pytest.mark.parametrize("name", ["rmsnorm", "layernorm"])
def test_a_checkpoint_computes_again_what_it_needs(name: str) -> None:
    function, _, shapes = OPS[name]
    leaves = [leaf(*shape, seed=i) for i, shape in enumerate(shapes)]
    expected = torch.autograd.grad(function(*leaves).sum(), leaves)
    again = checkpoint(function, *leaves, use_reentrant=False).sum()
    assert all(map(torch.equal, torch.autograd.grad(again, leaves), expected))


def test_layernorm_keeps_its_statistics_where_gradients_are_recorded_and_nowhere_else() -> None:
    x, gamma, beta = leaf(ROWS, SIZE), leaf(SIZE, seed=1), leaf(SIZE, seed=2)
    with Operators() as operators:
        y = torch.ops.jitnorm.layernorm(x, gamma, beta, EPS)
        y.sum().backward()
        with torch.no_grad():
            torch.ops.jitnorm.layernorm(x, gamma, beta, EPS)
    forward, *_, alone = (name for name in operators.names if name.startswith("layernorm"))
    assert (forward, alone) == ("layernorm_with_statistics.default", "layernorm.default")
    _, mean, rstd = jitnorm.layernorm_with_statistics(x.detach(), gamma.detach(), beta.detach(), EPS)
    ones = torch.ones(ROWS, SIZE)
    expected = jitnorm.layernorm_backward(ones, x.detach(), mean, rstd, gamma.detach())
    assert all(map(torch.equal, (x.grad, gamma.grad, beta.grad), expected))
    with pytest.raises(TypeError, match=r"^input: requires grad"):
        jitnorm.layernorm_with_statistics(x, gamma, beta)


def test_what_nothing_depends_on_has_no_gradient_and_costs_none() -> None:
    x, residual, weight = leaf(ROWS, SIZE), leaf(ROWS, SIZE, seed=1), leaf(SIZE, seed=2)
    _, total = jitnorm.add_rmsnorm(x, residual, weight)
    found = torch.autograd.grad(total.sum(), (x, residual, weight), allow_unused=True)
    assert torch.equal(found[0], torch.ones(ROWS, SIZE))
    assert torch.equal(found[1], found[0])
    assert found[2] is None
    q, k = leaf(2, SIZE), leaf(3, SIZE)
    of_q, of_k = torch.autograd.grad(jitnorm.qk_rmsnorm(q, k, weight, weight)[0].sum(), (q, k), allow_unused=True)
    assert of_q.shape == q.shape
    assert of_k is None


@pytest.mark.parametrize("name", OPS)
def test_gradients_of_frozen_parameters_are_not_computed(name: str) -> None:
    function, _, shapes = OPS[name]
    leaves = [leaf(*shape, seed=i) for i, shape in enumerate(shapes)]
    rows, parameters = ([each for each in leaves if (each.dim() == 1) == is_one] for is_one in (False, True))
    expected = gradients(function, leaves)[: len(rows)]
    with Operators() as operators:
        scalar(function(*leaves)).backward()
    assert "sum_rows.default" in operators.names
    frozen = [each.detach() for each in parameters]
    with Operators() as operators:
        found = torch.autograd.grad(scalar(function(*rows, *frozen)), rows)
    assert "sum_rows.default" not in operators.names
    assert all(map(torch.equal, found, expected))
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert all(map(torch.equal, torch.autograd.grad(scalar(compiled(*rows, *frozen)), rows), expected))
    *others, last = leaves[len(rows) :]
    for each, same in zip(others, gradients(function, [*rows, *others, last])[len(rows) :], strict=False):
        only = torch.autograd.grad(scalar(function(*rows, *others, last.detach())), each)[0]
        assert torch.equal(only, same)


def test_writing_in_place_follows_autograd_s_rules() -> None:
    x, residual, weight = leaf(ROWS, SIZE), leaf(ROWS, SIZE, seed=1), leaf(SIZE, seed=2)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        jitnorm.fused_add_rmsnorm(x, residual, weight)
    hidden, kept = x * 1, residual.exp()  # whose backward needs its result
    jitnorm.fused_add_rmsnorm(hidden, kept, weight)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        hidden.sum().backward()
    out = torch.zeros(ROWS, SIZE)
    assert jitnorm.rmsnorm(x, weight, out=out) is out
    (found,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(found, torch.autograd.grad(jitnorm.rmsnorm(x, weight).sum(), x)[0])


def test_gradients_of_gradients_are_refused() -> None:
    x, weight = leaf(ROWS, SIZE), leaf(SIZE, seed=1)
    (found,) = torch.autograd.grad(jitnorm.rmsnorm(x, weight).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        found.sum().backward()


def test_a_batch_of_gradients_that_autograd_computes_at_once_is_refused() -> None:
    x, weight = leaf(ROWS, SIZE), leaf(SIZE, seed=1)
    for norm in (jitnorm.rmsnorm, jitnorm.gemma_rmsnorm):
        with pytest.raises(TypeError, match=r"^grad: is of a batch that autograd .* torch\.func\.vmap"):
            torch.autograd.grad(norm(x, weight), x, torch.ones(2, ROWS, SIZE), is_grads_batched=True)
    assert torch.autograd.grad(jitnorm.rmsnorm(x, weight).sum(), weight)[0].shape == (SIZE,)


def test_after_an_error_gradients_go_on() -> None:
    x, weight = leaf(ROWS, SIZE), leaf(SIZE, seed=1)
    with pytest.raises(ValueError, match=r"^weight: "):
        jitnorm.rmsnorm(x, leaf(SIZE - 1))
    with pytest.raises(TypeError, match=r"^input: has layout"):
        jitnorm.rmsnorm(x.to_sparse(), weight)
    assert torch.autograd.grad(jitnorm.rmsnorm(x, weight).sum(), weight)[0].shape == (SIZE,)


@pytest.mark.parametrize("name", ["rmsnorm", "gemma_rmsnorm", "add_rmsnorm", "layernorm", "qk_rmsnorm"])
def test_operators_pass_torch_s_own_checks_with_gradients(name: str) -> None:
    _, _, shapes = OPS[name]
    leaves = [leaf(*shape, seed=i) for i, shape in enumerate(shapes)]
    torch.library.opcheck(getattr(torch.ops.jitnorm, name).default, (*leaves, EPS))


def test_every_parameter_of_a_small_llama_gets_a_gradient() -> None:
    """Two layers of norms with residuals, a norm of heads and a final norm, compared with plain torch."""
    linear = [torch.nn.Linear(SIZE, SIZE, bias=False) for _ in range(4)]
    weights = [leaf(SIZE, seed=i) for i in range(6)]

    def model(norm: Norm, add_norm: Norm) -> Any:
        h, residual = leaf(ROWS, SIZE).detach(), leaf(ROWS, SIZE, seed=9).detach()
        for i in range(2):
            h, residual = add_norm(h, residual, weights[2 * i])
            heads = linear[2 * i](h).reshape(ROWS, 4, 16)
            h = norm(heads, weights[2 * i + 1][:16]).reshape(ROWS, SIZE)
            h = linear[2 * i + 1](h)
        return norm(h + residual, weights[4]).cos().sum()

    parameters = [*(each.weight for each in linear), *weights[:5]]
    found = torch.autograd.grad(model(lambda h, w: jitnorm.rmsnorm(h, w, EPS), add), parameters)
    for each, expected in zip(found, torch.autograd.grad(model(rms, rms_of_sum), parameters), strict=True):
        torch.testing.assert_close(each, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("unit_bias", [False, True])
def test_fake_quantization_has_the_values_of_codes_and_the_gradient_of_the_norm(unit_bias: bool) -> None:
    x, weight = leaf(ROWS, SIZE, dtype=torch.bfloat16), leaf(SIZE, dtype=torch.bfloat16, seed=1)
    norm = jitnorm.gemma_rmsnorm if unit_bias else jitnorm.rmsnorm
    expected = torch.autograd.grad(norm(x, weight).float().square().sum(), (x, weight))
    y = jitnorm.torch.fake_norm_quantize(x, weight, jitnorm.MXFP8, unit_bias=unit_bias)
    with torch.no_grad():
        q = jitnorm.norm_quantize(x, weight, spec=jitnorm.MXFP8, unit_bias=unit_bias)
        assert torch.equal(y, jitnorm.dequantize(q, dtype="bfloat16"))
    found = torch.autograd.grad((norm(x, weight).detach().float() * y.float() * 2).sum(), (x, weight))
    assert all(map(torch.equal, found, expected))
    frozen = jitnorm.torch.fake_norm_quantize(x, weight.detach(), jitnorm.MXFP8, unit_bias=unit_bias)
    with Operators() as operators:
        assert torch.equal(torch.autograd.grad(frozen, x, (2 * norm(x, weight)).detach())[0], expected[0])
    assert "sum_rows.default" not in operators.names


def test_fake_quantization_has_its_gradient_in_compiled_programs_and_transforms() -> None:
    x, weight = leaf(ROWS, SIZE), leaf(SIZE, seed=1)

    def loss(x: Any, weight: Any) -> Any:
        return jitnorm.torch.fake_norm_quantize(x, weight, jitnorm.MXFP8).square().sum()

    expected = torch.autograd.grad(loss(x, weight), (x, weight))
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    assert all(map(torch.equal, torch.autograd.grad(compiled(x, weight), (x, weight)), expected))
    plain = (x.detach(), weight.detach())
    assert all(map(torch.equal, torch.func.grad(loss, (0, 1))(*plain), expected))
    assert torch.equal(torch.func.vmap(torch.func.grad(loss), in_dims=(0, None))(*plain), expected[0])
    transformed = torch.compile(torch.func.grad(loss), fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="x: is used in a transform"):  # torch has several, of private names
        transformed(*plain)


@pytest.mark.parametrize("name", ["global_scale", "scale", "scale_ub"])
def test_fake_quantization_has_no_gradient_of_scales(name: str) -> None:
    spec = {"global_scale": jitnorm.NVFP4, "scale": jitnorm.FP8_TENSOR, "scale_ub": jitnorm.FP8_TOKEN}[name]
    x, weight, scale = leaf(ROWS, SIZE), leaf(SIZE, seed=1), torch.ones(1, requires_grad=True)
    call = partial(jitnorm.torch.fake_norm_quantize, x, weight, spec)
    with pytest.raises(TypeError, match=f"^{name}: requires grad, and fake_norm_quantize has no gradient of it"):
        call(**{name: scale})
    (found,) = torch.autograd.grad(call(**{name: scale.detach()}).sum(), weight)
    assert torch.equal(found, torch.autograd.grad(jitnorm.rmsnorm(x, weight).sum(), weight)[0])


@pytest.mark.parametrize("name", ["activation", "bias", "residual", "mask"])
def test_fake_quantization_takes_nothing_that_would_change_the_gradient(name: str) -> None:
    call: Any = jitnorm.torch.fake_norm_quantize
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
        call(leaf(ROWS, SIZE), leaf(SIZE, seed=1), jitnorm.MXFP8, **{name: None})


def test_fake_quantization_refuses_gradients_of_gradients() -> None:
    x, weight = leaf(ROWS, SIZE), leaf(SIZE, seed=1)
    y = jitnorm.torch.fake_norm_quantize(x, weight, jitnorm.MXFP8)
    (found,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        (y.sum() + found.sum()).backward()
