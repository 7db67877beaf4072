"""torch tensors that kernels cannot read or write, derived from ordinary ones, and the errors about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch


class Refused(NamedTuple):
    """A way to create such a tensor, and the expected error."""

    make: Callable[[Any], Any]
    message: str


class Wrapper(torch.Tensor):
    """A tensor whose values are in another."""

    @staticmethod
    def __new__(cls, inner: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(f"{function} of a wrapper")


def freed(tensor: Any) -> Any:
    copy = tensor.clone()
    copy.untyped_storage().resize_(0)
    return copy


def zeros_without_memory(tensor: Any) -> Any:
    return torch._efficientzerotensor(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def nested(tensor: Any) -> Any:
    return torch.nested.nested_tensor([tensor, tensor])


def jagged(tensor: Any) -> Any:
    return torch.nested.nested_tensor([tensor, tensor], layout=torch.jagged)


def quantized(tensor: Any) -> Any:
    return torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.quint8)


WITHOUT_MEMORY = {
    "wrapper": Refused(Wrapper, "is a Wrapper, a subclass with its own __torch_dispatch__"),
    "zero tensor": Refused(zeros_without_memory, "is a zero tensor without memory"),
    "freed": Refused(freed, "has no memory"),
    "meta": Refused(lambda tensor: tensor.to("meta"), "is on meta; allowed are cpu and cuda"),
    "sparse": Refused(lambda tensor: tensor.to_sparse(), "has layout torch.sparse_coo"),
    "nested": Refused(nested, "is a nested tensor"),
    "jagged": Refused(jagged, "is a NestedTensor, whose rows differ in length"),
    "quantized": Refused(quantized, "is one of torch's quantized tensors"),
}
ONLY_ON_CPU = {"mkldnn": Refused(lambda tensor: tensor.to_mkldnn(), "has layout torch._mkldnn")}
