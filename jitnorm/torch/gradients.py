"""Gradients of operators, for torch's autograd and torch.func."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._functorch.autograd_function import enable_single_level_autograd_function
from torch.autograd import forward_ad

from jitnorm.catalogue.op import Op
from jitnorm.interop import check_gradient, framework_of
from jitnorm.ops.gradients import Gradient, gradient_of
from jitnorm.torch.schemas import Schema, schemas_of

Implementation = Callable[..., Any]


def is_differentiated(tensors: Sequence[Any]) -> bool:
    """Whether autograd records a call with these tensors, some of which may be None."""
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


@dataclass(frozen=True)
class OperatorGradient:
    """The gradient of an operator.

    Attributes:
        inputs: the names of its arguments except keywords, in order.
        outputs: the names of its results.
        made: the names of the results of the operator that is called while gradients are recorded, starting with
            `outputs`.
        gradient: the gradient of the op.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    made: tuple[str, ...]
    gradient: Gradient

    def save(self, ctx: Any, inputs: Sequence[Any], output: Any) -> Any:
        """Save what `backward` needs, and return the call's results."""
        results = (output,) if isinstance(output, torch.Tensor) else output
        named = {**dict(zip(self.inputs, inputs, strict=False)), **dict(zip(self.made, results, strict=True))}
        ctx.save_for_backward(*(named[name] for name in self.gradient.saved))
        ctx.eps = named["eps"]
        ctx.set_materialize_grads(False)
        if len(self.made) == len(self.outputs):
            return output
        return results[0] if len(self.outputs) == 1 else results[: len(self.outputs)]

    def needed(self, ctx: Any) -> tuple[str, ...]:
        """The names of the inputs that need gradients, which follow two other arguments."""
        return tuple(name for name, is_needed in zip(self.inputs, ctx.needs_input_grad[2:], strict=False) if is_needed)

    def backward(
        self, eps: float, needed: tuple[str, ...], *tensors: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        """Compute the gradients of the inputs from those of the results and the saved tensors."""
        grads, saved = tensors[: len(self.outputs)], tensors[len(self.outputs) :]
        if all(grad is None for grad in grads):
            return (None,) * len(self.inputs)
        of_outputs = dict(zip(self.outputs, map(_with_dense_rows, grads), strict=True))
        found = self.gradient.backward(dict(zip(self.gradient.saved, saved, strict=True)), of_outputs, eps, needed)
        return tuple(found.get(name) for name in self.inputs)


def _with_dense_rows(grad: torch.Tensor | None) -> torch.Tensor | None:
    """A gradient that kernels can read: an expanded one, whose stride is 0, is copied."""
    return grad if grad is None or grad.stride(-1) == 1 else grad.contiguous()


def operator_gradient(op: Op, schema: Schema) -> OperatorGradient | None:
    """The gradient of an op's operator with this schema; None if it has none."""
    gradient = gradient_of(op)
    if gradient is None:
        return None
    made = schemas_of(gradient.recorded)[False].outputs if gradient.recorded else schema.outputs
    return OperatorGradient((*schema.required, *schema.numbers, *schema.optional), schema.outputs, made, gradient)


def autograd_kernel(operator: Any, implementation: Implementation, gradient: OperatorGradient | None) -> Implementation:
    """The kernel of an operator for autograd and torch.func, which run it before kernels without gradients.

    Torch's own, `torch.library.register_autograd`, rejects torch.func, and with it, a direct call of an operator takes
    10.9 us instead of 8.1; without any, torch.func would get zeros for gradients.

    Args:
        operator: the overload.
        implementation: the overload's implementation, for tensors on any device.
        gradient: the operator's gradient; None if it has none.
    """
    # Each takes 30 to 60 ns, its public equivalent several times that.
    is_grad_enabled, any_requires_grad = torch.is_grad_enabled, torch._C._any_requires_grad
    after_autograd, below_autograd = torch._C._after_autograd_keyset, torch._C._AutoDispatchBelowAutograd
    differentiable = _differentiable(operator, gradient) if gradient else None

    def kernel(keyset: Any, *given: Any, **options: Any) -> Any:
        if forward_ad._current_level >= 0:
            _refuse_tangents(operator, given, options)
        if is_grad_enabled() and any_requires_grad(*given, **options):
            if differentiable is not None:
                return differentiable(keyset & after_autograd, options, *given)
            _refuse(operator, given, options)
        if runs_next[keyset.raw_repr()]:
            return implementation(*given, **options)
        with below_autograd():
            return operator.redispatch(keyset & after_autograd, *given, **options)

    return kernel


class _RunsNext(dict[int, bool]):
    """Whether torch runs the implementation right after autograd, by the bits of a call's dispatch keys.

    Looking up a known set of keys takes 0.1 us, asking torch 1 us.
    """

    def __missing__(self, keys: int) -> bool:
        below = torch._C.DispatchKeySet.from_raw_repr(keys) & torch._C._after_autograd_keyset
        self[keys] = below.highestPriorityTypeId() in (torch._C.DispatchKey.CPU, torch._C.DispatchKey.CUDA)
        return self[keys]


runs_next = _RunsNext()


def _refuse_tangents(operator: Any, given: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Raise TypeError if a tensor of a call has a tangent."""
    inputs = zip((argument.name for argument in operator._schema.arguments), given, strict=False)
    for name, tensor in (*inputs, *options.items()):
        if isinstance(tensor, torch.Tensor) and (reason := framework_of(tensor, name).tangent_refusal(tensor)):
            raise TypeError(f"{name}: {reason}")


def _refuse(operator: Any, given: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Raise TypeError if a tensor of a call requires a gradient."""
    arguments = operator._schema.arguments
    for argument, tensor in zip(arguments, given, strict=False):
        if isinstance(tensor, torch.Tensor):
            check_gradient(tensor, argument.name, is_output=False)
    for name, tensor in options.items():
        if isinstance(tensor, torch.Tensor):
            check_gradient(tensor, name, is_output=True)


_NO_SECOND = "jitnorm's ops have no second derivatives; compute the first ones without create_graph"


# torch.func calls autograd kernels level by level, so these are functions of one level.
class _Once(torch.autograd.function._SingleLevelFunction):  # type: ignore[misc]
    """The backward of an operator, which raises an error if it is itself differentiated.

    `torch.autograd.function.once_differentiable` does that only if the incoming gradients require grad.
    """

    @staticmethod
    def forward(
        ctx: Any, of: OperatorGradient, eps: float, needed: tuple[str, ...], *tensors: torch.Tensor | None
    ) -> Any:
        return of.backward(eps, needed, *tensors)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> Any:
        raise RuntimeError(_NO_SECOND)


class _OnceAtEachLevel(torch.autograd.Function):  # type: ignore[misc]
    """The same where transforms of torch.func are nested, each of which must record it to raise the error."""

    generate_vmap_rule = True

    @staticmethod
    def forward(of: OperatorGradient, eps: float, needed: tuple[str, ...], *tensors: torch.Tensor | None) -> Any:
        return of.backward(eps, needed, *tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> Any:
        raise RuntimeError(_NO_SECOND)


def _differentiable(operator: Any, of: OperatorGradient) -> Implementation:
    """An operator as autograd records it, given the dispatch keys below autograd's, its keywords and its arguments."""
    below_autograd, are_transforming = torch._C._AutoDispatchBelowAutograd, torch._C._are_functorch_transforms_active
    op = of.gradient.recorded

    @cache  # it may be defined after this operator
    def recorded() -> Any:
        return getattr(torch.ops.jitnorm, op.name).default if op else operator

    def of_levels(below: Any, *inputs: Any, **options: Any) -> Any:
        """The outputs of the recorded op, of which outer transforms of torch.func record the operator itself."""
        with torch.enable_grad():
            seen = operator.redispatch(below, *inputs, **options)
        if not op:
            return seen
        outputs = (seen,) if isinstance(seen, torch.Tensor) else tuple(seen)
        return (*outputs, *recorded().redispatch(below, *inputs, **options)[len(outputs) :])

    class Differentiable(torch.autograd.function._SingleLevelFunction):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, below: Any, options: dict[str, Any], *inputs: Any) -> Any:
            with below_autograd():
                made = of_levels if are_transforming() else recorded().redispatch
                output = made(below, *inputs, **options)
            return of.save(ctx, inputs, output)

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
            given = of, ctx.eps, of.needed(ctx), *grads, *ctx.saved_tensors
            if are_transforming():
                return None, None, *_OnceAtEachLevel.apply(*given)
            with enable_single_level_autograd_function():
                return None, None, *_Once.apply(*given)

    Differentiable.__name__ = str(operator)

    def apply(below: Any, options: dict[str, Any], *inputs: Any) -> Any:
        with enable_single_level_autograd_function():
            return Differentiable.apply(below, options, *inputs)

    return apply
