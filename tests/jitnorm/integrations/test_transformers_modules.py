"""`apply` on modules of plain torch: what it finds, what it skips and why, and what happens as they change."""

from __future__ import annotations

import copy
import io
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import jitnorm
from jitnorm.integrations.transformers import apply, undo
from jitnorm.integrations.transformers.formats import FORMATS

SIZE = 64


class Block(torch.nn.Module):
    """A norm that feeds two linears, which feed a third."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.RMSNorm(SIZE, eps=1e-6)
        self.first, self.second = torch.nn.Linear(SIZE, 32), torch.nn.Linear(SIZE, 32, bias=False)
        self.last = torch.nn.Linear(SIZE, SIZE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        out: torch.Tensor = x + self.last(torch.cat([self.first(h), self.second(h)], -1))
        return out


class Doubled(torch.nn.Module):
    """A module with an unknown name, an RMSNorm times a factor if `factor` is not 1."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.scale, self.factor = torch.nn.Parameter(torch.linspace(0, 2, SIZE)), factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.float()
        h = h * torch.rsqrt((h * h).mean(-1, True) + 1e-5)
        return self.scale * h.to(x.dtype) if self.factor == 1 else self.scale * h.to(x.dtype) * self.factor


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def bfloat16(module: torch.nn.Module) -> Any:
    return module.bfloat16().eval()


def rows(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, SIZE).bfloat16()


def test_norms_are_found_by_what_they_compute_and_others_are_named() -> None:
    class MeanNorm(torch.nn.LayerNorm):
        pass

    model = bfloat16(torch.nn.Sequential(Doubled(1), Doubled(2), MeanNorm(SIZE)))
    report = apply(model)
    assert dict(report.norms) == {"0": "rmsnorm rounding=hf"}
    assert dict(report.left_alone) == {"2": "MeanNorm is no RMSNorm that jitnorm knows"}
    assert str(report).splitlines()[-1] == "left alone: 2: MeanNorm is no RMSNorm that jitnorm knows"


def test_a_norm_has_the_bits_of_its_op_wherever_its_input_lies() -> None:
    model = bfloat16(torch.nn.Sequential(Doubled(1)))
    apply(model)
    for x in (rows(4), rows(2, 3), rows(3, 2).transpose(0, 1), rows(0), rows(8)[::2]):
        assert torch.equal(model(x), jitnorm.rmsnorm(x, model[0].scale, 1e-5, rounding="hf"))
    x = rows(4).float()
    assert torch.equal(model(x), Doubled.forward(model[0], x))
    model[0].scale, x = torch.nn.Parameter(torch.randn(2 * SIZE).bfloat16()[::2]), rows(4)
    assert torch.equal(model(x), Doubled.forward(model[0], x))


def test_linears_share_what_their_norm_encodes_and_notice_what_changes() -> None:
    model = bfloat16(Block())
    assert set(apply(model, "fp8").linears) == {"first", "second", "last"}
    x = rows(4)
    expected = model(x)
    assert model.norm.forward.feeds_linears
    assert torch.equal(model(x), expected)
    with torch.inference_mode():
        assert torch.equal(model(x), expected)
    h = model.norm(x)
    first = model.first(h)
    h.mul_(2)
    assert torch.equal(model.first(h), model.first(h.clone()))
    assert not torch.equal(model.first(h), first)
    model.first.weight.mul_(-1)
    model.first.bias.mul_(-1)
    assert torch.equal(model.first(model.norm(x)), -first)


@pytest.mark.parametrize("how", ["copied", "saved", "compiled"])
def test_a_model_may_be_copied_saved_and_compiled_meanwhile(how: str) -> None:
    model = bfloat16(Block())
    apply(model, "fp8")
    x = rows(4)
    expected = [model(x), model(x)][1]
    if how == "compiled":
        other = torch.compile(model, backend="aot_eager")
    elif how == "copied":
        other = copy.deepcopy(model)
        assert other.first.forward.module is other.first
    else:
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        other = torch.load(file, weights_only=False)
    assert torch.equal(other(x), expected)


