"""Makes calls JAX programs: XLA schedules and runs the kernel on its own stream, through jax-tvm-ffi.

Ops thus work inside of JAX's transforms (docs/jax.md), and eager calls cost about as much as JAX's own: RMSNorm takes
26 us on a machine where it took 129 by DLPack, and an addition takes 12.

A missing kernel is built while JAX traces, so a program has it from the start.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, wraps
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter, Signature
from threading import Lock
from typing import TYPE_CHECKING, Any

from jitnorm.interop.base import name_of
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target
from jitnorm.launcher import launcher
from jitnorm.manager import get_kernel

if TYPE_CHECKING:
    from jitnorm.dispatch import Dispatcher
    from jitnorm.ops.gradients import Gradient

_CPU = "cpu"
# Dtypes that JAX lacks, or TVM-FFI cannot pass, are stored as bytes.
_AS_BYTES = ("float4_e2m1fnx2", "float8_e8m0fnu")
PREFIX = "jitnorm"
"""How the names of kernels begin in XLA."""
known: set[str] = set()
"""The registered names."""
_lock = Lock()


def _after_fork() -> None:
    global _lock
    _lock = Lock()  # a thread that was not forked may hold the inherited one


os.register_at_fork(after_in_child=_after_fork)


@cache
def is_available() -> bool:
    """Whether jax-tvm-ffi is installed."""
    return find_spec("jax_tvm_ffi") is not None


def stored_dtype(name: str) -> str:
    """The JAX dtype that stores a DLPack dtype."""
    return "uint8" if name in _AS_BYTES else name


def ordinal_of(device: Any) -> int:
    """The launcher's ordinal of a JAX device; -1 is the CPU."""
    return -1 if device.platform == _CPU else int(device.local_hardware_id)


@lru_cache(maxsize=1024)
def program(
    dispatcher: Dispatcher, scalars: tuple[float, ...], device: Any, in_place: bool
) -> Callable[..., tuple[Any, ...]]:
    """Create a jitted function from an op's inputs to its outputs, both in the order of the dispatcher's tensors.

    Args:
        dispatcher: the op's dispatcher for the options of the call.
        scalars: the op's numbers.
        device: the JAX device; kernels are built for its target.
        in_place: whether the sum reuses the residual's memory, which XLA copies first if it is still needed: 16 layers
            in a `jax.lax.scan` take 10.8 ms instead of 13.3, and half of the memory besides arguments.

    Raises:
        ValueError: when called, if the op does not support such inputs.
        TypeError: likewise, or if it is differentiated.
    """
    import jax

    call, given, made = _kernel_call(dispatcher, scalars, device, in_place)
    op = dispatcher.op.function or dispatcher.op.name
    # It builds on this package, so it is loaded only now.
    gradient = import_module("jitnorm.ops.gradients").gradient_of(dispatcher.op)
    if gradient is None:
        call = _without_gradients(call, op)
    else:
        of = dispatcher.of_op(gradient.recorded) if gradient.recorded else dispatcher
        recorded, _, recorded_made = _kernel_call(of, scalars, device, in_place)
        once = _without_gradients(recorded, op, "second derivative")
        call = _with_gradient(call, once, gradient, given, made, recorded_made, scalars)
    jitted: Callable[..., tuple[Any, ...]] = jax.jit(_with_arrays_alike(call))
    return jitted


