"""Compiled programs are one graph, without warnings, and return the bytes of the eager program."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch_calls
from torch.utils.checkpoint import checkpoint

import jitnorm
from jitnorm import FP8_BLOCK, FP8_TOKEN, MXFP8, NVFP4, QuantizedTensor, SfLayout
from jitnorm.catalogue import OPS

ROWS, SIZE = 4, torch_calls.SIZE
INPUTS = 3
Program = Callable[..., Any]
Step = Callable[..., list[Any]]
Plan = tuple[tuple[Step, tuple[int, ...]], ...]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Warnings of torch or jitnorm are errors, except about deprecated parts that torch itself imports."""
    torch.compiler.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield
    torch.compiler.reset()


def values(*shape: int, seed: int = 0) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


WEIGHT = values(SIZE, seed=1)


def assert_same(program: Program, *inputs: Any, backend: str = "aot_eager", **options: Any) -> Any:
    """Compile a program, and compare its results and its effects on its inputs with the eager program's."""
    mine, compiled = ([each.clone() for each in inputs] for _ in range(2))
    expected = program(*mine)
    found = torch.compile(program, backend=backend, fullgraph=True, **options)(*compiled)
    assert torch.utils._pytree.tree_structure(found) == torch.utils._pytree.tree_structure(expected)
    for ours, theirs in zip(torch_calls.leaves((found, compiled)), torch_calls.leaves((expected, mine)), strict=True):
        assert torch.equal(ours, theirs)
    return found


