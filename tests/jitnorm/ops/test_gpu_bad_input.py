"""Errors that need a GPU: tensors on several devices, kernels of another device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dlpack_by_hand import CUDA, tensor_by_hand
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target

import jitnorm
from jitnorm import rmsnorm, rmsnorm_fp4quant

pytestmark = pytest.mark.gpu

POISON = 0x5A5A


def norm_call(device: str) -> dict[str, Any]:
    return {
        "input": torch.randn(4, 64).half().to(device),
        "weight": torch.ones(64).half().to(device),
        "out": torch.full((4, 64), POISON, dtype=torch.int16, device=device).view(torch.float16),
    }


def fp4_call(device: str) -> dict[str, Any]:
    return {
        **{name: norm_call(device)[name] for name in ("input", "weight")},
        "y_fp4": torch.full((4, 32), POISON & 0xFF, dtype=torch.uint8, device=device),
        "block_scale": torch.full((4, 4), POISON & 0xFF, dtype=torch.uint8, device=device),
        "global_scale": torch.ones(1, device=device),
    }


@pytest.mark.parametrize(("here", "there", "message"), [
    ("cuda", "cpu", "{name}: is on cpu, expected cuda:0, where input is"),
    ("cpu", "cuda", "{name}: is on cuda:0, expected cpu, where input is"),
])  # fmt: skip
@pytest.mark.parametrize(
    ("op", "make", "name"),
    [
        (rmsnorm, norm_call, "weight"),
        (rmsnorm, norm_call, "out"),
        (rmsnorm_fp4quant, fp4_call, "weight"),
        (rmsnorm_fp4quant, fp4_call, "y_fp4"),
        (rmsnorm_fp4quant, fp4_call, "block_scale"),
        (rmsnorm_fp4quant, fp4_call, "global_scale"),
    ],
)
def test_a_tensor_on_another_device_is_refused_and_nothing_written(
    op: Any, make: Any, name: str, here: str, there: str, message: str
) -> None:
    call = make(here)
    call[name] = call[name].to(there)
    before = {key: tensor.cpu().clone() for key, tensor in call.items()}
    with pytest.raises(ValueError, match=message.format(name=name)):
        op(**call)
    torch.cuda.synchronize()
    for key, tensor in call.items():
        assert torch.equal(tensor.cpu().view(torch.uint8), before[key].view(torch.uint8)), key


def by_hand(tensor: torch.Tensor, **changes: Any) -> Any:
    """The description of a CUDA tensor, with changes."""
    description = {"data": tensor.data_ptr(), "shape": tuple(tensor.shape), "device": (CUDA, tensor.get_device())}
    return tensor_by_hand(**(description | changes))


@pytest.mark.parametrize("is_repeated", [False, True], ids=["first_call", "like_the_last"])
@pytest.mark.parametrize("name", ["input", "weight", "out"])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": None}, r"has no memory \(its data pointer is null\)"),
        ({"data": None, "byte_offset": 1 << 40}, r"has no memory \(its data pointer is null\)"),
        ({"shape": (1 << 32, 1 << 32)}, "shape is .*bytes have addresses"),
        ({"shape": (1 << 61, 64)}, "shape is .*bytes have addresses"),
        ({"strides": (1 << 60, 1), "shape": (4, 64)}, "strides are .*bytes have addresses"),
    ],
    ids=["null", "null_and_offset", "2^64_elements", "2^67_elements", "far_rows"],
)
def test_a_tensor_without_memory_is_refused_and_the_gpu_works_on(
    changes: dict[str, Any], message: str, name: str, is_repeated: bool
) -> None:
    call = norm_call("cuda")
    expected = rmsnorm(call["input"].cpu(), call["weight"].cpu())
    before = call["out"].clone()
    torch.cuda.synchronize()
    if is_repeated:
        good = norm_call("cuda")
        rmsnorm(**{key: by_hand(tensor) for key, tensor in good.items()})
        torch.cuda.synchronize()
    with pytest.raises(ValueError, match=rf"^{name}: {message}"):
        rmsnorm(**{key: by_hand(tensor, **(changes if key == name else {})) for key, tensor in call.items()})
    torch.cuda.synchronize()
    assert torch.equal(call["out"].view(torch.int16), before.view(torch.int16))
    rmsnorm(**call)
    torch.cuda.synchronize()
    assert torch.equal(call["out"].cpu(), expected)


def test_two_gpus_in_one_call_are_refused() -> None:
    tensors = norm_call("cuda:0")
    call = {name: by_hand(tensor) for name, tensor in tensors.items()}
    call["weight"] = by_hand(tensors["weight"], device=(CUDA, 1))  # whether or not there is such a GPU
    with pytest.raises(ValueError, match="weight: is on cuda:1, expected cuda:0, where input is"):
        rmsnorm(**call)
    torch.cuda.synchronize()
    assert (tensors["out"].view(torch.int16) == POISON).all()


def test_every_gpu_gives_the_same_bytes() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    x, weight = torch.randn(64, 384).half(), torch.ones(384).half()
    outputs = [rmsnorm(x.to(device), weight.to(device)).cpu() for device in ("cuda:0", "cuda:1", "cpu")]
    assert torch.equal(outputs[0], outputs[2])
    assert torch.equal(outputs[1], outputs[2])


def test_a_kernel_of_another_generation_is_refused() -> None:
    other = "sm_80" if torch.cuda.get_device_capability() != (8, 0) else "sm_90a"
    call = norm_call("cuda")
    before = call["out"].clone()
    with pytest.raises((ValueError, RuntimeError), match=r"compute capability|CUDA driver: cu\w+ failed"):
        jitnorm.get_kernel(KernelConfig("rmsnorm", 64, "float16"), other)(*call.values(), 1e-6)
    torch.cuda.synchronize()
    assert torch.equal(call["out"].view(torch.int16), before.view(torch.int16))


def test_a_cpu_kernel_refuses_cuda_tensors_and_the_other_way_round() -> None:
    target = Target.of_capability(*torch.cuda.get_device_capability())
    on_cpu = jitnorm.get_kernel(KernelConfig("rmsnorm", 64, "float16"))
    on_gpu = jitnorm.get_kernel(KernelConfig("rmsnorm", 64, "float16"), target)
    with pytest.raises(ValueError, match="input: is on cuda:0, this kernel is built for cpu"):
        on_cpu(*norm_call("cuda").values(), 1e-6)
    with pytest.raises(ValueError, match="input: is on cpu, this kernel is built for a CUDA device"):
        on_gpu(*norm_call("cpu").values(), 1e-6)


def test_a_stream_for_cpu_tensors_is_refused() -> None:
    with pytest.raises(ValueError, match="stream: is given, but input is on the cpu; pass None"):
        rmsnorm(**norm_call("cpu"), stream=torch.cuda.current_stream())
