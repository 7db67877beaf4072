"""Arrays on several devices, which a process of its own has: the right bytes, or an error that names the arguments."""

from __future__ import annotations

from pathlib import Path

import pytest
from python_process import run_python

pytest.importorskip("jax", reason="JAX is not installed")
pytest.importorskip("jax_tvm_ffi", reason="jax-tvm-ffi is not installed")

START = """
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
from jitnorm import NVFP4, add_rmsnorm, compute_amax, rmsnorm, rmsnorm_fp4quant

first, second = jax.devices()
mesh = Mesh(np.array([first, second]), ("d",))
by_row, by_column, everywhere = (NamedSharding(mesh, spec) for spec in (P("d", None), P(None, "d"), P()))
x = np.random.default_rng(0).standard_normal((6, 96)).astype(np.float16)
weight = np.random.default_rng(1).standard_normal(96).astype(np.float16)
put = jax.device_put


def check(what, found, wanted):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert np.array_equal(np.asarray(a).view(np.uint8), np.asarray(b).view(np.uint8)), what


"""
CALLS = """
def swizzled(x, w):
    return rmsnorm_fp4quant(x, w, is_sf_swizzled_layout=True)


for op in (rmsnorm, swizzled, lambda x, w: compute_amax(x)):
    for sharding in (by_row, by_column):
        for call in (op, jax.jit(op)):
            check(sharding, call(put(x, sharding), put(weight, everywhere)), op(x, weight))
check("a weight by column", rmsnorm(put(x, by_column), put(weight, NamedSharding(mesh, P("d")))), rmsnorm(x, weight))

program = jax.jit(rmsnorm, in_shardings=(by_row, everywhere), out_shardings=by_row)
check("shardings of jit", program(x, weight), rmsnorm(x, weight))
assert program(x, weight).sharding == by_row

for checked in (True, False):
    local = jax.shard_map(
        rmsnorm, mesh=mesh, in_specs=(P("d", None), P()), out_specs=P("d", None), check_vma=checked
    )
    check("shard_map", local(x, weight), rmsnorm(x, weight))
    compiled = jax.jit(local).lower(put(x, by_row), put(weight, everywhere)).compile()
    check("shard_map in jit", compiled(put(x, by_row), put(weight, everywhere)), rmsnorm(x, weight))
    assert "all-gather" not in compiled.as_text()

with jax.set_mesh(jax.make_mesh((2,), ("d",), axis_types=(AxisType.Explicit,))):
    check("explicit sharding", jax.jit(rmsnorm)(put(x, P("d", None)), put(weight, P())), rmsnorm(x, weight))
check("pmap", jax.pmap(rmsnorm, in_axes=(0, None))(x.reshape(2, 3, 96), weight), rmsnorm(x, weight).reshape(2, 3, 96))

for a, w in (
    (put(x, second), put(weight, second)),
    (put(x, second), jnp.asarray(weight)),
    (jnp.asarray(x), put(weight, second)),
):
    found = rmsnorm(a, w)
    check("the second device", found, rmsnorm(x, weight))
    assert found.devices() == {second}

try:
    rmsnorm(put(x, first), put(weight, second))
except ValueError as error:
    assert "argument input of rmsnorm" in str(error) and "argument weight of rmsnorm" in str(error), error
else:
    raise AssertionError("two devices in one call")
check("the next call", rmsnorm(put(x, first), put(weight, first)), rmsnorm(x, weight))
"""


GRADIENTS = """
x, weight = x.astype(np.float32), weight.astype(np.float32)


def local(op, out=P("d", None)):
    return jax.shard_map(op, mesh=mesh, in_specs=(P("d", None), P()), out_specs=out)


def add(x, w):
    return add_rmsnorm(x, 2 * x, w)


def gradients(op):
    return jax.grad(lambda x, w: sum((part * x).sum() for part in op(x, w)), (0, 1))


expected = gradients(add)(x, weight)
explicit = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Explicit,))
arguments = put(x, NamedSharding(explicit, P("d", None))), put(weight, NamedSharding(explicit, P()))
for found in (
    gradients(local(add))(x, weight),
    jax.jit(gradients(local(add)))(put(x, by_row), put(weight, everywhere)),
    jax.jit(gradients(add))(*arguments),
):
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)  # rows are added up in another order

try:
    local(rmsnorm, P())(x, weight)
except ValueError as error:
    assert "out_specs which require replication" in str(error), error
else:
    raise AssertionError("parts of devices are no whole result")
check("the next call", local(rmsnorm)(x, weight), rmsnorm(x, weight))
"""


@pytest.mark.parametrize("program", [CALLS, GRADIENTS], ids=["calls", "gradients"])
def test_sharded_and_placed_arrays(program: str, tmp_path: Path) -> None:
    run_python(START + program, cwd=tmp_path, XLA_FLAGS="--xla_force_host_platform_device_count=2")
