"""Mutates real launch recipes and asks the launcher to check calls by them: python recipe_fuzzer.py COUNT SEED LAST

A recipe is refused by a ValueError that begins with "recipe:", or accepted, and then calls pass or are refused by a
ValueError or TypeError. Anything else ends the process; the file LAST then holds the recipe.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dlpack_by_hand import CPU, CUDA, tensor_by_hand
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target
from recipe_extents import evaluate

from jitnorm.kernel_source import recipe_text
from jitnorm.launcher import launcher

KERNELS = (
    ("rmsnorm:hidden_size=64,input=float16", "c++", ("cpu", "sm_90a")),
    ("rmsnorm:hidden_size=4096,row_dims=3,quant=e2m1/16/e4m3/linear+128x4/given", "c++", ("cpu", "sm_100f")),
    ("rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3/128x4/row", "cute", ("sm_90a",)),
    ("rmsnorm:hidden_size=384,vector_bytes=2,quant=e4m3/128/f32/column4", "c++", ("cpu", "sm_90a")),
    ("rmsnorm:hidden_size=128,pair=true,row_dims=2", "c++", ("cpu", "sm_90a")),
    ("rmsnorm:hidden_size=128,pair=true,rope=neox,rotary_size=64,quant=e4m3/tensor/f32", "c++", ("cpu", "sm_90a")),
    ("rmsnorm:hidden_size=64,pair=true,rope=neox,paged=true,quant=e4m3/tensor/f32", "c++", ("cpu", "sm_90a")),
    ("quantize:hidden_size=512,quant=e2m1/16/e4m3/128x4/given,batched=true,masked=true", "c++", ("cpu", "sm_100a")),
    ("quantize:hidden_size=384,quant=e4m3/tensor/f32/linear/tensor", "c++", ("cpu", "sm_90a")),
    ("quantize:hidden_size=64,amax_parts=256", "c++", ("cpu", "sm_80")),
    ("quantize:hidden_size=64,axis=0,quant=e2m1/16/e4m3", "c++", ("cpu", "sm_90a")),
    ("dequantize:hidden_size=64,quant=e2m1/32/ue8m0/128x4", "c++", ("cpu", "sm_120a")),
    ("interleave:hidden_size=20,input=uint8,batched=true", "c++", ("cpu", "sm_90a")),
    ("shuffle:hidden_size=64,input=uint8,shuffle_rows=16", "c++", ("cpu", "sm_90a")),
)  # fmt: skip
NUMBERS = (0, 1, -1, 2, 3, 7, 8, 9, 16, 17, 64, 4096, 1 << 31, 1 << 32, 1 << 40, (1 << 63) - 1, -(1 << 63), 1 << 64)
ODDITIES = (10**30, 0.5, -0.0, 1e300, True, False, None, "", "M", "M2", "B", "T", "...", "cpu", "cuda", "float32")
OPERATORS = ("+", "*", "%", "min", "ceil_div", "round_up", "-", "", 7)
DTYPES = ("float64x2", "float4", "int1", "bool", "handle", "uint8x0", "float16x65535", "custom[x]8", "e2m1", "float32x")
LEADING = ((), (0,), (1,), (3,), (128,), (2, 3), (2, 1, 2), (2,) * 9, (1 << 40,), (1 << 40, 1 << 40))


def mutated(recipe: Any, rng: random.Random) -> str:
    """The text of a recipe with a few changes to its structure, to its bytes, or to both."""
    changed = json.loads(recipe)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        change(changed, rng)
    text = json.dumps(changed)
    if rng.random() < 0.2:
        text = with_other_bytes(text, rng)
    return text


def change(recipe: Any, rng: random.Random) -> None:
    places = list(containers(recipe))
    container = rng.choice(places)
    keys = list(container) if isinstance(container, dict) else list(range(len(container)))
    if not keys:
        return
    key, kind = rng.choice(keys), rng.randrange(8)
    if kind == 0:
        del container[key]
    elif kind == 1 and isinstance(container, list):
        container[key:key] = container[key : key + 1] * rng.choice((1, 2, 20))
    elif kind == 2:
        other = rng.choice(places)
        container[key] = json.loads(json.dumps(other))
    elif kind == 3:
        for _ in range(rng.choice((1, 2, 40, 400))):
            container[key] = [rng.choice(OPERATORS), *rng.sample((container[key], any_value(rng)), 2)]
    else:
        container[key] = any_value(rng)


def containers(value: Any) -> Iterator[Any]:
    if isinstance(value, (dict, list)):
        yield value
        for each in value.values() if isinstance(value, dict) else value:
            yield from containers(each)


def any_value(rng: random.Random) -> Any:
    kind = rng.randrange(6)
    if kind < 2:
        return rng.choice(NUMBERS)
    if kind == 2:
        return rng.choice(ODDITIES)
    if kind == 3:
        return rng.choice(DTYPES)
    if kind == 4:
        return [rng.choice(OPERATORS), rng.choice(("M", "M2", "B", 5)), rng.choice(NUMBERS)][: rng.choice((1, 2, 3, 3))]
    return rng.choice(([], {}, [[]], ["..."], ["...", "M"], {"most": 0}))


def with_other_bytes(text: str, rng: random.Random) -> str:
    characters = list(text)
    for _ in range(rng.choice((1, 2, 5))):
        at = rng.randrange(len(characters))
        characters[at : at + rng.choice((0, 1, 1, 5))] = rng.choice(
            ("", "0", "9", '"', "[" * 3000, "]", "{", "-", "e", "\0", "é", ",")
        )
    return "".join(characters)[: rng.choice((None, None, None, len(text) // 2))]


def calls(recipe: Any) -> Iterator[list[Any]]:
    """Arguments of calls as a recipe expects them, and some that no recipe expects. Nothing reads their memory."""
    for leading in LEADING:
        yield [argument_of(recipe, place, leading) for place in range(len(recipe["arguments"]))]
    device = (CUDA, 0) if recipe["device"] == "cuda" else (CPU, 0)
    for dtype in dict.fromkeys(name for a in recipe["arguments"] for name in a.get("dtypes", ())[:1]):
        for shape in ((), (64,), (2, 64)):
            yield [tensor_by_hand(1 << 44, shape, dtype, device=device)] * len(recipe["arguments"])


def argument_of(recipe: Any, place: int, leading: tuple[int, ...]) -> Any:
    argument = recipe["arguments"][place]
    if argument["kind"] != "tensor":
        return 1e-6
    rows = math.prod(leading[1:] if recipe["batched"] else leading)
    sizes = rows, leading[0] if recipe["batched"] and leading else 1, math.prod(leading), math.prod(leading[:-1])
    shape = [evaluate(extent, *sizes) for extent in argument["shape"] if extent != "..."]
    if "..." in argument["shape"]:
        shape[:0] = leading
    shape[:0] = [5] * argument["table_dims"]
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    if argument["strided"] and not argument["output"] and len(leading) == 2:
        strides[0] *= 2  # rows that one stride cannot walk
    device = (CUDA, 0) if recipe["device"] == "cuda" else (CPU, 0)
    bounded = tuple(min(extent, (1 << 63) - 1) for extent in shape), tuple(min(s, (1 << 63) - 1) for s in strides)
    return tensor_by_hand((place + 1) << 44, bounded[0], argument["dtypes"][0], strides=bounded[1], device=device)


def check(text: str, usual_calls: list[list[Any]]) -> bool:
    """Whether a recipe is accepted; if so, also check its calls."""
    try:
        checker = launcher().make_checker(text)
    except ValueError as error:
        if not str(error).startswith("recipe: "):
            raise
        return False
    for arguments in (*usual_calls, *own_calls(text)):
        try:
            checker(*arguments)
        except (ValueError, TypeError):
            continue
    return True


def own_calls(text: str) -> list[list[Any]]:
    """Calls as a changed recipe expects them, as far as this can be determined."""
    try:
        return list(calls(json.loads(text)))
    except Exception:
        return []


def main(count: int, seed: int, last: Path) -> None:
    rng = random.Random(seed)
    recipes = [recipe_text(KernelConfig.parse(c), Target(t), language) for c, language, on in KERNELS for t in on]
    usual_calls = {recipe: list(calls(json.loads(recipe))) for recipe in recipes}
    assert all(check(recipe, usual_calls[recipe]) for recipe in recipes), "a real recipe is refused"
    accepted = 0
    with last.open("wb", buffering=0) as file:
        for _ in range(count):
            recipe = rng.choice(recipes)
            text = mutated(recipe, rng)
            file.seek(0)
            file.truncate()
            file.write(text.encode())
            accepted += check(text, usual_calls[recipe])
    print(f"{count} mutations, {accepted} accepted")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
