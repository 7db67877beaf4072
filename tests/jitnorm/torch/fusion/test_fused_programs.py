"""Norms and quantization in plain torch become ops with the same bytes, and are reported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import plain_norms
import pytest
import torch
from plain_norms import EPS, FOUND_SCALES, GIVEN_SCALE, MEASURED, NORMS, ROUNDS

import jitnorm
from jitnorm import QuantSpec
from jitnorm.torch import fuse, fusions

ROWS, SIZE = 6, 256
OTHERS = [("llama", torch.float16), ("of_torch", torch.float16), ("gemma", torch.float32), ("llama", torch.float32)]
# The largest error of a rounding, relative to the value; of float32, with that of another order of additions.
UNIT = {torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float32: 2**-19}


@pytest.fixture(autouse=True)
def _reset() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def values(*shape: int, dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def counted() -> Counter[tuple[str, ...]]:
    found: Counter[Any] = Counter()
    for each in fusions():
        found[each.op, each.config, each.unrounded, each.reason] += each.count
    return found


def compiled(program: Callable[..., Any], *inputs: Any, **options: Any) -> tuple[list[Any], list[Any]]:
    """The results of a program with `fuse`; then the op, configuration, roundings and reason of each of its norms."""
    before = counted()
    with torch.no_grad():
        result = torch.compile(program, fullgraph=True, options=fuse(**options))(*inputs)
    return torch.utils._pytree.tree_leaves(result), sorted((counted() - before).elements())


def assert_same(found: list[Any], expected: list[Any]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        assert ours.stride() == theirs.stride()
        assert torch.equal(ours.flatten().view(torch.uint8), theirs.flatten().view(torch.uint8))


def bound(plain: Any, unrounded: tuple[str, ...]) -> Any:
    """How far a result may be from that of the plain program: a rounding of each, and those that the op leaves out.

    That of the sum counts twice, as the root mean square changes, too.
    """
    roundings = 2 + len(unrounded) + ("sum" in unrounded)
    return roundings * 1.01 * UNIT[plain.dtype] * plain.double().abs() + 2**-24


def direct(norm: str, *tensors: Any) -> Any:
    op = f"{'gemma_' * (norm == 'gemma')}{'add_' * (len(tensors) == 3)}rmsnorm"
    return op, getattr(jitnorm, op)(*tensors, EPS)


@pytest.mark.parametrize(("norm", "dtype"), [*((norm, torch.bfloat16) for norm in NORMS), *OTHERS])
def test_a_norm_becomes_its_op(norm: str, dtype: torch.dtype) -> None:
    x, weight = values(ROWS, SIZE, dtype=dtype), values(SIZE, dtype=dtype, seed=1)
    found, report = compiled(NORMS[norm], x, weight)
    op, expected = direct(norm, x, weight)
    unrounded = () if dtype == torch.float32 else ROUNDS.get(norm, ())
    assert report == [(op, "", unrounded, "")]
    assert_same(found, [expected])
    plain = NORMS[norm](x, weight)
    assert bool(((found[0] - plain).double().abs() <= bound(plain, unrounded)).all())


@pytest.mark.parametrize(
    ("norm", "form"),
    [("llama", "add_narrow"), ("of_torch", "add_narrow"), ("llama", "add_wide"), ("gemma", "add_wide")],
)
def test_a_residual_is_added_by_the_op_which_gives_the_sum(norm: str, form: str) -> None:
    x, residual, weight = values(ROWS, SIZE), values(ROWS, SIZE, seed=2), values(SIZE, seed=1)
    program = partial(getattr(plain_norms, form), NORMS[norm])
    found, report = compiled(program, x, residual, weight)
    first, second = (residual, x) if form == "add_narrow" else (x, residual)
    op, expected = direct(norm, first, second, weight)
    unrounded = ("sum",) * (form == "add_narrow") + ROUNDS.get(norm, ())
    assert report == [(op, "", unrounded, "")]
    assert_same(found, list(expected))
    plain, total = program(x, residual, weight)
    assert torch.equal(found[1], total)
    # An element of the sum that cancels has the absolute error of its rounding.
    assert bool(((found[0] - plain).double().abs() <= bound(plain, unrounded)).all())


def decoded(codes: Any, scale: Any) -> Any:
    per_scale = codes.numel() // scale.numel()
    return (codes.double().reshape(-1, per_scale) * scale.double().reshape(-1, 1)).reshape(-1)


def assert_close(found: list[Any], plain: list[Any], unit: float) -> None:
    """Codes are within a rounding of each, of values that differ by some roundings of their dtype."""
    ours, theirs = decoded(*found), decoded(*plain)
    precision, smallest = (2**-4, 2**-10) if found[0].dtype == torch.float8_e4m3fn else (2**-3, 2**-17)
    largest = plain[1].double().max()
    assert bool(
        ((ours - theirs).abs() <= (2 * precision + 6 * unit) * theirs.abs() * 1.2 + 2 * smallest * largest).all()
    )
    assert bool(((found[1] - plain[1]).double().abs() <= 6 * unit * plain[1].double()).all())


@pytest.mark.parametrize(("text", "norm"), list(zip(FOUND_SCALES, NORMS, strict=True)))
def test_quantization_with_a_scale_that_is_found_is_part_of_the_op(text: str, norm: str) -> None:
    x, weight = values(2, 3, SIZE), values(SIZE, seed=1)

    def program(x: Any, weight: Any) -> Any:
        return FOUND_SCALES[text](NORMS[norm](x, weight))

    found, report = compiled(program, x, weight)
    q = jitnorm.norm_quantize(x, weight, spec=QuantSpec.parse(text), eps=EPS, unit_bias=norm == "gemma")
    config = f"quant={q.spec}" + ",unit_bias=true" * (norm == "gemma")
    plain = list(program(x, weight))
    assert report == [("norm_quantize", config, (*ROUNDS.get(norm, ()), "norm"), "")]
    assert_same(found, [q.data.reshape(plain[0].shape), q.scale.reshape(plain[1].shape)])
    assert_close(found, plain, UNIT[x.dtype])


@pytest.mark.parametrize(("way", "shape"), [("vllm", ()), ("torchao", (1, 1)), ("torchao", (1,))])
def test_quantization_with_a_given_scale_is_part_of_the_op(way: str, shape: tuple[int, ...]) -> None:
    x, residual, weight = values(ROWS, SIZE), values(ROWS, SIZE, seed=2), values(SIZE, seed=1)
    scale = torch.full(shape, 0.0123)

    def program(x: Any, residual: Any, weight: Any, scale: Any) -> Any:
        y, total = plain_norms.add_wide(plain_norms.gemma, x, residual, weight)
        return GIVEN_SCALE[way](y, scale), total

    found, report = compiled(program, x, residual, weight, scale)
    q, total = jitnorm.add_norm_quantize(
        x, residual, weight, spec=jitnorm.FP8_TENSOR, scale=scale.reshape(1), eps=EPS, unit_bias=True
    )
    assert report == [("add_norm_quantize", f"quant={q.spec},unit_bias=true", ("norm",), "")]
    assert_same(found, [q.data, total])
    plain = program(x, residual, weight, scale)
    assert_close([found[0], scale], [plain[0], scale], UNIT[x.dtype])


@pytest.mark.parametrize("name", MEASURED)
def test_programs_that_are_measured_are_fused_and_round_nothing_else(name: str) -> None:
    program, inputs = MEASURED[name]
    x, residual, weight = values(ROWS, SIZE), values(ROWS, SIZE, seed=2), values(SIZE, seed=1)
    given = [{"x": x, "r": residual, "w": weight}[each] for each in inputs]
    _, report = compiled(program, *given)
    assert [(op, unrounded, reason) for op, _, unrounded, reason in report] == [
        ("add_norm_quantize" if "add" in name else "norm_quantize", (), "")
    ]


def test_what_else_the_program_uses_is_an_output_of_the_same_op() -> None:
    """These are the norm, the sum, the scale in two shapes, and the same codes written three times."""
    x, residual, weight = values(ROWS, SIZE), values(ROWS, SIZE, seed=2), values(SIZE, seed=1)

    def program(x: Any, residual: Any, weight: Any) -> Any:
        y, total = plain_norms.add_wide(plain_norms.llama, x, residual, weight)
        codes, scale = plain_norms.token_of_vllm(y)
        return codes, scale, scale.squeeze(-1), plain_norms.token_of_vllm(y), plain_norms.token_of_vllm(y), y, total

    found, report = compiled(program, x, residual, weight)
    q, total, y = jitnorm.add_norm_quantize(x, residual, weight, spec=jitnorm.FP8_TOKEN, eps=EPS, keep_norm=True)
    column = q.scale[:, None]
    assert report == [("add_norm_quantize", f"quant={q.spec},keep_norm=true", ("normalized", "norm"), "")]
    assert_same(found, [q.data, column, q.scale, q.data, column, q.data, column, y, total])


@pytest.mark.parametrize("rounds", ["amax", "codes"])
def test_codes_and_scale_may_be_of_different_forms_of_the_norm(rounds: str) -> None:
    """Some versions of torch remove the rounding before a conversion to float32, but not that before a maximum."""
    x, weight = values(ROWS, SIZE), values(SIZE, seed=1)

    def program(x: Any, weight: Any) -> Any:
        h = x.float()
        y = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + EPS) * weight
        first, second = (y.to(x.dtype), y) if rounds == "amax" else (y, y.to(x.dtype))
        scale = (first.abs().amax(-1, keepdim=True).float() / 448).clamp(min=1 / (512 * 448))
        return (second.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale

    found, report = compiled(program, x, weight)
    q = jitnorm.norm_quantize(x, weight, spec=jitnorm.FP8_TOKEN, eps=EPS)
    assert report == [("norm_quantize", f"quant={q.spec}", ("norm",), "")]
    assert_same(found, [q.data, q.scale[:, None]])


def test_what_the_program_writes_in_place_is_written() -> None:
    x, residual, weight = values(ROWS, SIZE), values(ROWS, SIZE, seed=2), values(SIZE, seed=1)
    y, total = jitnorm.gemma_add_rmsnorm(residual, x, weight, EPS)

    def program(x: Any, residual: Any, weight: Any) -> None:
        residual.add_(x)
        x.copy_(plain_norms.gemma(residual, weight))
        residual.mul_(2)

    _, report = compiled(program, x, residual, weight)
    assert report == [("gemma_add_rmsnorm", "", ("sum",), "")]
    assert_same([x, residual], [y, 2 * total])


def test_heads_within_a_packed_tensor_are_normalized_where_they_are() -> None:
    packed, weight = values(2, 3, 8, 64), values(64, seed=1)

    def program(packed: Any, weight: Any) -> Any:
        return plain_norms.llama(packed[:, :, :4], weight), plain_norms.llama(packed[:, :, 4:6], weight)

    found, report = compiled(program, packed, weight)
    assert report == [("rmsnorm", "", ("normalized",), "")] * 2
    assert_same(found, [jitnorm.rmsnorm(heads, weight, EPS) for heads in (packed[:, :, :4], packed[:, :, 4:6])])


def test_a_float32_weight_of_narrow_rows_is_taken_as_it_is() -> None:
    x, weight = values(ROWS, SIZE), values(SIZE, dtype=torch.float32, seed=1)
    found, report = compiled(NORMS["by_hand"], x, weight)
    assert report == [("rmsnorm", "", (), "")]
    assert_same(found, [jitnorm.rmsnorm(x, weight, EPS)])


def test_numbers_of_rows_may_be_symbols() -> None:
    weight = values(SIZE, seed=1)

    def program(x: Any, residual: Any) -> Any:
        y, total = plain_norms.add_narrow(plain_norms.llama, x, residual, weight)
        return plain_norms.group_of_deepgemm(y.view(-1, SIZE)), total

    fused = torch.compile(program, fullgraph=True, options=fuse())
    before = counted()
    for batch, rows in ((2, 3), (4, 5), (3, 7)):
        x, residual = values(batch, rows, SIZE), values(batch, rows, SIZE, seed=2)
        for tensor in (x, residual):
            torch._dynamo.mark_dynamic(tensor, [0, 1])
        with torch.no_grad():
            (codes, scale), total = fused(x, residual)
        q, expected = jitnorm.add_norm_quantize(residual, x, weight, spec=jitnorm.FP8_GROUP, eps=EPS)
        assert_same([codes, scale, total], [q.data.view(-1, SIZE), q.scale.view(-1, SIZE // 128), expected])
    assert sum((counted() - before).values()) == 1, "one graph is for all"
