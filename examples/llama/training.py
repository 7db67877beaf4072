"""A small model of the same kind, trained on text of this repository."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from llama.arms import Plain
from llama.model import LLAMA, LayerWeights, Operations, Shape, empty_cache, layer, places, random_weights
from llama.text import text_of

SMALL = replace(
    LLAMA, name="small", layers=4, hidden=160, heads=5, kv_heads=1, head_size=32, intermediate=448, vocabulary=128
)
CONTEXT, _BATCH, _RATE = 128, 16, 3e-3
_TRAINING_BYTES = 1 << 20


@dataclass
class Model:
    """A whole model.

    Attributes:
        shape: its sizes.
        embedding: (vocabulary, hidden), with which logits are found as well.
        norm: that before the logits.
        layers: the weights of its layers.
    """

    shape: Shape
    embedding: Tensor
    norm: Tensor
    layers: list[LayerWeights]

    @classmethod
    def random(cls, shape: Shape, device: str) -> Model:
        """A model to train, in float32."""
        layers = [random_weights(shape, device, torch.float32) for _ in range(shape.layers)]
        embedding = torch.randn(shape.vocabulary, shape.hidden, device=device) * shape.hidden**-0.5
        return cls(shape, embedding, torch.ones(shape.hidden, device=device), layers)

    @property
    def tensors(self) -> list[Tensor]:
        """All weights."""
        of_layers = [tensor for w in self.layers for tensor in w if tensor is not None]
        return [self.embedding, self.norm, *of_layers]

    def to(self, dtype: torch.dtype) -> Model:
        """The same in another dtype."""
        layers = [LayerWeights(*(None if t is None else t.detach().to(dtype) for t in w)) for w in self.layers]
        return Model(self.shape, self.embedding.detach().to(dtype), self.norm.detach().to(dtype), layers)

    def encoded(self, ops: Operations) -> Model:
        """The same with the matrices of its layers as operations take them."""
        return replace(self, layers=[w.encoded(ops.encoded_weight) for w in self.layers])

    def logits(self, ops: Operations, tokens: Tensor) -> Tensor:
        """The logits behind each token of (sequences, length), float32."""
        sequences, length = tokens.shape
        at = places(self.shape, sequences, length, 0, str(tokens.device))
        x = self.embedding[tokens.flatten()]
        residual = torch.zeros_like(x)
        for w in self.layers:
            cache = empty_cache(self.shape, sequences, length, str(tokens.device), x.dtype)
            x, residual = layer(ops, w, x, residual, cache, at)
        h, _ = Plain(self.shape).add_norm(x, residual, self.norm)
        return (h @ self.embedding.t()).float().view(sequences, length, -1)


def loss_of(logits: Tensor, tokens: Tensor) -> Tensor:
    """The mean of the negative logarithm of each next token's probability, by logits behind all tokens but the last."""
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def trained(shape: Shape, device: str, steps: int, say: Callable[[str], None]) -> Model:
    """A model that was trained for so many steps, by AdamW; each run has the same seed."""
    torch.manual_seed(0)
    model = Model.random(shape, device)
    for tensor in model.tensors:
        tensor.requires_grad_()
    optimizer = torch.optim.AdamW(model.tensors, lr=_RATE, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, total_steps=steps, pct_start=0.1)
    text, ops = text_of(_TRAINING_BYTES, seed=0), Plain(shape)
    for step in range(steps):
        tokens = samples(text, _BATCH, seed=step).to(device)
        loss = loss_of(model.logits(ops, tokens[:, :-1]), tokens)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.tensors, 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step == steps - 1:
            say(f"step {step}: loss {float(loss.detach()):.3f}")
    return model.to(torch.float32)


def samples(text: Tensor, count: int, seed: int) -> Tensor:
    """Pieces of text, (count, CONTEXT + 1), int64."""
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(text) - CONTEXT, (count, 1), generator=generator)
    return text[starts + torch.arange(CONTEXT + 1)].long()
