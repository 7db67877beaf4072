"""Linear layers are quantized; heads, embeddings, norms, routers and ignored layers are not."""

from __future__ import annotations

import pytest

from jitnorm.checkpoint.selection import select
from jitnorm.checkpoint.stored import StoredTensor


def matrices(*modules: str) -> list[StoredTensor]:
    return [StoredTensor(f"{module}.weight", "BF16", (32, 32)) for module in modules]


LAYER = "model.layers.0"
LINEAR = [
    *(f"{LAYER}.self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "o_proj", "kv_b_proj")),
    *(f"{LAYER}.mlp.{name}" for name in ("gate_proj", "up_proj", "down_proj", "shared_expert.down_proj")),
    "encoder.layer.0.attention.output.dense",
    f"{LAYER}.block_sparse_moe.experts.0.w2",
]
KEPT = [
    "lm_head", "output", "model.embed_tokens", "transformer.wte", "model.norm", f"{LAYER}.input_layernorm",
    f"{LAYER}.mlp.gate", f"{LAYER}.mlp.router", f"{LAYER}.mlp.router.layer", f"{LAYER}.mlp.shared_expert_gate",
    "vision.patch_embed", "bert.embeddings.word_embeddings",
]  # fmt: skip


def test_linear_layers_are_quantized_and_the_others_stay() -> None:
    found = select(matrices(*LINEAR, *KEPT))
    assert sorted(found.weights) == sorted(LINEAR)
    assert found.ignored == sorted(KEPT)


def test_only_matrices_of_floats_named_weight_are_considered() -> None:
    others = [
        StoredTensor("a.bias", "BF16", (32,)), StoredTensor("conv.weight", "BF16", (8, 8, 3)),
        StoredTensor("a.table", "BF16", (32, 32)), StoredTensor("b.weight", "I64", (32, 32)),
    ]  # fmt: skip
    found = select([*others, *matrices("a")])
    assert (list(found.weights), found.ignored) == (["a"], [])


@pytest.mark.parametrize("dtype", ["F64", "F8_E4M3"])
def test_a_matrix_of_other_floats_is_converted_first_or_ignored(dtype: str) -> None:
    tensors = [StoredTensor("a.b.weight", dtype, (32, 32)), *matrices("c")]
    with pytest.raises(ValueError, match=rf"^in: a\.b\.weight is {dtype}; allowed are BF16, F16, F32.*--ignore 'a\.b'"):
        select(tensors)
    assert select(tensors, ["a.b"]).ignored == ["a.b"]


@pytest.mark.parametrize("pattern", ["visual.*", "re:visual", r"re:.*\.fc\d", "visual.fc?"])
def test_a_pattern_leaves_more_as_it_is(pattern: str) -> None:
    found = select(matrices("visual.fc1", "model.layers.0.mlp.down_proj"), [pattern])
    assert (list(found.weights), found.ignored) == (["model.layers.0.mlp.down_proj"], ["visual.fc1"])


def test_matrices_that_engines_fuse_are_a_group() -> None:
    names = [f"{LAYER}.self_attn.{name}_proj" for name in "qkvo"]
    more = [f"{LAYER}.experts.{number}.{name}" for number in (0, 1) for name in ("w1", "w2", "w3")]
    groups = select(matrices(*names, *more)).groups
    found = sorted(map(sorted, groups.values()))
    assert sorted(names[:3]) in found
    assert [names[3]] in found
    assert [more[0], more[2]] in found
    assert [more[3], more[5]] in found
    assert sorted(module for group in found for module in group) == sorted(names + more)


@pytest.mark.parametrize(
    ("tensors", "ignore", "why"),
    [
        (matrices("a"), ["b*"], r"ignore: 'b\*' matches no weight; names are such as a"),
        (matrices("a"), ["re:("], "ignore: .* is not a regular expression"),
        (matrices("a"), ["a"], "in: no weight is left"),
        (matrices("lm_head"), [], "in: no weight is left"),
        (matrices("x.q_proj", "x.k_proj"), ["*.k_proj"], "leaves x.k_proj as it is, but not x.q_proj"),
        ([StoredTensor("m.experts.down_proj", "BF16", (4, 8, 8))], [], "experts, .* split it into matrices"),
        ([StoredTensor("m.output_linear.weight", "BF16", (4, 16, 16))], [], "holds several experts"),
    ],
)
def test_what_cannot_be_is_refused(tensors: list[StoredTensor], ignore: list[str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        select(tensors, ignore)


def test_experts_in_one_tensor_may_stay_as_they_are() -> None:
    experts = [StoredTensor(f"m.experts.{name}", "BF16", (4, 8, 8)) for name in ("down_proj", "gate_up_proj")]
    assert select([*experts, *matrices("a")], ["*.experts.*"]).ignored == ["m.experts"]
