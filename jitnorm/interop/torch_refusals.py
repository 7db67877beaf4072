"""Reasons why a torch tensor cannot be read or written by a kernel, and what to pass instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Remedies for known subclasses that define what their operations do.
_REMEDIES = {
    "DTensor": "whose parts are in several processes; pass torch tensors only, and no `stream`",
    "AsyncCollectiveTensor": "which may still be in flight; pass its result, `.wait()`",
    "FakeTensor": "which has no values; pass only tensors of its mode, and no `stream`",
    "FunctionalTensor": "which stands for a tensor while torch records; pass only tensors of torch, and no `stream`",
    "UninitializedTensorMixin": "which has no shape yet; pass it after the first call of its module",
    "NestedTensor": "whose rows differ in length; pass `.values()`",
}
_ANY_REMEDY = "a subclass with its own __torch_dispatch__, whose memory is not its values; pass the inner tensor"


# Torch's own subclasses that know what to do with operators.
_TAKING_OPERATORS = ("FakeTensor", "FunctionalTensor", "AsyncCollectiveTensor", "DTensor")


class TorchRefusals:
    """Explains why tensors cannot be passed; only runs off the fast path, so it may be slow.

    Args:
        torch: the module.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def is_plain(self, kind: type) -> bool:
        """Whether a subclass of `torch.Tensor` has memory and leaves its operations to torch."""
        torch = self._torch
        leaves = getattr(kind, "__torch_dispatch__", None) is torch.Tensor.__torch_dispatch__
        return leaves and not issubclass(kind, torch.nn.parameter.UninitializedTensorMixin)

    def is_recorded(self, tensors: Sequence[Any]) -> bool:
        """Whether torch records calls with such tensors, or makes them without access to their memory."""
        torch = self._torch
        if torch._C._len_torch_dispatch_stack() or torch._C._is_tracing():
            return True
        wrapped, functional = torch._C._functorch.is_functorch_wrapped_tensor, torch._is_functional_tensor
        return any(
            isinstance(tensor, torch.Tensor)
            and (type(tensor).__name__ in _TAKING_OPERATORS or wrapped(tensor) or functional(tensor))
            for tensor in tensors
        )

    def is_differentiated(self, tensors: Sequence[Any]) -> bool:
        """Whether autograd would record a call with such tensors."""
        torch = self._torch
        owned = [tensor for tensor in tensors if isinstance(tensor, torch.Tensor)]
        return bool(torch.is_grad_enabled() and torch._C._any_requires_grad(*owned))

    def gradient_refusal(self, tensor: Any, is_output: bool) -> str | None:
        """The part of `refusal` that also holds for tensors in recorded calls."""
        with self._torch._C.DisableTorchFunction():
            return self._of_gradient(tensor, is_output) or self._of_tangent(tensor)

    def tangent_refusal(self, tensor: Any) -> str | None:
        """The part of `gradient_refusal` that also holds for ops with gradients."""
        with self._torch._C.DisableTorchFunction():
            return self._of_tangent(tensor)

    def refusal(self, tensor: Any, is_output: bool) -> str | None:
        """Why a tensor cannot be passed now, and what to pass instead; None if it can."""
        kind = type(tensor)
        if not self.is_plain(kind):
            remedies = [_REMEDIES[base.__name__] for base in kind.__mro__ if base.__name__ in _REMEDIES]
            return f"is a {kind.__name__}, {(remedies or [_ANY_REMEDY])[0]}"
        # Reading a tensor's attribute is an operation, which modes and subclasses could intercept.
        with self._torch._C.DisableTorchFunction():
            return (
                self._of_situation(tensor)
                or self._of_layout(tensor)
                or self._of_memory(tensor)
                or self._of_gradient(tensor, is_output)
                or self._of_tangent(tensor)
                or self._of_view(tensor, is_output)
            )

    def _of_situation(self, tensor: Any) -> str | None:
        torch = self._torch
        for mode in torch.utils._python_dispatch._get_current_dispatch_mode_stack():
            if getattr(mode, "_mode_key", None) is not None:  # a tracing mode of torch itself
                return (
                    f"is used under {type(mode).__name__}, which would not see what a kernel does; "
                    "pass only tensors of that mode, and no `stream`"
                )
        if torch._C._is_tracing():
            return "is used in torch.jit.trace, which would not see what a kernel does; pass no `stream`"
        if torch._C._functorch.is_legacy_batchedtensor(tensor):
            return "is of a batch that autograd computes at once, as for is_grads_batched; use torch.func.vmap"
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor) or torch._is_functional_tensor(tensor):
            return "is used in a transform of torch.func, whose tensors have no memory; call it there, with no `stream`"
        return None

    def layout_refusal(self, tensor: Any) -> str | None:
        """The part of `refusal` that also holds for a tensor of which torch knows no more than its metadata."""
        with self._torch._C.DisableTorchFunction():
            return self._of_layout(tensor)

    def _of_layout(self, tensor: Any) -> str | None:
        torch = self._torch
        if tensor.is_nested:
            return "is a nested tensor, whose rows differ in length; pass `.values()`, or each of its parts"
        if tensor.device.type not in ("cpu", "cuda", "meta"):
            return f"is on {tensor.device}; allowed are cpu and cuda"
        if tensor.layout is not torch.strided:
            return f"has layout {tensor.layout}; allowed is torch.strided, so pass `.to_dense()`"
        if tensor.is_quantized:
            return "is one of torch's quantized tensors; pass `.dequantize()`, or `.int_repr()`"
        if tensor._is_zerotensor():
            return "is a zero tensor without memory; pass `.clone()`"
        return None

    def _of_memory(self, tensor: Any) -> str | None:
        if tensor.is_meta:
            return f"is on {tensor.device}; allowed are cpu and cuda"
        if tensor.numel() and not tensor.data_ptr():
            return "has no memory, as after `untyped_storage().resize_(0)`; pass it while it has its values"
        return None

    def _of_gradient(self, tensor: Any, is_output: bool) -> str | None:
        torch = self._torch
        if tensor.requires_grad and torch.is_grad_enabled():
            unseen = "is written, which autograd would not see" if is_output else "this op has no gradient"
            return f"requires grad, and {unseen}; call the op under torch.no_grad(), or pass `.detach()`"
        return None

    def _of_tangent(self, tensor: Any) -> str | None:
        if self._torch.autograd.forward_ad._current_level >= 0 and self._has_tangent(tensor):
            return (
                "has a tangent, and jitnorm's ops have no gradients of forward mode; pass the primal of `unpack_dual`"
            )
        return None

    def _has_tangent(self, tensor: Any) -> bool:
        """Whether a tensor or one within it, where transforms are nested, has a tangent."""
        torch, functorch = self._torch, self._torch._C._functorch
        forward_ad = torch.autograd.forward_ad
        while True:
            try:
                if forward_ad.unpack_dual(tensor, level=forward_ad._current_level).tangent is not None:
                    return True
            except RuntimeError:  # torch cannot ask a batch, but what is within it
                pass
            if not functorch.is_functorch_wrapped_tensor(tensor):
                return False
            tensor = functorch.get_unwrapped(tensor)

    def _of_view(self, tensor: Any, is_output: bool) -> str | None:
        if is_output and (tensor.is_neg() or tensor.is_conj()):
            return "is a view that changes signs when read, so a kernel cannot write it; pass an ordinary tensor"
        return None