def _with_arrays_alike(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call with arrays that vary along the same axes of a mesh, and are gathered where their sharding is explicit.

    Kernels only produce gradients of such types; JAX derives those of the original arrays from them.
    """
    import jax

    @wraps(call)
    def alike(*arrays: Any) -> Any:
        varying = _varying_axes(arrays)
        return call(*(_alike(array, varying) for array in arrays))

    def _alike(array: Any, varying: frozenset[str]) -> Any:
        sharding = jax.typeof(array).sharding
        if any(part is not None for part in sharding.spec):
            replicated = jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec())
            array = jax.sharding.reshard(array, replicated)
        missing = tuple(sorted(varying - _varying_axes([array])))
        return jax.lax.pcast(array, missing, to="varying") if missing else array

    return alike


def _varying_axes(arrays: Sequence[Any]) -> frozenset[str]:
    """The axes of a mesh along which arrays differ, as `jax.shard_map` keeps track of them."""
    import jax

    types = [jax.typeof(array) for array in arrays]
    # JAX before 0.10 stores it elsewhere.
    return frozenset().union(*(each.mat.varying for each in types if hasattr(each, "mat")))


def _kernel_call(
    dispatcher: Dispatcher, scalars: tuple[float, ...], device: Any, in_place: bool
) -> tuple[Callable[..., tuple[Any, ...]], list[str], list[str]]:
    """The kernel's call, which JAX cannot differentiate, and the names of its inputs and of its outputs."""
    import jax

    outputs, names = dispatcher.positions, dispatcher.names
    inputs = tuple(i for i in range(len(names)) if i not in outputs)
    # The position of each kernel argument among inputs and outputs, which XLA passes in this order.
    order = tuple(map((inputs + outputs).index, range(len(names))))
    given, made = [names[i] for i in inputs], [names[i] for i in outputs]
    aliases = {given.index("residual"): made.index("residual_out")} if in_place and "residual_out" in made else {}

    def call(*arrays: Any) -> tuple[Any, ...]:
        for name, array in zip(given, arrays, strict=True):
            _check_extents(name, array.shape)
        leaders = [tuple(arrays[given.index(leader)].shape) for leader in dispatcher.outputs.leaders]
        allocated = dispatcher.outputs.of(leaders, name_of(arrays[0].dtype))
        described = {i: (a.shape, name_of(a.dtype)) for i, a in zip(inputs, arrays, strict=True)}
        described |= {names.index(name): (shape, stored_dtype(dtype)) for name, (shape, dtype) in allocated.items()}
        target = _custom_call(dispatcher, scalars, device, order, tuple(sorted(described.items())))
        typed: dict[str, Any] = {}
        if varying := _varying_axes(arrays):
            typed["manual_axis_type"] = jax.sharding.ManualAxisType(varying=varying)
            mesh = jax.typeof(arrays[0]).sharding.mesh
            typed["sharding"] = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        results = [jax.ShapeDtypeStruct(*described[i], **typed) for i in outputs]
        run = jax.ffi.ffi_call(target, results, vmap_method="sequential", input_output_aliases=aliases)
        return tuple(run(*arrays))

    # JAX's errors name the function and its parameters.
    call.__name__ = call.__qualname__ = dispatcher.op.function or dispatcher.op.name
    call.__signature__ = Signature([Parameter(name, Parameter.POSITIONAL_ONLY) for name in given])  # type: ignore[attr-defined]
    if dispatcher.outputs.folds:
        call = _with_batches_as_rows(call, [name in dispatcher.outputs.of_rows for name in given])
    return call, given, made


def _check_extents(name: str, shape: tuple[Any, ...]) -> None:
    """Reject symbolic dimensions."""
    if not all(isinstance(extent, int) for extent in shape):
        raise TypeError(
            f"{name}: shape is {shape}; kernels are chosen by sizes, so export a program for each, without symbols"
        )


def _with_batches_as_rows(call: Callable[..., Any], folds: list[bool]) -> Callable[..., Any]:
    """The call under `jax.vmap`: a batch becomes a dimension of rows; if weights are batched, too, one call after
    another.

    64 matrices of 8 rows of 1024 take 93 us on the CPU; call by call they took 1683.
    """
    import jax

    batched: Any = jax.custom_batching.custom_vmap(call)

    def rule(size: int, in_batched: list[bool], *arrays: Any) -> tuple[Any, Any]:
        if all(fold or not has_batch for fold, has_batch in zip(folds, in_batched, strict=True)):
            given = zip(arrays, folds, in_batched, strict=True)
            results = batched(
                *(jax.numpy.broadcast_to(a, (size, *a.shape)) if fold and not has_batch else a
                  for a, fold, has_batch in given)
            )  # fmt: skip
        else:
            results = jax.vmap(call, [0 if has_batch else None for has_batch in in_batched])(*arrays)
        return results, tuple(True for _ in results)

    batched.def_vmap(rule)
    return batched  # type: ignore[no-any-return]


def _with_gradient(
    call: Callable[..., Any],
    recorded: Callable[..., Any],
    gradient: Gradient,
    given: list[str],
    made: list[str],
    recorded_made: list[str],
    scalars: tuple[float, ...],
) -> Callable[..., Any]:
    """The call as JAX differentiates it, in reverse mode and once, by the call of the op that is recorded."""
    import jax

    (eps,) = scalars

    def forward(*arguments: Any) -> tuple[Any, Any]:
        arrays = [argument.value for argument in arguments]
        results = recorded(*arrays)
        named = {**dict(zip(given, arrays, strict=True)), **dict(zip(recorded_made, results, strict=True))}
        # Names are no values in JAX, but keys of a dictionary are part of its structure.
        needed = {name: () for name, argument in zip(given, arguments, strict=True) if argument.perturbed}
        return results[: len(made)], ({name: named.get(name) for name in gradient.saved}, needed)

    def backward(kept: tuple[dict[str, Any], dict[str, Any]], grads: tuple[Any, ...]) -> tuple[Any, ...]:
        saved, needed = kept
        of_outputs = (None if isinstance(grad, jax.custom_derivatives.SymbolicZero) else grad for grad in grads)
        found = gradient.backward(saved, dict(zip(made, of_outputs, strict=True)), eps, needed)
        return tuple(found.get(name) for name in given)

    differentiable: Any = jax.custom_vjp(call)
    differentiable.defvjp(forward, backward, symbolic_zeros=True)
    return differentiable  # type: ignore[no-any-return]


def _without_gradients(call: Callable[..., Any], op: str, lacking: str = "gradient") -> Callable[..., Any]:
    """The call with an error that names the op if it is differentiated."""
    import jax

    def rule(_: Any, __: Any) -> Any:
        raise TypeError(
            f"{op}: has no {lacking}; where none is wanted, pass jax.lax.stop_gradient(...) of its arguments"
        )

    refusing: Any = jax.custom_jvp(call)
    refusing.defjvp(rule)
    return refusing  # type: ignore[no-any-return]


def _custom_call(
    dispatcher: Dispatcher,
    scalars: tuple[float, ...],
    device: Any,
    order: tuple[int, ...],
    tensors: tuple[tuple[int, tuple[tuple[int, ...], str]], ...],
) -> str:
    """Register the kernel for calls with such tensors, and return its name in XLA."""
    ordinal = ordinal_of(device)
    stand_ins = [_stand_in(dispatcher.names[place], shape, dtype, ordinal, place) for place, (shape, dtype) in tensors]
    kernel, text = dispatcher.kernel_of(*stand_ins, *scalars)
    # JAX may cache compiled programs on disk, so the name identifies the kernel in any process.
    name = " ".join((PREFIX, text, ",".join(map(str, order)), ",".join(map(repr, scalars))))
    _register_once(name, kernel, order, scalars, device)
    return name


def _stand_in(name: str, shape: tuple[int, ...], dtype: str, ordinal: int, place: int) -> Any:
    """A stand-in for an argument, without memory."""
    try:
        return launcher().stand_in(shape, dtype, ordinal, place)
    except ValueError:
        raise ValueError(f"{name}: dtype is {dtype}, which no kernel takes; convert it") from None


def register_by_name(name: str, device: Any) -> None:
    """Build and register the kernel that a program of another process calls by that name.

    Raises:
        ValueError: it is for a different target than the device's, or from another release of jitnorm.
    """
    try:
        _, config, _, target, places, numbers = name.split(" ")
        order = tuple(map(int, places.split(",")))
        scalars = tuple(map(float, filter(None, numbers.split(","))))
        parsed = KernelConfig.parse(config)
    except ValueError as error:
        raise ValueError(f"program: calls {name!r}, which this release cannot read; export it again") from error
    own = target_of(device)
    if Target(target) != own:
        raise ValueError(f"program: is for {target}, but {device} is {own}; export it there")
    _register_once(name, get_kernel(parsed, own), order, scalars, device)


def target_of(device: Any) -> Target:
    """The target of a JAX device."""
    ordinal = ordinal_of(device)
    return Target("cpu") if ordinal < 0 else Target.of_capability(*launcher().device_capability(ordinal))


def _register_once(name: str, kernel: Any, order: tuple[int, ...], scalars: tuple[float, ...], device: Any) -> None:
    with _lock:
        if name not in known:
            _register(name, kernel, launcher().bind(kernel, order, scalars), device)
            known.add(name)


def _register(name: str, kernel: Any, bound: Any, device: Any) -> None:
    import jax
    from jax_tvm_ffi import register_ffi_target

    if device.platform == _CPU:
        register_ffi_target(name, bound, platform="cpu")
        return
    # XLA may capture even the first call in a graph, when nothing can be loaded anymore.
    capability_of = launcher().device_capability
    wanted = tuple(capability_of(ordinal_of(device)))
    for ordinal in map(ordinal_of, jax.local_devices(backend=device.platform)):
        if tuple(capability_of(ordinal)) == wanted:
            kernel(ordinal)
    register_ffi_target(name, bound, platform="gpu", allow_cuda_graph=True)
