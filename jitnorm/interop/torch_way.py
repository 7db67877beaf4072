"""The fast path for torch tensors: for each dispatcher, a generated function whose text names its arguments.

A loop over the arguments would add 0.3 us to a call's 1.1; see docs/measured.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from jitnorm.interop.base import Framework, Way, stream_handle

if TYPE_CHECKING:
    from jitnorm.dispatch import Dispatcher

# Checks for states of torch that only `Framework.call` or a refusal handles. Each function takes 30 to 60 ns, its
# public equivalent several times that. Tensors wrapped by torch.func have no address: TVM-FFI or the launcher rejects
# them. Nothing has run when a call raises an error or returns False; the slow path then says why, in the caller's
# terms.
_TEXT = """
def call(named, stream):
    if _count_modes() or _is_tracing() or _forward_ad._current_level >= 0:
        return False
{read}
    if {unusual} or _is_grad_enabled() and ({requires_grad}):
        return False
    _makers = None
    try:
{outputs}
        if _makers is None or {is_given}:
            try:
                _increment_versions(({written},))
            except RuntimeError:
                _note_written(({written},))
        if (_launch({arguments}) if stream is None else _launch({arguments}, _stream_handle(stream))) is not None:
            return False
    except (BufferError, RuntimeError, TypeError, ValueError):
        return False
    if _makers is not None:
{made}
    return True
"""
_OUTPUT = """
        if {name} is None:
            if _makers is None:
                _makers = _known_makers.get({likeness})
                if _makers is None:
                    return False
            {name} = _makers["{name}"]({first})
        elif {is_other}({unusual} or {name}.requires_grad and _is_grad_enabled()):
            return False
"""


def usual_way(torch: Any, framework: Framework, dispatcher: Dispatcher) -> Way:
    """`Framework.way` for torch.

    Args:
        torch: the module.
        framework: torch's framework, whose `types` are the types that may be passed.
        dispatcher: the op's dispatcher.
    """
    scope = {
        "_count_modes": torch._C._len_torch_dispatch_stack,
        "_is_tracing": torch._C._is_tracing,
        "_forward_ad": torch.autograd.forward_ad,
        "_is_grad_enabled": torch.is_grad_enabled,
        "_increment_versions": torch._C._increment_version,
        "_note_written": framework.note_written,
        "_types": framework.types,
        "_known_makers": dispatcher.outputs.makers,
        "_launch": dispatcher.launch,
        "_stream_handle": stream_handle,
    }
    exec(_text_of(dispatcher), scope)
    made: Way = scope["call"]
    return made


def _text_of(dispatcher: Dispatcher) -> str:
    outputs, leaders = dispatcher.outputs.names, dispatcher.outputs.leaders
    in_place = dispatcher.outputs.in_place
    allocated = [name for name in outputs if name not in dispatcher.outputs.updated]
    first = leaders[0]
    likeness = f"({first}.shape, {first}.dtype, {first}.device)"  # as `Torch.likeness`
    if len(leaders) > 1:
        likeness = f"({likeness}, {', '.join(f'{name}.shape' for name in leaders)})"
    inputs = [name for name in dispatcher.names if name not in allocated]
    return _TEXT.format(
        read=_lines(f"    {name} = named['{name}']" for name in dispatcher.arguments),
        unusual=_unusual(*inputs),
        outputs="".join(
            _OUTPUT.format(
                name=name,
                first=first,
                likeness=likeness,
                unusual=_unusual(name),
                is_other=f"{name} is not {in_place[name]} and " if name in in_place else "",
            )
            for name in allocated
        ),
        requires_grad=" or ".join(f"{name}.requires_grad" for name in inputs),
        is_given=" or ".join(f"named['{name}'] is not None" for name in outputs),
        written=", ".join(outputs),
        arguments=", ".join(dispatcher.arguments),
        made=_lines(f"        named['{name}'] = {name}" for name in outputs),
    )


def _unusual(*names: str) -> str:
    """Whether one of the arguments is not a plain tensor, or is a view that changes signs when read."""
    return " or ".join(f"type({name}) not in _types or {name}.is_neg()" for name in names)


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)
