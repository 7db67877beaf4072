"""vLLM's passes fuse into operators that jitnorm computes; scripts/vllm_plugin runs the tests with vLLM's sources."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from jitnorm.compat.vllm import _C
from jitnorm.integrations.vllm import fused

EPS, SIZE, GROUP = 1e-5, 256, 128
FP8 = torch.float8_e4m3fn
_LITERAL = r'"(?:[^"\\]|\\.)*"'


def test_unknown_operators_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fused.VARIABLE, "rms_norm_per_block_quant, rms_norm")
    with pytest.raises(ValueError, match=f"{fused.VARIABLE}: has 'rms_norm'; allowed are all, or names among rms_"):
        fused.register()


def test_no_operator_is_registered_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(fused.VARIABLE, raising=False)
    monkeypatch.setattr(fused, "_load_kernels", lambda: pytest.fail("nothing asked for operators"))
    fused.register()


@pytest.fixture(scope="module")
def vllm() -> Iterator[Any]:
    """vLLM's pass manager for the CPU, with the operators of its sources; jitnorm provides the fused ones."""
    package = pytest.importorskip("vllm", reason="scripts/vllm_plugin FOLDER runs vLLM's sources")
    bindings = Path(package.__file__).parents[1] / "csrc" / "torch_bindings.cpp"
    if not bindings.exists():
        pytest.skip("this vLLM comes without its sources")
    platforms = pytest.importorskip("vllm.platforms", reason="vLLM's dependencies are not installed")
    before = platforms._current_platform
    platforms._current_platform = pytest.importorskip("vllm.platforms.cpu").CpuPlatform()
    library = torch.library.Library("_C", "FRAGMENT")
    for schema in schemas(bindings.read_text()):
        library.define(schema)
        name = schema.partition("(")[0]
        if schema.endswith("-> ()") and "." not in name:
            torch.library.register_fake(f"_C::{name}", lambda *args, **options: None, lib=library)
            library.impl(name, not_called(name), "CPU")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(fused.VARIABLE, "all")
        fused.register()
    manager = pytest.importorskip("vllm.compilation.passes.pass_manager")
    from vllm.compilation.passes.fusion import act_quant_fusion, rms_quant_fusion

    # The manager imports them where kernels for GPUs are.
    manager.RMSNormQuantFusionPass = rms_quant_fusion.RMSNormQuantFusionPass
    manager.ActivationQuantFusionPass = act_quant_fusion.ActivationQuantFusionPass
    yield manager
    platforms._current_platform = before
    for registered in fused._registered.values():
        registered._destroy()
    fused._registered.clear()
    library._destroy()


def schemas(bindings: str) -> list[str]:
    """The schemas of the operators of ``_C`` in the C++ source that registers them."""
    part = bindings.partition("LIBRARY_FRAGMENT(_C, ops)")[2].partition("LIBRARY_IMPL(")[0]
    calls = re.findall(rf"ops\.def\(((?:\s*{_LITERAL})+)", re.sub(r"//[^\n]*", "", part))
    texts = ("".join(literal[1:-1] for literal in re.findall(_LITERAL, call)) for call in calls)
    return [re.sub(r"\s+", " ", text.replace("\\", "")) for text in texts]


def not_called(name: str) -> Callable[..., None]:
    def kernel(*args: Any, **options: Any) -> None:
        raise AssertionError(f"vLLM's kernel of {name} was called")

    return kernel


