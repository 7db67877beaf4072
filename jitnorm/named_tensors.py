"""Converts quantized tensors to and from named plain ones, for files such as safetensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jitnorm.interop import kind_of
from jitnorm.quantized import TENSORS, QuantizedTensor, leaves_of, of_leaves

_KEY = "jitnorm"


def to_named_tensors(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Split quantized tensors into plain ones, which can be stored in files.

    Args:
        values: quantized tensors by name, and possibly other tensors, which are returned unchanged.

    Returns:
        the tensors by name, with the parts of a quantized one as ``NAME.data``, ``NAME.scale`` and so on; and the
        metadata to store with them, strings by name.

    Raises:
        ValueError: two tensors would have the same name.
        TypeError: `values` is not a mapping.

    Example:
        >>> import jitnorm, numpy as np
        >>> q = jitnorm.quantize(np.ones((2, 64), np.float16), spec=jitnorm.NVFP4)
        >>> tensors, metadata = to_named_tensors({"weight": q, "bias": np.zeros(2)})
        >>> sorted(tensors), metadata
        (['bias', 'weight.data', 'weight.scale'], {'jitnorm': '{"weight": ["e2m1/16/e4m3/linear/none", -1, false]}'})

    With safetensors: ``safetensors.torch.save_file(tensors, path, metadata=metadata)``.
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"values: is {kind_of(values)}; expected tensors by name, such as a state dict")
    tensors: dict[str, Any] = {}
    kinds = {}
    for name, value in values.items():
        parts = {name: value}
        if isinstance(value, QuantizedTensor):
            leaves, kinds[name] = leaves_of(value)
            named = zip(TENSORS, leaves, strict=True)
            parts = {f"{name}.{part}": leaf for part, leaf in named if leaf is not None}
        for key, tensor in parts.items():
            if key in tensors:
                raise ValueError(f"values: two of them are named {key!r}; rename {name!r}")
            tensors[key] = tensor
    return tensors, {_KEY: json.dumps(kinds)}


def from_named_tensors(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None) -> dict[str, Any]:
    """The inverse of `to_named_tensors`.

    Args:
        tensors: the tensors by name.
        metadata: the file's metadata, to which other programs may have added; None if there are no quantized tensors.

    Returns:
        the quantized tensors and the others, by name.

    Raises:
        ValueError: a tensor is missing, or the metadata is not from `to_named_tensors`.
        TypeError: an argument is not a mapping.

    Example:
        >>> import jitnorm, numpy as np
        >>> q = jitnorm.quantize(np.ones((2, 64), np.float16), spec=jitnorm.NVFP4)
        >>> from_named_tensors(*to_named_tensors({"weight": q}))["weight"] == q
        True
    """
    metadata = {} if metadata is None else metadata
    for name, given in (("tensors", tensors), ("metadata", metadata)):
        if not isinstance(given, Mapping):
            raise TypeError(f"{name}: is {kind_of(given)}; expected a mapping, as to_named_tensors returns")
    text = metadata.get(_KEY, "{}")
    values = dict(tensors)
    try:
        kinds = {
            str(name): (str(spec), int(axis), bool(batched)) for name, (spec, axis, batched) in json.loads(text).items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"metadata: {_KEY!r} is {text!r}, not what to_named_tensors returned") from error
    for name, kind in kinds.items():
        leaves = [values.pop(f"{name}.{part}", None) for part in TENSORS]
        for part, leaf in zip(TENSORS[:2], leaves, strict=False):
            if leaf is None:
                raise ValueError(f"tensors: {name}.{part} is missing; pass all that to_named_tensors returned")
        values[name] = of_leaves(leaves, kind)
    return values
