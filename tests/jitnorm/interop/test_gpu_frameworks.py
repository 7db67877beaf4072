"""Frameworks on the GPU: the same bytes from all, each on its own stream."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from expected import (
    FORMATS,
    NVFP4,
    Fp4Options,
    assert_all_same,
    assert_same_bytes,
    expected_fp4,
    expected_rmsnorm,
)
from frameworks import GPU_FRAMEWORKS, to_torch
from inputs import DTYPES, make_input, make_weight
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target

import jitnorm
from jitnorm import KernelNotReadyError, rmsnorm, rmsnorm_fp4quant
from jitnorm.interop import jax_programs

pytestmark = pytest.mark.gpu

ROWS, SIZE = 300, 384
# Long enough that work on the wrong stream overtakes it: about 50 ms.
DELAY_CYCLES = 100_000_000
MODULES = {"torch": "torch", "cupy": "cupy", "jax": "jax", "tvm_ffi": "tvm_ffi"}


@pytest.fixture
def jax_gpu() -> Any:
    """JAX's first GPU."""
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    try:
        return jax.devices("gpu")[0]
    except RuntimeError:
        pytest.skip("this JAX has no GPU")


@pytest.fixture(params=GPU_FRAMEWORKS)
def make(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """Create a framework's tensor on the GPU from a NumPy array."""
    pytest.importorskip(MODULES[request.param], reason=f"{request.param} is not installed")
    if request.param == "jax":
        request.getfixturevalue("jax_gpu")
    return GPU_FRAMEWORKS[request.param]


@pytest.fixture(autouse=True)
def _finished() -> Iterator[None]:
    yield
    torch.cuda.synchronize()


def to_host(make: Callable[[Any], Any], tensor: Any) -> Any:
    if make is GPU_FRAMEWORKS["tvm_ffi"]:
        torch.cuda.synchronize()
        return torch.from_dlpack(tensor)
    return tensor


@pytest.mark.parametrize("dtype", DTYPES)
def test_rmsnorm_gives_the_reference_s_bytes(make: Callable[[Any], Any], dtype: str) -> None:
    x, weight = make_input("real", ROWS, SIZE, dtype), make_weight(SIZE, dtype)
    out = rmsnorm(make(x), make(weight))
    assert type(out) is type(make(x))
    assert_same_bytes(to_host(make, out), expected_rmsnorm(x, weight))


@pytest.mark.parametrize("options", [*FORMATS, Fp4Options(layout="both", global_scale=0.75)], ids=str)
def test_rmsnorm_fp4quant_gives_the_reference_s_bytes(make: Callable[[Any], Any], options: Fp4Options) -> None:
    x, weight = make_input("real", ROWS, SIZE, "bfloat16"), make_weight(SIZE, "bfloat16")
    scale = options.given_global_scale()
    given = None if scale is None else make(scale)
    outputs = rmsnorm_fp4quant(make(x), make(weight), global_scale=given, **options.keywords)
    assert_all_same([to_host(make, output) for output in outputs], expected_fp4(x, weight, options))


def test_an_empty_batch(make: Callable[[Any], Any]) -> None:
    x, weight = make_input("real", 0, SIZE, "float16"), make_weight(SIZE, "float16")
    assert tuple(rmsnorm(make(x), make(weight)).shape) == (0, SIZE)
    assert [tuple(output.shape) for output in rmsnorm_fp4quant(make(x), make(weight))] == [(0, 192), (0, 24)]


@pytest.fixture
def late() -> tuple[Any, Any, Callable[[torch.Tensor], None]]:
    """An input, a weight, and a function that fills a tensor with that input late on torch's current stream."""
    x, weight = make_input("real", ROWS, SIZE, "float16"), make_weight(SIZE, "float16")
    ready = to_torch(x, "cuda")
    # Everything is compiled, loaded and allocated before a stream has to be overtaken.
    rmsnorm(ready, to_torch(weight, "cuda"))
    torch.cuda.synchronize()

    def fill(tensor: torch.Tensor) -> None:
        torch.cuda._sleep(DELAY_CYCLES)
        tensor.copy_(ready)

    return x, weight, fill


def test_torch_calls_run_on_the_current_stream(late: Any) -> None:
    x, weight, fill = late
    side = torch.cuda.Stream()
    tensor, on_gpu, out = torch.zeros(ROWS, SIZE).half().cuda(), to_torch(weight, "cuda"), None
    out = torch.zeros_like(tensor)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        fill(tensor)
        rmsnorm(tensor, on_gpu, out=out)
    assert not side.query(), "the delay is too short to show anything"
    side.synchronize()
    assert_same_bytes(out, expected_rmsnorm(x, weight))


@pytest.mark.parametrize("as_stream", [lambda s: s, lambda s: s.cuda_stream], ids=["object", "integer"])
def test_a_given_stream_is_the_one_that_is_used(late: Any, as_stream: Callable[[Any], Any]) -> None:
    x, weight, fill = late
    side = torch.cuda.Stream()
    tensor, on_gpu = torch.zeros(ROWS, SIZE).half().cuda(), to_torch(weight, "cuda")
    out = torch.zeros_like(tensor)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        fill(tensor)
    rmsnorm(tensor, on_gpu, out=out, stream=as_stream(side))
    side.synchronize()
    assert_same_bytes(out, expected_rmsnorm(x, weight))


def test_cupy_calls_run_on_the_current_stream(late: Any) -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    x, weight, fill = late
    tensor, on_gpu = torch.zeros(ROWS, SIZE).half().cuda(), cupy.asarray(weight)
    array, out = cupy.from_dlpack(tensor), cupy.zeros((ROWS, SIZE), "float16")
    torch.cuda.synchronize()
    cupy.cuda.Device().synchronize()
    side = cupy.cuda.Stream(non_blocking=True)
    with torch.cuda.stream(torch.cuda.ExternalStream(side.ptr)):
        fill(tensor)
    with side:
        rmsnorm(array, on_gpu, out=out)
    side.synchronize()
    assert_same_bytes(out, expected_rmsnorm(x, weight))


def test_tvm_ffi_calls_run_on_the_stream_that_is_set(late: Any) -> None:
    import tvm_ffi

    x, weight, fill = late
    side = torch.cuda.Stream()
    tensor, on_gpu = torch.zeros(ROWS, SIZE).half().cuda(), to_torch(weight, "cuda")
    out = torch.zeros_like(tensor)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        fill(tensor)
    arguments = [tvm_ffi.from_dlpack(t) for t in (tensor, on_gpu)]
    with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda:0"), side.cuda_stream):
        rmsnorm(*arguments, out=tvm_ffi.from_dlpack(out))
    side.synchronize()
    assert_same_bytes(out, expected_rmsnorm(x, weight))


def test_jax_inputs_that_are_yet_to_be_computed_are_waited_for(jax_gpu: Any) -> None:
    import jax

    x, weight = make_input("real", ROWS, SIZE, "float16"), make_weight(SIZE, "float16")
    array, on_gpu = jax.device_put(x, jax_gpu), jax.device_put(weight, jax_gpu)
    big = jax.device_put(np.eye(4096, dtype=np.float32), jax_gpu)

    @jax.jit
    def slowly(a: Any, m: Any) -> Any:
        for _ in range(40):
            m = m @ m
        return a * m[0, 0].astype(a.dtype)

    slowly(array, big).block_until_ready()
    out = rmsnorm(slowly(array, big), on_gpu)
    doubled = jax.jit(lambda y: y + y)(out)
    expected = expected_rmsnorm(x, weight)
    assert_same_bytes(out, expected)
    assert_same_bytes(doubled, expected + expected)


def test_ops_inside_of_jit_run_in_xla_s_order(jax_gpu: Any) -> None:
    """There are enough ops that XLA makes a graph of the program, for its first run and later ones."""
    pytest.importorskip("jax_tvm_ffi", reason="jax-tvm-ffi is not installed")
    import jax

    x, weight = make_input("real", ROWS, SIZE, "float16"), make_weight(SIZE, "float16")

    @jax.jit
    def layers(a: Any, w: Any) -> Any:
        for _ in range(12):
            a = rmsnorm(a, w) * 2
        return rmsnorm_fp4quant(a, w)

    expected = x
    for _ in range(12):
        expected = expected_rmsnorm(expected, weight) * np.float16(2)
    for _ in range(4):
        outputs = layers(jax.device_put(x, jax_gpu), jax.device_put(weight, jax_gpu))
        assert_all_same(outputs, expected_fp4(expected, weight, NVFP4))


def test_jax_s_transforms_keep_the_bytes(jax_gpu: Any) -> None:
    pytest.importorskip("jax_tvm_ffi", reason="jax-tvm-ffi is not installed")
    import jax

    from jitnorm.jax import export

    x, weight = make_input("real", ROWS, SIZE, "float16"), make_weight(SIZE, "float16")
    on_gpu, weight_on_gpu = jax.device_put(x, jax_gpu), jax.device_put(weight, jax_gpu)
    wanted = jitnorm.add_rmsnorm(x, x, weight)
    donating = jax.jit(jitnorm.add_rmsnorm, donate_argnums=(0, 1))
    assert_all_same(donating(on_gpu + 0, on_gpu + 0, weight_on_gpu), wanted)
    assert_all_same(jax.jit(jitnorm.add_rmsnorm)(on_gpu, on_gpu, weight_on_gpu), wanted)
    batch = jax.vmap(rmsnorm, (0, None))(on_gpu.reshape(3, -1, SIZE), weight_on_gpu)
    assert_same_bytes(batch.reshape(x.shape), expected_rmsnorm(x, weight))
    assert_same_bytes(
        export(jax.jit(rmsnorm))(on_gpu, weight_on_gpu).call(on_gpu, weight_on_gpu), expected_rmsnorm(x, weight)
    )
    assert_same_bytes(on_gpu, x)


def test_jax_calls_without_jax_tvm_ffi_give_the_same_bytes(jax_gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import jax

    x, weight = make_input("real", ROWS, SIZE, "float16"), make_weight(SIZE, "float16")
    monkeypatch.setattr(jax_programs, "is_available", lambda: False)
    out = rmsnorm(jax.device_put(x, jax_gpu), jax.device_put(weight, jax_gpu))
    assert_same_bytes(out, expected_rmsnorm(x, weight))


def test_jax_outputs_have_memory_of_their_own(jax_gpu: Any) -> None:
    import jax

    x, weight = make_input("real", ROWS, SIZE, "float16"), make_weight(SIZE, "float16")
    on_gpu = jax.device_put(weight, jax_gpu)
    outputs = [rmsnorm(jax.device_put(x * i, jax_gpu), on_gpu) for i in range(1, 20)]
    for i, out in enumerate(outputs, start=1):
        assert_same_bytes(out, expected_rmsnorm(x * i, weight), f"output {i}")


def test_a_captured_call_replays_on_new_values() -> None:
    x, weight = make_input("real", ROWS, SIZE, "bfloat16"), make_weight(SIZE, "bfloat16")
    tensor, on_gpu = torch.zeros(ROWS, SIZE, dtype=torch.bfloat16, device="cuda"), to_torch(weight, "cuda")
    rmsnorm(tensor, on_gpu)
    rmsnorm_fp4quant(tensor, on_gpu)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = rmsnorm(tensor, on_gpu)
        quantized = rmsnorm_fp4quant(tensor, on_gpu)
    for kind in ("real", "spiky", "nan"):
        x = make_input(kind, ROWS, SIZE, "bfloat16")
        tensor.copy_(to_torch(x))
        graph.replay()
        torch.cuda.synchronize()
        assert_same_bytes(out, expected_rmsnorm(x, weight), kind)
        assert_all_same(quantized, expected_fp4(x, weight, NVFP4))


@pytest.mark.parametrize("op", [rmsnorm, rmsnorm_fp4quant])
def test_capturing_a_call_never_made_before_is_an_error_and_the_capture_goes_on(op: Any) -> None:
    size = 208 if op is rmsnorm else 224  # used by no other test
    x, weight = make_input("real", 4, size, "float16"), make_weight(size, "float16")
    tensor, on_gpu = to_torch(x, "cuda"), to_torch(weight, "cuda")
    copy = torch.zeros_like(tensor)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        copy.copy_(tensor)
        with pytest.raises(KernelNotReadyError, match="call the op once with such tensors before the capture"):
            op(tensor, on_gpu)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(copy, tensor)
    if op is rmsnorm:
        assert_same_bytes(op(tensor, on_gpu), expected_rmsnorm(x, weight))
    else:
        assert_all_same(op(tensor, on_gpu), expected_fp4(x, weight, NVFP4))


def test_capturing_a_kernel_that_was_never_launched_is_an_error() -> None:
    target = Target.of_capability(*torch.cuda.get_device_capability())
    kernel = jitnorm.get_kernel(KernelConfig("rmsnorm", 240, "float16"), target)
    tensor, on_gpu = torch.zeros(4, 240).half().cuda(), torch.ones(240).half().cuda()
    out = torch.zeros_like(tensor)
    torch.cuda.synchronize()
    # Or graphs of other tests, held by the errors that they expected, are freed during the capture, which breaks it.
    gc.collect()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out.copy_(tensor)
        with pytest.raises(RuntimeError, match="call it once before capturing"):
            kernel(tensor, on_gpu, out, 1e-6)
    graph.replay()
    torch.cuda.synchronize()