def test_vllm_s_passes_fuse_into_jitnorm_s_kernels(vllm: Any) -> None:
    from vllm.compilation.passes.inductor_pass import pass_context
    from vllm.config import CompilationConfig, DeviceConfig, PassConfig, VllmConfig
    from vllm.config.utils import Range
    from vllm.ir import enable_torch_wrap, ops

    x, residual = ([torch.randn(5, SIZE).bfloat16() for _ in range(3)] for _ in range(2))
    gates = torch.randn(5, 2 * SIZE).bfloat16()
    weight, scale = torch.randn(SIZE).bfloat16(), torch.tensor([[0.03]])

    def empty(y: torch.Tensor, columns: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty((y.shape[0], columns), device=y.device, dtype=dtype)  # with all that vLLM's patterns give

    def by_given_scale(y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        codes = empty(y, SIZE, FP8)
        torch.ops._C.static_scaled_fp8_quant(codes, y, scale, [-1, -1])
        return (codes,)

    def by_row(y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        codes, scales = empty(y, SIZE, FP8), empty(y, 1, torch.float32)
        torch.ops._C.dynamic_per_token_scaled_fp8_quant(codes, y, scales, None)
        return codes, scales

    def by_group(y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        codes, scales = empty(y, SIZE, FP8), empty(y, SIZE // GROUP, torch.float32)
        torch.ops._C.per_token_group_fp8_quant(y, codes, scales, GROUP, 1e-10, -448.0, 448.0, False, False, False)
        return codes, scales

    def program(x: list[torch.Tensor], residual: list[torch.Tensor], gates: torch.Tensor) -> list[torch.Tensor]:
        made: list[torch.Tensor] = []
        for number, quantize in enumerate((by_given_scale, by_row, by_group)):
            made += quantize(ops.rms_norm(x[number], weight, EPS))
            y, total = ops.fused_add_rms_norm(x[number], residual[number], weight, EPS)
            made += (*quantize(y), total)
        swiglu = empty(gates, SIZE, gates.dtype)
        torch.ops._C.silu_and_mul(swiglu, gates)
        return [*made, *by_given_scale(swiglu)]

    config = VllmConfig(
        device_config=DeviceConfig("cpu"),
        compilation_config=CompilationConfig(
            mode=3, custom_ops=["+quant_fp8", "+silu_and_mul"],
            pass_config=PassConfig(fuse_norm_quant=True, fuse_act_quant=True),
        ),
    )  # fmt: skip
    manager = vllm.PostGradPassManager()
    manager.configure(config)
    options = {
        "post_grad_custom_post_pass": manager, "enable_auto_functionalized_v2": False, "fx_graph_cache": False,
    }  # fmt: skip
    with torch.no_grad(), enable_torch_wrap(True), pass_context(Range(1, 64)):
        # vLLM's last pass writes the sums where the residuals were.
        made = torch.compile(program, fullgraph=True, options=options)(x, [each.clone() for each in residual], gates)
    wanted = expected(x, residual, gates, weight, scale)
    assert list(map(same, made, wanted)) == [True] * 14


def expected(
    x: list[torch.Tensor], residual: list[torch.Tensor], gates: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor
) -> list[torch.Tensor]:
    """The outputs of `jitnorm.compat.vllm`'s functions for each fused part of the program."""
    codes, of_sum, of_swiglu = (torch.empty(x[0].shape, dtype=FP8) for _ in range(3))
    total = residual[0].clone()
    _C.rms_norm_static_fp8_quant(codes, x[0], weight, scale, EPS)
    _C.fused_add_rms_norm_static_fp8_quant(of_sum, x[0], total, weight, scale, EPS)
    _C.silu_and_mul_quant(of_swiglu, gates, scale)
    made = [codes, of_sum, total]
    calls: tuple[tuple[int, Callable[..., None], int, tuple[Any, ...]], ...] = (
        (1, _C.rms_norm_dynamic_per_token_quant, 1, ()),
        (2, _C.rms_norm_per_block_quant, SIZE // GROUP, (GROUP, False)),
    )
    for number, function, columns, more in calls:
        for total_or_none in (None, residual[number].clone()):
            codes, scales = torch.empty_like(codes), torch.empty(len(codes), columns)
            function(codes, x[number], weight, scales, EPS, None, total_or_none, *more)
            made += [codes, scales] if total_or_none is None else [codes, scales, total_or_none]
    return [*made, of_swiglu]


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a.view(torch.uint8), b.view(torch.uint8))
