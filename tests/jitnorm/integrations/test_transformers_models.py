"""Small models of each kind have the same bits with jitnorm's norms, and decoded products with its linears."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

import jitnorm
from jitnorm.integrations.transformers import apply, undo
from jitnorm.integrations.transformers.formats import FORMATS, Format

PAGE = Path(__file__).parents[3] / "docs" / "transformers.md"
SIZES = {
    "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 96, "max_position_embeddings": 64, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": None,
}  # fmt: skip
LATENT = {
    "q_lora_rank": 64, "kv_lora_rank": 64, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 16,
    "first_k_dense_replace": 1, "num_key_value_heads": 4, "n_group": 2, "topk_group": 1, "moe_intermediate_size": 64,
    "num_local_experts": 8, "n_routed_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip
# By kind: the classes' prefix, its settings, how many norms it has of which sort, and how many linears.
HF, GEMMA, OUTPUT = "rmsnorm rounding=hf", "gemma_rmsnorm rounding=output", "rmsnorm rounding=output"
KINDS: dict[str, tuple[str, dict[str, Any], int, str, int]] = {
    "llama": ("Llama", {}, 5, HF, 14),
    "qwen3": ("Qwen3", {}, 9, HF, 14),
    "gemma3": ("Gemma3", {"tie_word_embeddings": True}, 13, GEMMA, 14),
    "mistral": ("Mistral", {}, 5, HF, 14),
    "deepseek_v3": ("DeepseekV3", LATENT, 9, HF, 16),
    "gpt_oss": ("GptOss", {"num_local_experts": 4, "num_experts_per_tok": 2}, 5, OUTPUT, 8),
    "glm4": ("Glm4", {}, 9, HF, 12),
}
TOKENS = torch.arange(3, 19).reshape(2, 8)
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    pytest.importorskip("transformers", reason="the models are those of transformers")
    with torch.no_grad():
        yield


def new_model(kind: str, seed: int = 0) -> Any:
    prefix, settings, *_ = KINDS[kind]
    module = import_module(f"transformers.models.{kind}.modeling_{kind}")
    config_class = getattr(module, f"{prefix}TextConfig", None) or getattr(module, f"{prefix}Config")
    torch.manual_seed(seed)
    model = getattr(module, f"{prefix}ForCausalLM")(config_class(**{**SIZES, **settings})).bfloat16().eval()
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.add_(torch.randn(weight.shape) * 0.3)
    return model


model_of = cache(new_model)


@contextmanager
def applied(model: Any, quant: str | None = None) -> Iterator[Any]:
    report = apply(model, quant)
    try:
        yield report
    finally:
        undo(model)


def generated(model: Any) -> torch.Tensor:
    tokens: torch.Tensor = model.generate(TOKENS, max_new_tokens=4, do_sample=False)
    return tokens


@every_kind
def test_logits_and_generated_tokens_are_those_of_the_model_bit_for_bit(kind: str) -> None:
    model = model_of(kind)
    logits, tokens = model(TOKENS).logits, generated(model)
    with applied(model) as report:
        assert torch.equal(model(TOKENS).logits, logits)
        assert torch.equal(generated(model), tokens)
    norms = [name for name, each in model.named_modules() if "Norm" in type(each).__name__]
    assert dict(report.norms) == dict.fromkeys(norms, KINDS[kind][3])
    assert len(norms) == KINDS[kind][2]
    assert (report.linears, report.left_alone) == ({}, {})
    assert torch.equal(model(TOKENS).logits, logits)


def as_encoded(x: torch.Tensor, to: Format) -> torch.Tensor:
    decoded: torch.Tensor = jitnorm.quantize(x.contiguous(), spec=to.spec, **to.scales).dequantize(dtype="float32")
    return decoded


@contextmanager
def with_plain_linears(model: Any, names: list[str], to: Format) -> Iterator[None]:
    """The model with linears that multiply the decoded input and weight in plain torch."""

    def hook(linear: torch.nn.Linear, inputs: tuple[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.linear(as_encoded(inputs[0], to), as_encoded(linear.weight.detach(), to))
        return (y if linear.bias is None else y + linear.bias.float()).to(output.dtype)

    handles = [model.get_submodule(name).register_forward_hook(hook) for name in names]
    yield
    for handle in handles:
        handle.remove()


# Linears of Qwen3 and Mistral are Llama's.
_QUANTIZED = ("llama", "gemma3", "deepseek_v3", "gpt_oss", "glm4")


@pytest.mark.parametrize(
    ("kind", "quant"), [*((kind, "fp8") for kind in _QUANTIZED), ("llama", "mxfp8"), ("llama", "nvfp4")]
)
def test_quantized_linears_give_what_their_codes_stand_for(kind: str, quant: str) -> None:
    model = model_of(kind)
    plain = model(TOKENS).logits
    with applied(model, quant) as report:
        first, second = model(TOKENS).logits, model(TOKENS).logits
    assert torch.equal(first, second)  # norms encode from the second call on
    assert len(report.linears) == KINDS[kind][4]
    assert report.left_alone["lm_head"] == "gives the logits"
    with with_plain_linears(model, list(report.linears), FORMATS[quant]):
        expected = model(TOKENS).logits
    # The exponential of SiLU and the order of sums differ, and with them a code now and then.
    assert distance(first, expected) < (0.1 if quant == "nvfp4" else 0.03)
    assert distance(first, plain) < (0.5 if quant == "nvfp4" else 0.15)
    assert torch.equal(model(TOKENS).logits, plain)


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.float() - other.float()).norm() / other.float().norm())


def test_norms_encode_for_linears_alone() -> None:
    model = model_of("qwen3")
    with applied(model, "fp8") as report:
        model(TOKENS)
        feeding = {name for name in report.norms if model.get_submodule(name).forward.feeds_linears}
    assert feeding == {name for name in report.norms if name.endswith("layernorm")}


def test_state_dicts_are_those_of_the_model_before_and_after() -> None:
    model, other = new_model("llama"), new_model("llama", seed=1)
    own = {name: weight.clone() for name, weight in model.state_dict().items()}
    with applied(other, "fp8"):
        expected = other(TOKENS).logits
    with applied(model, "fp8"):
        before = model(TOKENS).logits
        assert list(model.state_dict()) == list(own)
        model.load_state_dict(other.state_dict())
        assert torch.equal(model(TOKENS).logits, expected)
        model.load_state_dict(own, assign=True)
        assert torch.equal(model(TOKENS).logits, before)


def test_a_model_in_float32_is_that_model_but_for_the_order_of_sums() -> None:
    model = new_model("llama").float()
    logits = model(TOKENS).logits
    with applied(model) as report:
        torch.testing.assert_close(model(TOKENS).logits, logits, rtol=1e-5, atol=1e-6)
        assert len(report.norms) == 5
        with pytest.raises(ValueError, match="already"):
            apply(model)
    with pytest.raises(ValueError, match=r"no linear to multiply in fp8 .*float32, expected torch\.bfloat16"):
        apply(model, "fp8")
    assert not any("forward" in vars(module) for module in model.modules())


def test_models_that_are_quantized_or_sharded_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("llama")
    monkeypatch.setattr(model, "is_quantized", True, raising=False)
    with pytest.raises(ValueError, match="quantized already"):
        apply(model, "fp8")
    monkeypatch.setattr(model, "_tp_size", 2, raising=False)
    with pytest.raises(ValueError, match="sharded"):
        apply(model)


@pytest.mark.parametrize(
    "example", re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
)
def test_the_examples_of_the_page_run(example: str) -> None:
    if "from kernels" in example:
        pytest.skip("needs a GPU, and versions of both packages that go together; test_hub_layers.py tests the layers")
    with torch.enable_grad():
        exec(compile(example, PAGE.name, "exec"), {})


@pytest.mark.gpu
@pytest.mark.parametrize("quant", [None, "fp8"])
def test_a_gpu_gives_what_the_cpu_gives(quant: str | None) -> None:
    model = new_model("llama")
    with applied(model, quant):
        expected = model(TOKENS).logits
        model.cuda()
        for _ in range(2):  # norms encode from the second call on
            assert distance(model(TOKENS.cuda()).logits.cpu(), expected) < 0.1
