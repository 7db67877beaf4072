"""From an op's call to its kernel: one call into the launcher, which returns to Python only for new kinds of calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any, Protocol

from jitnorm.call_config import config_of_call, prototype
from jitnorm.catalogue.op import Op
from jitnorm.errors import KernelNotReadyError
from jitnorm.interop.base import FastPath
from jitnorm.kernel_source import recipe_text
from jitnorm.kernels.arguments import ScalarArgument
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.interface import interface, tensor_arguments
from jitnorm.kernels.launch_recipe import dispatch_signature
from jitnorm.kernels.quant_spec import require_one_of
from jitnorm.kernels.row_classes import ROW_CLASSES
from jitnorm.kernels.target import Target
from jitnorm.launcher import launcher
from jitnorm.manager import get_kernel, loaded_kernel
from jitnorm.outputs import Outputs

# Creates what each combination of options needs once, so that calls only look it up by their arguments. Types matter,
# because 16.0 and True equal 16 and 1 but are rejected.
per_options = lru_cache(maxsize=None, typed=True)
# Between the names of two arguments, of which the second ends with a semicolon.
_OVERLAPS = " overlaps the memory of "


class Form(Protocol):
    """The form in which a function makes its calls: `ops.forms.Form`."""

    def of(self, dispatcher: Dispatcher) -> Callable[..., Any]:
        """A function that makes a dispatcher's calls in this form."""


