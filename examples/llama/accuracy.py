"""What formats lose in a model that was trained: its loss, its logits, and the signal-to-noise ratio of activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import jitnorm
from jitnorm import QuantSpec
from llama.arms import Jitnorm, Plain
from llama.model import MATRICES, Shape
from llama.text import text_of
from llama.training import SMALL, Model, loss_of, samples, trained

FORMATS: dict[str, tuple[QuantSpec, Mapping[str, Any]]] = {
    "fp8": (jitnorm.FP8_TOKEN, {}),
    "mxfp8": (jitnorm.MXFP8, {}),
    "nvfp4": (jitnorm.NVFP4, {"global_scale": "tensor"}),
}
"""By name: the encoding, and how the scale of the tensor is found, if there is one."""

_TEST_BYTES, _TEST_SEQUENCES = 1 << 16, 64
_SITES = ("qkv input", "out input", "gate_up input", "down input")  # the linears of a layer, in their order


@dataclass
class Accuracy:
    """What a model computes in a format.

    Attributes:
        format: of activations and weights that are multiplied.
        loss: on text that it was not trained on, in nats a byte.
        perplexity: its exponential.
        logits_snr: of logits, in decibels, against those in float32; None for these.
        snr: of the activations that linears take, and of weights, by the format alone.
    """

    format: str
    loss: float
    perplexity: float
    logits_snr: float | None
    snr: dict[str, float | None]


class Decoded(Jitnorm):
    """jitnorm's operations in any format; products are those of decoded values, in float32, on every device.

    Args:
        shape: the sizes of the model.
        spec: the encoding.
        scales: how the scale of the tensor is found.
    """

    def __init__(self, shape: Shape, spec: QuantSpec, scales: Mapping[str, Any]) -> None:
        super().__init__(shape)
        self.spec, self.scales = spec, scales

    def encoded_weight(self, weight: Tensor) -> Any:
        """What the codes of a weight stand for."""
        return self.encode(weight).dequantize(dtype="float32")

    def linear(self, h: Any, weight: Any) -> Tensor:
        """The product of what codes stand for."""
        return (h.dequantize(dtype="float32") @ weight.t()).bfloat16()


class _Recording(Plain):
    """Plain operations that keep what linears take.

    Args:
        shape: the sizes of the model.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.seen: list[Tensor] = []

    def linear(self, h: Any, weight: Any) -> Tensor:
        """The product with a weight."""
        self.seen.append(h)
        return super().linear(h, weight)


def compared(
    device: str, steps: int, formats: Sequence[str], say: Callable[[str], None], shape: Shape = SMALL
) -> list[Accuracy]:
    """Train a model, then run it in float32, in bfloat16 and in formats, on text that it was not trained on."""
    model = trained(shape, device, steps, say)
    tokens = samples(text_of(_TEST_BYTES, seed=1), _TEST_SEQUENCES, seed=1).to(device)
    with torch.no_grad():
        return list(_compared(model, tokens, formats))


def _compared(model: Model, tokens: Tensor, formats: Sequence[str]) -> Iterator[Accuracy]:
    exact = model.logits(Plain(model.shape), tokens[:, :-1])
    unknown = dict.fromkeys((*_SITES, "weights"))
    yield _accuracy("float32", exact, tokens, None, unknown)
    narrow, recording = model.to(torch.bfloat16), _Recording(model.shape)
    yield _accuracy("bfloat16", narrow.logits(recording, tokens[:, :-1]), tokens, exact, unknown)
    for name in formats:
        ops = Decoded(model.shape, *FORMATS[name])
        logits = narrow.encoded(ops).logits(ops, tokens[:, :-1])
        yield _accuracy(name, logits, tokens, exact, _losses(ops, narrow, recording.seen))


def _accuracy(
    name: str, logits: Tensor, tokens: Tensor, exact: Tensor | None, snr: Mapping[str, float | None]
) -> Accuracy:
    loss = float(loss_of(logits, tokens))
    return Accuracy(name, loss, math.exp(loss), None if exact is None else snr_of([(exact, logits)]), dict(snr))


def _losses(ops: Decoded, model: Model, seen: Sequence[Tensor]) -> dict[str, float | None]:
    """What a format alone makes of activations and of weights, by site."""
    found: dict[str, float | None] = {}
    for at, site in enumerate(_SITES):
        found[site] = snr_of([(x, ops.encode(x).dequantize(dtype="float32")) for x in seen[at :: len(_SITES)]])
    matrices = [getattr(w, name) for w in model.layers for name in MATRICES]
    found["weights"] = snr_of([(x, ops.encode(x).dequantize(dtype="float32")) for x in matrices])
    return found


def snr_of(pairs: Iterable[tuple[Tensor, Tensor]]) -> float:
    """The signal-to-noise ratio of tensors and what has become of them, in decibels.

    Example:
        >>> round(snr_of([(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.5]))]), 3)
        20.0
    """
    signal = noise = 0.0
    for exact, inexact in pairs:
        signal += float(exact.double().square().sum())
        noise += float((exact.double() - inexact.double()).square().sum())
    return 10 * math.log10(signal / noise) if noise else math.inf