@pytest.mark.parametrize("name", OPS)
def test_every_op_is_part_of_one_graph(name: str) -> None:
    call, other = torch_calls.call(name), torch_calls.call(name)
    assert isinstance(call, partial)
    assert isinstance(other, partial)
    tensors = {key: value for key, value in call.keywords.items() if isinstance(value, (torch.Tensor, QuantizedTensor))}
    others = {key: value for key, value in call.keywords.items() if key not in tensors}

    def program(given: dict[str, Any]) -> Any:
        return call.func(**given, **others)

    found = torch.compile(program, backend="aot_eager", fullgraph=True)(tensors), tensors
    expected = other(), {key: other.keywords[key] for key in tensors}
    for ours, theirs in zip(torch_calls.leaves(found), torch_calls.leaves(expected), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("function", [jitnorm.rmsnorm, jitnorm.gemma_rmsnorm, jitnorm.rmsnorm_fp4quant])
def test_a_public_function_itself_can_be_compiled(function: Program) -> None:
    assert_same(function, values(ROWS, SIZE), WEIGHT)


def test_options_may_be_made_within_the_program() -> None:
    def program(x: Any) -> Any:
        q = jitnorm.quantize(x, spec=NVFP4.with_layout("128x4"), global_scale="tensor")
        linear = jitnorm.nvfp4_quantize(x, None, SfLayout.layout_linear)
        rows = jitnorm.rms_norm_dynamic_per_token_quant(x, WEIGHT, 1e-6, torch.float8_e4m3fn)
        return q, jitnorm.dequantize(q, dtype="float32"), linear, rows, q.spec.block_size * x.shape[0]

    assert_same(program, values(ROWS, SIZE))


def decoded(x: Any) -> Any:
    return jitnorm.dequantize(jitnorm.quantize(x, spec=MXFP8))


@pytest.mark.parametrize(
    "program",
    [
        lambda x: checkpoint(decoded, x, use_reentrant=False),
        lambda x: torch.cond(x.sum() > 0, decoded, lambda x: x + 1, (x,)),
        lambda x: torch.func.vmap(decoded)(x[None]),
    ],
    ids=["checkpoint", "cond", "vmap"],
)
def test_a_part_of_the_program_with_a_graph_of_its_own_may_take_what_it_has_quantized(program: Program) -> None:
    for sign in (1, -1):
        assert_same(program, values(ROWS, SIZE).abs() * sign)


def test_the_number_of_rows_may_be_a_symbol() -> None:
    def program(x: Any, residual: Any) -> Any:
        q, total = jitnorm.add_norm_quantize(x, residual, WEIGHT, spec=MXFP8.with_layout("128x4"))
        floored = jitnorm.quantize(total, spec=FP8_TOKEN.with_scale_floor(0.5))
        return q, jitnorm.quantize(total, spec=FP8_BLOCK), jitnorm.rmsnorm(total, WEIGHT), floored

    frames: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        frames.append(graph)
        return graph

    compiled = torch.compile(program, backend=backend, fullgraph=True, dynamic=True)
    for rows in (3, 7, 130):
        x = values(rows, SIZE)
        for ours, theirs in zip(torch_calls.leaves(compiled(x, x)), torch_calls.leaves(program(x, x)), strict=True):
            assert torch.equal(ours, theirs)
    assert len(frames) == 1


def test_in_graphs_of_inductor_what_is_written_in_place_is() -> None:
    def program(x: Any, residual: Any, weight: Any) -> Any:
        y = jitnorm.rmsnorm(x, weight)
        jitnorm.fused_add_rmsnorm(y, residual, weight)
        return y, jitnorm.rmsnorm_fp4quant(y, weight), jitnorm.quantize(y, spec=MXFP8)  # no C++ to compile

    assert_same(program, values(ROWS, SIZE), values(ROWS, SIZE, seed=2), WEIGHT, backend="inductor")


@pytest.mark.parametrize("fullgraph", [True, False])
def test_a_tensor_that_requires_grad_is_refused_when_the_program_is_compiled(fullgraph: bool) -> None:
    weight = WEIGHT.clone().requires_grad_()

    def program(x: torch.Tensor) -> torch.Tensor:
        codes: torch.Tensor = jitnorm.norm_quantize(x * 2, weight, spec=MXFP8).data
        return codes

    compiled = torch.compile(program, backend="aot_eager", fullgraph=fullgraph)
    with pytest.raises((TypeError, torch._dynamo.exc.TorchRuntimeError), match="weight: requires grad"):
        compiled(values(ROWS, SIZE))
    with torch.no_grad():
        assert torch.equal(
            compiled(values(ROWS, SIZE)).view(torch.uint8), program(values(ROWS, SIZE)).view(torch.uint8)
        )


def test_an_argument_that_is_not_allowed_is_named_and_the_next_program_works() -> None:
    x = values(ROWS, SIZE)
    bad: dict[str, Program] = {
        "input dtype: is 'complex64'": lambda x: jitnorm.rmsnorm(x.to(torch.complex64), WEIGHT),
        "spec|global_scale": lambda x: jitnorm.quantize(x, spec=MXFP8, global_scale="row"),
        "weight: shape": lambda x: jitnorm.rmsnorm(x, WEIGHT[:5]),
        "input: .*`stream`": lambda x: jitnorm.rmsnorm(x, WEIGHT, stream=0),
    }
    for message, program in bad.items():
        with pytest.raises((TypeError, ValueError, torch._dynamo.exc.TorchRuntimeError), match=message):
            torch.compile(program, backend="aot_eager", fullgraph=True)(x)
        assert_same(lambda x: jitnorm.rmsnorm(x, WEIGHT), x)


def test_under_autocast_dtypes_are_those_of_the_program() -> None:
    linear = torch.nn.Linear(SIZE, SIZE).requires_grad_(False)

    def program(x: Any) -> Any:
        return jitnorm.rmsnorm(linear(x), WEIGHT)

    with torch.autocast("cpu", torch.bfloat16):
        assert assert_same(program, values(ROWS, SIZE).float()).dtype == torch.bfloat16


# Random programs: each step takes one or two tensors (ROWS, SIZE) that are there, and adds more.


def plus(x: Any, y: Any) -> list[Any]:
    return [x + y]


def sine(x: Any) -> list[Any]:
    return [x.float().sin().bfloat16().flip(0)]


def columns(x: Any, y: Any) -> list[Any]:
    return [torch.cat([x, y], dim=1)[:, SIZE // 2 : -SIZE // 2]]


def norm(x: Any) -> list[Any]:
    return [jitnorm.rmsnorm(x, WEIGHT)]


def norm_into(x: Any) -> list[Any]:
    out = torch.empty_like(x)
    return [jitnorm.rmsnorm(x, WEIGHT, out=out) + 1, out]


def norm_in_place(x: Any) -> list[Any]:
    jitnorm.rmsnorm(x, WEIGHT, out=x)
    return []


def add_in_place(x: Any, y: Any) -> list[Any]:
    x = x.clone()
    jitnorm.fused_add_rmsnorm(x, y, WEIGHT)
    return [x]


def add(x: Any, y: Any) -> list[Any]:
    return list(jitnorm.add_rmsnorm(x, y, WEIGHT))


def heads_in_place(x: Any, y: Any) -> list[Any]:
    packed = torch.stack([x, y, x], dim=1)
    q, k = packed[:, :2], packed[:, 2:]
    jitnorm.qk_rmsnorm(q, k, WEIGHT, WEIGHT, q_out=q, k_out=k)
    return [packed[:, 1], k.flatten(0, 1)]


def encoded(x: Any) -> list[Any]:
    return [jitnorm.dequantize(jitnorm.quantize(x, spec=NVFP4, global_scale="tensor"))]


def add_encoded(x: Any, y: Any) -> list[Any]:
    q, total = jitnorm.add_norm_quantize(x, y, WEIGHT, spec=MXFP8)
    return [jitnorm.dequantize(q), total]


def fp4(x: Any) -> list[Any]:
    codes, scales = jitnorm.rmsnorm_fp4quant(x, WEIGHT)
    return [codes.view(torch.uint8).repeat(1, 2).bfloat16(), scales.float().repeat(1, SIZE // 8).bfloat16()]


# How many tensors each takes, and adds.
STEPS: dict[Step, tuple[int, int]] = {
    plus: (2, 1), sine: (1, 1), columns: (2, 1), norm: (1, 1), norm_into: (1, 2), norm_in_place: (1, 0),
    add_in_place: (2, 1), add: (2, 2), heads_in_place: (2, 2), encoded: (1, 1), add_encoded: (2, 2), fp4: (1, 2),
}  # fmt: skip


def random_plan(seed: int) -> Plan:
    """Steps and the sources of their arguments; inputs are numbered by first use, so a program has one plan."""
    draw, inputs, there = random.Random(seed), dict[int, int](), INPUTS
    plan = []
    for _ in range(draw.randint(1, 2)):
        step = draw.choice(list(STEPS))
        takes, adds = STEPS[step]
        places = [int(draw.random() * there) for _ in range(2)][:takes]
        plan.append((step, tuple(inputs.setdefault(at, len(inputs)) if at < INPUTS else at for at in places)))
        there += adds
    return tuple(plan)


def program_of(plan: Plan) -> Program:
    def program(*inputs: Any) -> Any:
        tensors = list(inputs)
        for step, places in plan:
            tensors += step(*[tensors[at] for at in places])
        return tensors[INPUTS:]

    return program


# Half of the seeds give a program that another has given; these all differ.
PLANS = list(dict.fromkeys(map(random_plan, range(2000))))[:200]


def test_steps_add_what_is_said() -> None:
    assert len(PLANS) == 200
    for step, (takes, adds) in STEPS.items():
        assert len(step(*[values(ROWS, SIZE, seed=i) for i in range(takes)])) == adds


@pytest.mark.parametrize("first", range(10))
def test_random_programs_give_the_same_bytes(first: int) -> None:
    for plan in PLANS[first::10]:
        torch.compiler.reset()
        inputs = [values(ROWS, SIZE, seed=i) for i in range(INPUTS)]
        assert_same(program_of(plan), *inputs, backend="inductor" if plan == random_plan(30) else "aot_eager")