class Calls(dict[Form, Callable[..., Any]]):
    """The functions that make a dispatcher's calls, by their form."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        super().__init__()
        self._dispatcher = dispatcher

    def __missing__(self, form: Form) -> Callable[..., Any]:
        made = self[form] = form.of(self._dispatcher)
        return made


class Dispatcher:
    """Runs the calls of one op with one set of options.

    Args:
        op: the op.
        enable_pdl: True, False, or None for wherever the target can.
        fields: of KernelConfig, all that the op and the caller's options fix; the rest follows from the tensors.

    Attributes:
        op: as given.
        enable_pdl: as given.
        options: the fields, as given.
        before: the dispatcher of a first launch that finds the largest magnitudes of the tensor's parts, or None.
        names: the names of the tensors that the op takes with these options, in calling order.
        first: the first of these names.
        tensor_count: how many tensors there are.
        arguments: the names of the tensors, then those of the numbers.
        in_order: gets the arguments of a call from a dict, in order.
        outputs: the names of what the op writes.
        positions: the positions of the outputs among the tensors.
        outputs_among: selects those of a call's tensors that it writes.
        calls: the functions that make calls, by the form in which they are passed; see `ops.forms`.
        fast_paths: the fast path of a call, by the type of its first tensor; see `interop.base.FastPath`.
        takes_as_given: whether the last call's tensors were passed without conversion, which is then tried first for
            the next call.
        launch: one call into the launcher, with the arguments of `run`; returns None, or, if there is no kernel yet and
            nothing was written, the facts of the call.
        find: likewise, but returns the kernel of the call, or None, and runs nothing.
        make_torch_call: see `interop.torch_calls`.
    """

    def __init__(self, op: Op, enable_pdl: bool | None, fields: Mapping[str, Any]) -> None:
        # Before anything remembers the dispatcher: 1 equals True, which another call may pass.
        require_one_of("enable_pdl", enable_pdl, (None, True, False))
        self.op, self.enable_pdl, self.options = op, enable_pdl, fields
        amax = op.amax_before(fields)
        self.before = None if amax is None else Dispatcher(op, enable_pdl, amax)
        self.fast_paths: dict[type, FastPath] = {}
        self.calls = Calls(self)
        self.takes_as_given = True
        example = prototype(fields)
        self.outputs = Outputs(op, fields, example)
        tensors = tensor_arguments(example)
        self.names = tuple(a.name for a in tensors)
        self.first, self.tensor_count = self.names[0], len(tensors)
        self.arguments = (*self.names, *(a.name for a in interface(example) if isinstance(a, ScalarArgument)))
        self.in_order: Callable[[Mapping[str, Any]], tuple[Any, ...]] = itemgetter(*self.arguments)
        self.positions = tuple(map(self.names.index, self.outputs.names))
        # With a single position it would return the tensor itself.
        first = self.positions[0]
        several = self.positions if len(self.positions) > 1 else (slice(first, first + 1),)
        self.outputs_among: Callable[[tuple[Any, ...]], tuple[Any, ...]] = itemgetter(*several)
        self._weight = next((i for i, a in enumerate(tensors) if a.field == "weight"), None)
        self._dtypes = {a.field: i for i, a in enumerate(tensors) if a.field in ("angles", "positions", "slots")}
        functions = launcher().make_dispatcher(json.dumps(dispatch_signature(example)))
        self.launch, self._learn, self._facts, self.find, self.make_torch_call = functions

    def for_caller(self, error: Exception) -> Exception:
        """The error, with its argument under the name that the op's caller knows."""
        dtypes_of = {"input": self.first}
        if self._weight is not None:
            dtypes_of["weight"] = self.names[self._weight]
        return _for_caller(self.op, error, dtypes_of)

    def of_op(self, op: Op) -> Dispatcher:
        """Create the dispatcher of another op for the same options."""
        return Dispatcher(op, self.enable_pdl, {**self.options, **op.fixed})

    def run(self, *arguments: Any) -> None:
        """Run the op.

        Args:
            arguments: the op's arguments that exist with its options, in the order of `interface`, including outputs,
                converted for TVM-FFI; then the stream, None for the caller's current one.
        """
        facts = self.launch(*arguments)
        if facts is not None:
            self._prepare(arguments, facts)(*arguments)

    def kernel_of(self, *arguments: Any) -> tuple[Any, str]:
        """The kernel of a call, built if necessary, and its configuration as text; nothing is run.

        Args:
            arguments: those of `run` without the stream; tensors may be stand-ins without memory.
        """
        config, target = self._config_of(arguments, self._facts(*arguments))
        return get_kernel(config, target), f"{config} for {target}"

    def check(self, *arguments: Any) -> None:
        """Raise the error that a call would raise, given the arguments of `kernel_of`; nothing is built."""
        self._config_of(arguments, self._facts(*arguments))

    def _prepare(self, arguments: tuple[Any, ...], facts: Any) -> Any:
        """Return a function that runs a call whose kernel the launcher lacked: usually `launch`, which now has it."""
        config, target = self._config_of(arguments, facts)
        *_, is_capturing = facts
        if is_capturing:
            return _captured_kernel(config, target)
        self._learn(get_kernel(config, target), *arguments)
        return self.launch

    def _config_of(self, arguments: tuple[Any, ...], facts: Any) -> tuple[KernelConfig, Target]:
        """The configuration of a call's kernel and its target; raises an error if the kernel would reject the call."""
        found, columns, row_dims, vector_bytes, row_class, is_cuda, device, _ = facts
        dtypes = [str(dtype) for dtype in found]  # from TVM-FFI's own kind of string
        for name, value, dtype in zip(self.names, arguments, dtypes, strict=False):
            if not dtype:
                raise TypeError(f"{name}: is {value!r}; expected a tensor")
        target = cuda_target(device) if is_cuda else Target("cpu")
        config = config_of_call(
            self.options,
            target,
            hidden_size=self.outputs.hidden_size(columns),
            input=dtypes[0],
            weight="" if self._weight is None else dtypes[self._weight],
            row_dims=row_dims,
            vector_bytes=vector_bytes,
            row_class=ROW_CLASSES[row_class],
            enable_pdl=self.enable_pdl,
            **{field: dtypes[i] for field, i in self._dtypes.items()},
        )
        _checker(config, target)(*arguments)
        return config, target