def test_hooks_run_and_linears_of_an_mlp_that_have_some_are_not_merged() -> None:
    class Gated(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.nn.Linear(SIZE, 32), torch.nn.Linear(SIZE, 32, bias=False)
            self.c, self.act = torch.nn.Linear(32, SIZE), torch.nn.SiLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.c(self.b(x) * self.act(self.a(x)))
            return out

    model, x = bfloat16(torch.nn.Sequential(Gated())), rows(4)
    assert set(apply(model, "fp8").linears.values()) == {"fp8, in a gated MLP"}
    merged = model(x)
    undo(model)
    seen: list[torch.Size] = []
    model[0].b.register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    assert set(apply(model, "fp8").linears.values()) == {"fp8"}
    torch.testing.assert_close(model(x), merged, rtol=0.1, atol=0.02)
    assert seen == [(4, 32)]


def test_linears_that_stay_say_why() -> None:
    model = bfloat16(Block())
    embedding = torch.nn.Embedding(32, SIZE).bfloat16()
    model.embedding, model.second.weight = embedding, embedding.weight
    model.odd = torch.nn.Linear(SIZE, 24).bfloat16()
    model.last = torch.nn.LazyLinear(SIZE)
    model.wide = torch.nn.Linear(SIZE, SIZE)
    report = apply(model, "fp8")
    assert list(report.linears) == ["first"]
    assert dict(report.left_alone) == {
        "second": "its weight is that of an embedding",
        "odd": "its shape is (24, 64), and torch wants multiples of 16",
        "last": "is a LazyLinear",
        "wide": "its weight is torch.float32, expected torch.bfloat16",
    }


def test_weights_at_any_stride_are_encoded() -> None:
    model, x = bfloat16(torch.nn.Sequential(torch.nn.Linear(SIZE, SIZE))), rows(4)
    apply(model, "fp8")
    expected = model(x)
    model[0].weight = torch.nn.Parameter(model[0].weight.t().contiguous().t())
    assert torch.equal(model(x), expected)


def test_bad_calls_are_errors_and_change_nothing() -> None:
    model = bfloat16(Block())
    with pytest.raises(ValueError, match="quant: is 'int3', expected None or one of 'fp8', 'mxfp8', 'nvfp4'"):
        apply(model, "int3")
    with pytest.raises(ValueError, match="nothing to undo"):
        undo(model)
    with pytest.raises(ValueError, match="no linear"):
        apply(bfloat16(torch.nn.Sequential(Doubled(1))), "fp8")
    model.first.weight.placements = ()  # as DTensors have them
    with pytest.raises(ValueError, match=r"first\.weight is a DTensor"):
        apply(model)
    del model.first.weight.placements
    assert not any("forward" in vars(module) for module in model.modules())
    apply(model, "fp8")
    with pytest.raises(ValueError, match="already"):
        apply(torch.nn.Sequential(model))
    with pytest.raises(TypeError, match=re.escape("input: dtype is torch.float32, expected torch.bfloat16")):
        model.first(torch.ones(2, SIZE))
    with torch.enable_grad(), pytest.raises(TypeError, match="no_grad"):
        model(rows(2))
    undo(model)


@pytest.mark.parametrize(("quant", "capability"), [("fp8", (8, 0)), ("mxfp8", (9, 0)), ("nvfp4", (8, 9))])
def test_a_gpu_without_such_a_product_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, quant: str, capability: tuple[int, int]
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Test GPU")
    with pytest.raises(ValueError, match=f"{quant} on .* cuda:0, Test GPU: use quant=.*None"):
        FORMATS[quant].check(torch.device("cuda", 0))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: FORMATS[quant].capability)
    FORMATS[quant].check(torch.device("cuda", 0))
    with pytest.raises(ValueError, match="the model is on xpu"):
        FORMATS[quant].check(torch.device("xpu"))


def test_norms_alone_compile_without_a_break() -> None:
    model, x = bfloat16(Block()), rows(4)
    apply(model)
    assert torch.equal(torch.compile(model, backend="aot_eager", fullgraph=True)(x), model(x))


@pytest.mark.parametrize("name", ["0.up.weight", "0.down.weight", "0.gate.bias", "0.down.bias", "1.bias"])
def test_any_parameter_that_trains_is_an_error(name: str) -> None:
    class Mlp(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.up, self.down = (torch.nn.Linear(SIZE, SIZE) for _ in range(3))
            self.act_fn = torch.nn.SiLU()

        def forward(self, x: torch.Tensor) -> Any:
            return self.down(self.act_fn(self.gate(x)) * self.up(x))

    model = bfloat16(torch.nn.Sequential(Mlp(), torch.nn.Linear(SIZE, SIZE))).requires_grad_(False)
    model.get_parameter(name).requires_grad_()
    apply(model, "fp8")
    with torch.enable_grad(), pytest.raises(TypeError, match="quantized linears have no gradients"):
        model(rows(2))


def test_norms_train() -> None:
    model = torch.nn.Sequential(Doubled(1))
    x = torch.randn(4, SIZE)
    with torch.enable_grad():
        model(x).square().sum().backward()
        expected, model[0].scale.grad = model[0].scale.grad, None
        apply(model)
        model(x).square().sum().backward()
    torch.testing.assert_close(model[0].scale.grad, expected)
