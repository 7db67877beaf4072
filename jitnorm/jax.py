"""Programs of JAX that leave the process: `jax.export` with jitnorm's kernels, which both sides have to know."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.export as jax_export

from jitnorm.interop import jax_programs


def export(program: Any, **options: Any) -> Callable[..., Any]:
    """`jax.export.export` that also accepts programs with jitnorm's ops.

    JAX rejects calls that it does not know to be stable. jitnorm's kernels are named by everything that decides their
    bits, so `deserialize` either finds the same kernels or rejects the program.

    Args:
        program: what `jax.jit` returned.
        options: those of `jax.export.export`.

    Returns:
        A function of the program's arguments, arrays or `jax.ShapeDtypeStruct`, that gives a `jax.export.Exported`.

    Example:
        >>> import jax, jax.numpy as jnp, jitnorm
        >>> x, weight = jnp.ones((2, 64), jnp.float16), jnp.ones(64, jnp.float16)
        >>> exported = export(jax.jit(lambda x: jitnorm.rmsnorm(x, weight)))(x)
        >>> exported.out_avals[0].shape
        (2, 64)
    """
    checks = list(options.pop("disabled_checks", ()))

    def exported(*arguments: Any, **named: Any) -> Any:
        program.trace(*arguments, **named)  # registers the kernels
        own = map(jax_export.DisabledSafetyCheck.custom_call, sorted(jax_programs.known))
        return jax_export.export(program, disabled_checks=[*checks, *own], **options)(*arguments, **named)

    return exported


def deserialize(data: bytes | bytearray, device: Any = None) -> Any:
    """`jax.export.deserialize` that also registers, and if necessary builds, the program's jitnorm kernels.

    Args:
        data: what `serialize` of an exported program returned.
        device: the JAX device that will run it, or one like it; None: JAX's first.

    Returns:
        the `jax.export.Exported`.

    Raises:
        ValueError: the program is for a different target than the device's, or from another release of jitnorm.
        ToolchainMissingError: a kernel is not cached and no compiler for it is installed.

    Example:
        >>> import jax, jax.numpy as jnp, jitnorm
        >>> x, weight = jnp.ones((2, 64), jnp.float16), jnp.ones(64, jnp.float16)
        >>> data = export(jax.jit(lambda x: jitnorm.rmsnorm(x, weight)))(x).serialize()
        >>> deserialize(data).call(x).shape
        (2, 64)
    """
    program = jax_export.deserialize(bytearray(data))
    for name in sorted(set(re.findall(rf'@"({jax_programs.PREFIX} [^"]*)"', program.mlir_module()))):
        jax_programs.register_by_name(name, device or jax.devices()[0])
    return program
