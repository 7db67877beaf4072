"""A QuantizedTensor is a node in torch's and JAX's trees once jitnorm has created one there."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch
from inputs import make_input

from jitnorm import MXFP8, NVFP4, QuantizedTensor, dequantize, quantize
from jitnorm.quantized import leaves_of, of_leaves

X = make_input("real", 4, 64, "float32")


@pytest.mark.parametrize("spec", [MXFP8, NVFP4.with_layout("linear+128x4")], ids=str)
def test_its_leaves_and_what_else_it_is_make_it_again(spec: Any) -> None:
    q = quantize(torch.tensor(X), spec=spec)
    assert of_leaves(*leaves_of(q)) == q


def test_torch_flattens_and_restores_it() -> None:
    q = quantize(torch.tensor(X), spec=MXFP8)
    leaves, tree = torch.utils._pytree.tree_flatten({"q": q})
    assert [leaf is q.data or leaf is q.scale for leaf in leaves if leaf is not None] == [True, True]
    assert torch.utils._pytree.tree_unflatten(leaves, tree)["q"] == q
    halved = torch.utils._pytree.tree_map_only(torch.Tensor, lambda tensor: tensor[:2], q)
    assert (type(halved), halved.shape) == (QuantizedTensor, (2, 64))


def test_it_goes_in_and_out_of_jax_programs() -> None:
    q = jax.jit(lambda x: quantize(x, spec=NVFP4, global_scale="row"))(jnp.asarray(X))
    assert (type(q), q.spec.global_scale, q.shape) == (QuantizedTensor, "row", (4, 64))
    values = jax.jit(lambda q: dequantize(q, dtype="float32"))(q)
    assert (values == dequantize(quantize(jnp.asarray(X), spec=NVFP4, global_scale="row"), dtype="float32")).all()
    assert jax.tree_util.tree_structure(q) == jax.tree_util.tree_structure(
        quantize(jnp.asarray(X), spec=NVFP4, global_scale="row")
    )
