"""Operators refuse tensors without values as those with values, so programs fail as they are traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_calls
from torch._subclasses.fake_tensor import FakeTensorMode

import jitnorm.torch  # noqa: F401 - registers the operators
from jitnorm.catalogue import OPS

SIZE = 64
OPERATORS = torch.ops.jitnorm
Tensor = torch.Tensor
CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "dtype": lambda tensor: tensor.to(torch.float64),
    "complex": lambda tensor: tensor.to(torch.complex64),
    "columns": lambda tensor: torch.cat([tensor, tensor], -1) if tensor.ndim else tensor,
    "rows": lambda tensor: torch.cat([tensor, tensor], 0) if tensor.ndim else tensor,
    "dimensions": lambda tensor: tensor.flatten(),
    "strides": lambda tensor: torch.stack([tensor, tensor], -1)[..., 0],
    "empty": lambda tensor: tensor[:0] if tensor.ndim else tensor,
}


def outcome(call: Callable[..., Any], arguments: dict[str, Any]) -> str:
    try:
        call(**arguments)
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "none"


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if not op.is_composed])
def test_every_operator_refuses_the_same_without_values(name: str) -> None:
    mode, refused = FakeTensorMode(), 0
    for function, args, kwargs in torch_calls.operator_calls(name):
        given = {argument.name: value for argument, value in zip(function._schema.arguments, args, strict=False)}
        for key, value in (given | kwargs).items():
            for change in CHANGES.values() if isinstance(value, Tensor) else ():
                real = {**given, **kwargs, key: change(value)}
                fake = torch.utils._pytree.tree_map_only(Tensor, mode.from_tensor, real)
                expected = outcome(function, real)
                with mode:
                    assert outcome(function, fake) == expected, key
                refused += expected != "none"
    assert refused


def tensors(**changed: Tensor) -> dict[str, Any]:
    return {"input": torch.ones(4, SIZE), "residual": torch.ones(4, SIZE), "weight": torch.ones(SIZE), **changed}


def test_what_shares_memory_is_refused_too() -> None:
    memory = torch.ones(5, SIZE)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(memory)
        weight = torch.empty(SIZE)
        with pytest.raises(ValueError, match=r"^out: overlaps the memory of input"):
            OPERATORS.rmsnorm.out(fake[:4], weight, 1e-6, out=fake[1:])
        OPERATORS.rmsnorm.out(fake[:4], weight, 1e-6, out=fake[:4])


def test_on_meta_too() -> None:
    with pytest.raises(ValueError, match=r"^weight: shape is \(5,\), expected \(64,\)"):
        OPERATORS.rmsnorm(torch.empty(2, SIZE, device="meta"), torch.empty(5, device="meta"), 1e-6)
    made = OPERATORS.rmsnorm(
        torch.empty(2, SIZE, device="meta"), torch.empty(SIZE, device="meta"), 1e-6, enable_pdl=True
    )
    assert made.is_meta


def in_place(input: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    OPERATORS.fused_add_rmsnorm.out(input, residual, weight, 1e-6, out=input, residual_out=residual)
    return input + 1


def functional(input: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    made: Tensor = OPERATORS.add_rmsnorm(input, residual, weight, 1e-6)[0]
    return made + 1


BAD: dict[str, Tensor] = {
    r"residual: shape is \(5, 64\), expected \(4, 64\)": torch.ones(5, SIZE),
    "residual: dtype is float64, expected float32": torch.ones(4, SIZE, dtype=torch.float64),
    r"residual: shape is \(4, 32\), expected \(4, 64\)": torch.ones(4, 32),
}


@pytest.mark.parametrize("program", [in_place, functional])
@pytest.mark.parametrize("dynamic", [False, True])
def test_programs_fail_as_they_are_traced(program: Callable[..., Tensor], dynamic: bool) -> None:
    def backend(*_: Any) -> Any:
        pytest.fail("a program that fails is compiled")

    for message, residual in BAD.items():
        torch.compiler.reset()
        with pytest.raises(Exception, match=message):
            torch.compile(program, backend=backend, fullgraph=True, dynamic=dynamic)(**tensors(residual=residual))
    torch.compiler.reset()
    compiled = torch.compile(program, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    assert torch.equal(compiled(**tensors()), program(**tensors()))


class Program(torch.nn.Module):
    def forward(self, input: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        return functional(input, residual, weight)


def test_exported_programs_fail_as_they_are_traced_and_may_have_symbols() -> None:
    for message, residual in BAD.items():
        with pytest.raises(ValueError, match=f"^{message}"):
            torch.export.export(Program(), (), tensors(residual=residual))
    rows = torch.export.Dim("rows", min=2)
    shapes = {"input": {0: rows}, "residual": {0: rows}, "weight": None}
    program = torch.export.export(Program(), (), tensors(), dynamic_shapes=shapes).module()
    longer = tensors(input=torch.ones(7, SIZE), residual=torch.ones(7, SIZE))
    assert torch.equal(program(**longer), functional(**longer))


def test_rows_of_which_nobody_knows_how_many_are_left_to_the_call() -> None:
    class Chosen(torch.nn.Module):
        def forward(self, input: Tensor, weight: Tensor) -> Tensor:
            made: Tensor = OPERATORS.rmsnorm(input[input[:, 0] > 0], weight, 1e-6)
            return made

    x, weight = torch.randn(6, SIZE), torch.ones(SIZE)
    program = torch.export.export(Chosen(), (x, weight)).module()
    for sign in (1, -1):
        assert torch.equal(program(x * sign, weight), Chosen()(x * sign, weight))
