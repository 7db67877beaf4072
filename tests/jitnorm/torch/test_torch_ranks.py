"""Calls over ranks in torch programs: one graph, with the results of the calls themselves, on ranks as threads."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch_calls
from inputs import in_turn
from ranks import Exchange

from jitnorm import FP8_TOKEN, NVFP4, QuantSpec, comm
from jitnorm.comm.choices import Entry
from jitnorm.comm.threads import on_threads

SIZE = 64
FORMS = {
    "one_shot": lambda x, r, w, own, **o: comm.all_reduce_norm_quantize(x, w, own, residual=r, method="one_shot", **o),
    "two_shot": lambda x, r, w, own, **o: comm.all_reduce_norm_quantize(
        x, w, own, residual=r, method="two_shot", round_sum=False, **o
    ),
    "not_fused": lambda x, r, w, own, **o: comm.all_reduce_norm_quantize(
        x, w, own, residual=r, method="not_fused", **o
    ),
    "one_shot_scatter": lambda x, r, w, own, **o: comm.reduce_scatter_norm_quantize(
        x, w, own, residual=r[own.rank * 2 : own.rank * 2 + 2], method="one_shot", **o
    ),
    "reduce_scatter": lambda x, r, w, own, **o: comm.reduce_scatter_norm_quantize(
        x, w, own, residual=r[own.rank * 2 : own.rank * 2 + 2], method="two_shot", **o
    ),
    "all_gather": lambda x, r, w, own, **o: comm.norm_quantize_all_gather(x, w, own, residual=r, **o),
}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def values(*shape: int, seed: int = 0) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


WEIGHT = values(SIZE, seed=9)


def workspace(rank: int, exchange: Exchange) -> comm.Workspace:
    sizes: dict[str, Any] = {"max_rows": 16, "hidden_size": SIZE, "dtype": torch.bfloat16, "output_bytes": 1 << 16}
    return comm.Workspace.from_exchange(rank, 2, exchange, **sizes)


def assert_alike(found: Any, expected: list[Any]) -> None:
    for ours, theirs in zip(torch_calls.leaves(found), expected, strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours.view(torch.uint8), theirs.view(torch.uint8))


@pytest.mark.parametrize(("form", "spec"), in_turn([*FORMS, *FORMS], (None, FP8_TOKEN, NVFP4)), ids=str)
def test_it_is_part_of_one_graph(form: str, spec: QuantSpec | None) -> None:
    """Results do not change when later calls write the same memory."""
    options: dict[str, Any] = {"spec": spec, "keep_norm": spec is not None}

    def work(rank: int, exchange: Exchange) -> bool:
        own, call = workspace(rank, exchange), FORMS[form]

        def program(x: Any, r: Any) -> Any:
            first = call(x + 1, r, WEIGHT, own, **options)
            second = call(x, r, WEIGHT, own, **options)
            return first, second

        x, r = values(4, SIZE, seed=rank), values(4, SIZE, seed=2)
        expected: list[Any] = []
        for given in (x + 1, x):
            expected += [leaf.clone() for leaf in torch_calls.leaves(call(given, r, WEIGHT, own, **options))]
        found = torch.compile(program, backend="aot_eager", fullgraph=True)(x, r)
        assert isinstance(found[0], comm.Reduced)
        assert_alike(found, expected)
        return True

    assert all(on_threads(2, work))


def test_the_number_of_rows_may_be_a_symbol() -> None:
    def work(rank: int, exchange: Exchange) -> int:
        own, graphs = workspace(rank, exchange), []

        def backend(graph: Any, _: Any) -> Callable[..., Any]:
            graphs.append(graph)
            return graph.forward  # type: ignore[no-any-return]

        def program(x: Any) -> Any:
            part = comm.reduce_scatter_norm_quantize(x, WEIGHT, own, spec=FP8_TOKEN)
            return part.out.data, comm.norm_quantize_all_gather(x, WEIGHT, own).out

        compiled = torch.compile(program, backend=backend, fullgraph=True, dynamic=True)
        for rows in (4, 6, 8):
            x = values(rows, SIZE, seed=rank)
            expected = [each.clone() for each in torch_calls.leaves(program(x))]
            assert_alike(compiled(x), expected)
        return len(graphs)

    assert on_threads(2, work) == [1, 1]


def test_each_workspace_has_a_graph_of_its_own() -> None:
    def work(rank: int, exchange: Exchange) -> bool:
        compiled = torch.compile(
            lambda x, own: comm.all_reduce_norm_quantize(x, WEIGHT, own, residual=x).residual_out, backend="aot_eager"
        )
        x = values(4, SIZE)
        for _ in range(2):
            assert torch.equal(compiled(x, workspace(rank, exchange)), (x.float() * 2).bfloat16() + x)
        return True

    assert all(on_threads(2, work))


def test_the_operator_takes_the_name_of_a_workspace() -> None:
    def work(rank: int, exchange: Exchange) -> bool:
        own = workspace(rank, exchange)
        x, r = values(4, SIZE, seed=rank), values(4, SIZE, seed=2)
        config = "rmsnorm:all_reduce=one_shot,ranks=2,rounds_sum=true,residual=true,quant=e2m1/16/e4m3"
        operator = torch.ops.jitnorm.all_reduce_norm_quantize
        codes, scales, total = operator(x, WEIGHT, 1e-6, own.name, r, config=config)
        expected = comm.all_reduce_norm_quantize(x, WEIGHT, own, spec=NVFP4, residual=r)
        assert codes.dtype == torch.uint8
        assert torch.equal(codes, expected.out.data.view(torch.uint8))
        assert torch.equal(scales, expected.out.scale)
        assert torch.equal(total, expected.residual_out)
        with pytest.raises(ValueError, match="config: has ranks=3, but the workspace is of 2"):
            operator(x, WEIGHT, 1e-6, own.name, config="rmsnorm:all_reduce=one_shot,ranks=3")
        with pytest.raises(ValueError, match=r"bias: is given, but config='rmsnorm:.*' leaves no use for it"):
            operator(x, WEIGHT, 1e-6, own.name, r, WEIGHT, config=config)
        with pytest.raises(TypeError, match="input: requires grad"):
            operator(x.float().requires_grad_(), WEIGHT, 1e-6, own.name, r, config=config)
        return True

    assert all(on_threads(2, work))
    gc.collect()
    with pytest.raises(ValueError, match="workspace: is 'workspace -1', which is none of"):
        torch.ops.jitnorm.all_reduce_norm_quantize(
            values(4, SIZE), WEIGHT, 1e-6, "workspace -1", config="rmsnorm:all_reduce=one_shot,ranks=2"
        )


def test_what_is_recorded_is_checked_as_calls_are() -> None:
    def work(rank: int, exchange: Exchange) -> bool:
        own, x = workspace(rank, exchange), values(4, SIZE)
        with torch._subclasses.FakeTensorMode() as mode:
            fake = mode.from_tensor(x)
            out = comm.norm_quantize_all_gather(fake, mode.from_tensor(WEIGHT), own).out
            assert out.shape == (8, SIZE)
            with pytest.raises(TypeError, match="stream: is given, but torch records the call"):
                comm.norm_quantize_all_gather(fake, mode.from_tensor(WEIGHT), own, stream=0)
            with pytest.raises(ValueError, match="input: has 18 rows, but the workspace is for 16"):
                comm.norm_quantize_all_gather(mode.from_tensor(values(9, SIZE)), mode.from_tensor(WEIGHT), own)
        with pytest.raises(TypeError, match="input: requires grad"):
            comm.norm_quantize_all_gather(x.requires_grad_(), WEIGHT, own)
        return True

    assert all(on_threads(2, work))


def test_methods_that_are_measured_are_chosen_for_any_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"one_shot": (1.0, 9.0, 9.0), "two_shot": (2.0, 1.0, 9.0), "not_fused": (3.0, 3.0, 1.0)}
    entry = Entry("CPU", 2, SIZE, 0, "", "", (2 * SIZE, 6 * SIZE, 16 * SIZE), times)
    monkeypatch.setattr("jitnorm.comm.choices.of_device", lambda device, ranks: (entry,))

    def work(rank: int, exchange: Exchange) -> bool:
        own = workspace(rank, exchange)

        def program(x: Any) -> Any:
            return comm.all_reduce_norm_quantize(x, WEIGHT, own, residual=x).out

        compiled = torch.compile(program, backend="aot_eager", fullgraph=True, dynamic=True)
        for rows in (2, 3, 4, 6, 8):
            x = values(rows, SIZE, seed=2)
            assert torch.equal(compiled(x), program(x))
        return True

    assert all(on_threads(2, work))
