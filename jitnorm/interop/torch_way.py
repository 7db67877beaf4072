"""The fast path for torch tensors: for each dispatcher, generated functions whose text names its arguments.

A loop over the arguments would add 0.3 us to a call's 1.1; see docs/measured.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from jitnorm.interop.base import Framework, Way, stream_handle

if TYPE_CHECKING:
    from jitnorm.dispatch import Dispatcher

# Checks for states of torch that only `Framework.call` or a refusal handles. Each function takes 30 to 60 ns, its
# public equivalent several times that. Tensors wrapped by torch.func have no address: TVM-FFI or the launcher rejects
# them. Nothing has run when a call raises an error or takes the other way; the slow path then says why, in the caller's
# terms.
_TEXT = """
def call({parameters}):
{read}
    if _count_modes() or _is_tracing() or _forward_ad._current_level >= 0:
        {otherwise}
    records = _is_grad_enabled()
    if {unusual} or records and ({requires_grad}):
        {otherwise}
    patterns = None
    try:
{outputs}
        if {is_given}:
            try:
                _increment_versions(({written},))
            except RuntimeError:
                _note_written(({written},))
        if (_launch({arguments}) if stream is None else _launch({arguments}, _stream_handle(stream))) is not None:
            {otherwise}
    except (BufferError, RuntimeError, TypeError, ValueError):
        {otherwise}
{made}
"""
# Finding by shape and comparing the rest is 0.3 us faster than finding by all three.
_OUTPUT = """
        if {name} is None:
            if patterns is None:
                patterns = _patterns.get({key})
                if patterns is None or {first}.dtype is not patterns[0] or {first}.device != patterns[1]:
                    patterns = _find_patterns({leaders})
                    if patterns is None:
                        {otherwise}
            made_{name} = _empty_like(patterns[{place}])
        elif {is_other}({unusual} or records and {name}.requires_grad):
            {otherwise}
        else:
            made_{name} = {name}
"""
_MOST_PATTERNS = 1024


def usual_way(torch: Any, framework: Framework, dispatcher: Dispatcher) -> Way:
    """`Framework.way` for torch.

    Args:
        torch: the module.
        framework: torch's framework, whose `types` are the types that may be passed.
        dispatcher: the op's dispatcher.
    """
    names = _results_of(dispatcher)
    text = _text_of(
        dispatcher, "named, stream", "return False",
        read=_lines(f"    {name} = named['{name}']" for name in dispatcher.arguments),
        made=_lines([*(f"    named['{name}'] = {made}" for name, made in names.items()), "    return True"]),
    )  # fmt: skip
    made: Way = generated(torch, framework, dispatcher, text, {})
    return made


def direct_call(
    torch: Any, framework: Framework, dispatcher: Dispatcher, parameters: tuple[str, ...], result: str,
    scope: Mapping[str, Any],
) -> Callable[..., Any]:  # fmt: skip
    """`Framework.direct` for torch; the arguments are those of `usual_way` and of `Framework.direct`."""
    passed = ", ".join((*parameters, "stream"))
    named = {**{name: name for name in parameters}, **_results_of(dispatcher)}
    text = _text_of(
        dispatcher, passed, f"return _otherwise({passed})",
        read=_lines(f"    {name} = None" for name in dispatcher.arguments if name not in parameters),
        made=f"    return {result.format_map(named)}",
    )  # fmt: skip
    return generated(torch, framework, dispatcher, text, scope)


def generated(
    torch: Any, framework: Framework, dispatcher: Dispatcher, text: str, further: Mapping[str, Any]
) -> Callable[..., Any]:
    """A function of this text, which may also use the names in `further`."""
    patterns: dict[Any, tuple[Any, ...]] = {}
    allocated = _allocated(dispatcher)

    def find_patterns(*leaders: Any) -> tuple[Any, ...] | None:
        """The first tensor's dtype and device, then what outputs are allocated like; None if not yet known."""
        first, *others = leaders
        likeness = framework.likeness(first)
        shapes = [leader.shape for leader in leaders]
        makers = dispatcher.outputs.makers.get((likeness, *shapes) if others else likeness)
        found = [getattr(makers[name], "pattern", None) for name in allocated] if makers else [None]
        if any(each is None for each in found):
            return None
        if len(patterns) >= _MOST_PATTERNS:  # an engine's calls have only a few shapes
            patterns.clear()
        made = patterns[tuple(shapes) if others else first.shape] = (first.dtype, first.device, *found)
        return made

    scope = {
        "_count_modes": torch._C._len_torch_dispatch_stack,
        "_is_tracing": torch._C._is_tracing,
        "_forward_ad": torch.autograd.forward_ad,
        "_is_grad_enabled": torch.is_grad_enabled,
        "_increment_versions": torch._C._increment_version,
        "_note_written": framework.note_written,
        "_Tensor": torch.Tensor,
        "_types": framework.types,
        "_patterns": patterns,
        "_find_patterns": find_patterns,
        "_empty_like": torch.empty_like,
        "_launch": dispatcher.launch,
        "_stream_handle": stream_handle,
        **further,
    }
    exec(text, scope)
    made: Callable[..., Any] = scope["call"]
    return made


def _allocated(dispatcher: Dispatcher) -> list[str]:
    """The outputs that are allocated if they are None."""
    return [name for name in dispatcher.outputs.names if name not in dispatcher.outputs.updated]


def _results_of(dispatcher: Dispatcher) -> dict[str, str]:
    """The expressions of the outputs after a call, by name."""
    allocated = _allocated(dispatcher)
    return {name: f"made_{name}" if name in allocated else name for name in dispatcher.outputs.names}


def _text_of(dispatcher: Dispatcher, parameters: str, otherwise: str, *, read: str, made: str) -> str:
    outputs, leaders = dispatcher.outputs.names, dispatcher.outputs.leaders
    in_place, allocated, results = dispatcher.outputs.in_place, _allocated(dispatcher), _results_of(dispatcher)
    first = leaders[0]
    shapes = ", ".join(f"{name}.shape" for name in leaders)
    inputs = [name for name in dispatcher.names if name not in allocated]
    return _TEXT.format(
        parameters=parameters,
        read=read,
        otherwise=otherwise,
        unusual=_unusual(*inputs),
        outputs="".join(
            _OUTPUT.format(
                name=name,
                first=first,
                key=f"({shapes})",
                leaders=", ".join(leaders),
                place=2 + place,
                otherwise=otherwise,
                unusual=_unusual(name),
                is_other=f"{name} is not {in_place[name]} and " if name in in_place else "",
            )
            for place, name in enumerate(allocated)
        ),
        requires_grad=" or ".join(f"{name}.requires_grad" for name in inputs),
        is_given=" or ".join(f"{name} is not None" for name in outputs),
        written=", ".join(results.values()),
        arguments=", ".join(results.get(name, name) for name in dispatcher.arguments),
        made=made,
    )


def _unusual(*names: str) -> str:
    """Whether one of the arguments is not a plain tensor, or is a view that changes signs when read."""
    # The first comparison, true of most tensors, takes 20 ns less than the second.
    text = "type({0}) is not _Tensor and type({0}) not in _types or {0}.is_neg()"
    return " or ".join(map(text.format, names))


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)