@lru_cache(maxsize=64)
def _checker(config: KernelConfig, target: Target) -> Any:
    """A function that raises the error of a call that the kernel would reject."""
    return launcher().make_checker(recipe_text(config, target))


def _captured_kernel(config: KernelConfig, target: Target) -> Any:
    """The kernel for a single call during a capture, where nothing may be loaded or remembered."""
    kernel = loaded_kernel(config, target)
    if kernel is None:
        raise KernelNotReadyError(
            f"the kernel of {config} is not loaded, and loading it would break the CUDA graph being captured; "
            "call the op once with such tensors before the capture begins"
        )
    return kernel


class Dispatchers(dict[bool | None, Dispatcher]):
    """The dispatchers of a norm without other options, by `enable_pdl`, 0.1 us faster than `rounded_dispatcher`.

    Args:
        op: the op.
        rounding: of KernelConfig.
        fields: further fields of all calls.
    """

    def __init__(self, op: Op, rounding: str = "once", **fields: Any) -> None:
        super().__init__()
        self._op, self._fields = op, {"rounding": rounding, **fields}

    def __missing__(self, enable_pdl: bool | None) -> Dispatcher:
        made = self[enable_pdl] = _dispatcher(self._op, enable_pdl, (), **self._fields)
        return made


class RoundingDispatchers(dict[str, Dispatchers]):
    """The `Dispatchers` of a norm, by its rounding."""

    def __init__(self, op: Op, **fields: Any) -> None:
        super().__init__()
        self._op, self._fields = op, fields

    def __missing__(self, rounding: str) -> Dispatchers:
        made = self[rounding] = Dispatchers(self._op, rounding, **self._fields)
        return made


@per_options
def dispatcher_of(op: Op, enable_pdl: bool | None, *options: Hashable) -> Dispatcher:
    """The dispatcher of an op's calls, created once for each combination of options.

    Args:
        op: the op.
        enable_pdl: True, False, or None for wherever the target can.
        options: those of `op.fields`.

    Raises:
        ValueError: an option that is not allowed, or not allowed with the others.
    """
    return _dispatcher(op, enable_pdl, options)


@per_options
def rounded_dispatcher(op: Op, enable_pdl: bool | None, rounding: str, *options: Hashable) -> Dispatcher:
    """`dispatcher_of` for a norm or an activation, with its rounding."""
    return _dispatcher(op, enable_pdl, options, rounding=rounding)


def _dispatcher(op: Op, enable_pdl: bool | None, options: tuple[Hashable, ...], **further: Any) -> Dispatcher:
    try:
        return Dispatcher(op, enable_pdl, {**op.fixed, **op.fields(*options), **further})
    except ValueError as error:
        raise _for_caller(op, error) from None


def _for_caller(op: Op, error: Exception, dtypes_of: Mapping[str, str] | None = None) -> Exception:
    """The error, with its argument under the name that the op's caller knows.

    Args:
        op: the op.
        error: its text begins with the name of an argument, or of the field of KernelConfig that is the argument's
            dtype.
        dtypes_of: the arguments whose dtypes are fields, by field.
    """
    head, colon, rest = str(error).partition(":")
    name, dtype = head.removesuffix(" dtype"), " dtype" if head.endswith(" dtype") else ""
    argument = (dtypes_of or {}).get(name, name) if dtype else name
    known = op.aliases.get(argument, argument)
    what, overlaps, second = rest.partition(_OVERLAPS)
    other, semicolon, remedy = second.partition(";")
    text = f"{known}{dtype}{colon}{what}{overlaps}{op.aliases.get(other, other)}{semicolon}{remedy}"
    return error if text == str(error) else type(error)(text)


@lru_cache(maxsize=64)
def cuda_target(device: int) -> Target:
    """The target of a CUDA device, by its ordinal; ValueError if it is not supported."""
    return Target.of_capability(*launcher().device_capability(device))
