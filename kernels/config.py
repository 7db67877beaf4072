"""KernelConfig: everything that changes the generated code, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from .activations import canonical
from .all_reduce_rules import SCATTERED
from .config_rules import MOVES, NORMS, check, default_activation, default_weight, distinct_rounding
from .config_text import options_text, read_values
from .field_types import settle_types
from .numerics import ceil_div, round_up
from .quant_spec import PACKED_COLUMNS, SWIZZLED_COLUMNS, QuantSpec


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """A frozen, hashable description of one kernel; two equal configurations give the same source.

    The text form, ``rmsnorm:hidden_size=4096,input=bfloat16,...``, lists all fields up to `pdl`, and later ones unless
    they have their default; `parse` reads it back, and allows every field with a default to be omitted. It also accepts
    the name of an encoding for `quant`: ``rmsnorm:hidden_size=4096,quant=nvfp4``.

    Args:
        op: what the kernel computes: ``rmsnorm``, ``layernorm``; ``quantize`` for quantization alone, ``dequantize``
            for the inverse; ``interleave``, linear scales to the 128x4 layout; ``shuffle``, a permutation of rows;
            ``sum_rows``, the sum of the rows of a float32 matrix; ``mhc_post``, the streams of hyper-connections after
            a layer.
        hidden_size: elements in a row, 1 to 262144; divisible by the block size if `quant` has one along the row, other
            than ``128x128``.
        input: dtype of the values: ``float16``, ``bfloat16`` or ``float32``; for ``dequantize``, dtype of its output;
            also ``float8_e4m3fn`` for ``quantize``; any of 8 to 32 bits for ``interleave`` and ``shuffle``; only
            ``float32`` for ``sum_rows``.
        weight: dtype of the weight: the input's (the default) or ``float32``; ``none`` for ops and norms without a
            weight (``layernorm`` then has no bias either); for ``sum_rows``, dtype of the result.
        unit_bias: whether 1 is added to the weight, as Gemma does.
        residual: whether a residual is added to the input first, and the sum stored.
        quant: how the result is encoded; None writes it in the input's dtype.
        keep_norm: whether the normalized row is also written in the input's dtype, in addition to its codes.
        row_dims: how many leading dimensions remain after merging those that a single stride can walk.
        vector_bytes: bytes to which rows of the input are aligned, 16 at most, as the addresses and strides allow.
        pdl: whether the kernel takes part in programmatic dependent launch.
        gate_columns: for gated activations, how many columns of gates alternate with as many columns of values, in an
            input of twice the hidden size; the hidden size itself, or -1 for it, if gates and values are two halves; 0
            without gates.
        streams: for hyper-connections (mHC), how many rows, 1 to 4, are mixed into one; 0 without.
        many_rows: whether the kernel is for so many rows that throughput matters rather than latency.
        keep_rstd: whether the reciprocal root mean square of each row is also written.
        keep_statistics: whether the mean of each row and the reciprocal of its standard deviation are also written, for
            the gradient; only for ``layernorm`` without `keep_rstd`.
        pair: whether the rows are those of two inputs, each with its own weight and output; only for a plain
            ``rmsnorm``, for ``quantize`` with `rope`, or for either of these in FP8 with given scales.
        second_size: elements in a row of the second input, if they differ from the hidden size; both must then be
            multiples of 16; only with `pair` and a plain norm; 0 for the hidden size.
        batched: whether the first dimension counts matrices, whose scales are padded separately.
        masked: whether a mask says how many rows each matrix has; the rest are not touched; only if `batched`.
        scale_per_matrix: whether the given scale (global, or of FP8 or INT8) has one element per matrix or expert; only
            if `batched`, or with `experts`.
        weight_per_matrix: whether the weight has a row for each matrix; only for ``rmsnorm`` without a bias, if
            `batched`.
        amax_parts: 256 to write only the largest magnitudes of so many parts of the (normalized) elements, some of
            which may be empty, or 1 for that of all, in rows of up to 512; `quant` is None and a residual is only read.
        scale_ub: whether an upper bound for amax is given; only for FP8 and INT8 with scales of rows or groups.
        inverse_global_scale: whether the global scale given is the decode scale, the inverse of the encode scale.
        alignment: the multiple of elements to which rows of codes are padded with zeros; only for ``quantize`` with
            one-byte scales.
        axis: the dimension that blocks and codes run along, -1 or 0; 0 is for two-dimensional weights in E2M1 with the
            linear layout.
        tensor_scale: whether ``dequantize`` multiplies by a float32 tensor of one element.
        shuffle_rows: rows that ``shuffle`` permutes among themselves, 16 or 32.
        bias: whether a bias, in the weight's dtype, is added to the product with the weight; only for ``rmsnorm``
            without `pair`; ``layernorm`` always has one along with its weight. For ``sum_rows``, whether sums for a
            bias follow those for the weight.
        backward: whether to compute the gradients of the norm instead of the norm; `residual` then means that another
            gradient is added to that of the input.
        frozen: whether parameters get no gradients; only if `backward`, with a weight.
        rounding: what is rounded to the input's dtype before a norm or an activation is encoded: nothing (``once``),
            the result (``output``), each step as in Transformers (``hf``), or all but the sum with a residual as in
            vLLM's fused kernels (``vllm``); ``layernorm`` does not support the last two. Of several that give the same
            bits, the first is used.
        activation: the activation applied first, to gates or, with `gate_columns` 0, to all values: ``silu``, ``gelu``
            (by erf), ``gelu_tanh``, ``relu2`` (the square of ReLU), ``swish:ALPHA`` (``x * sigmoid(ALPHA * x)``),
            ``fatrelu:THRESHOLD`` (x above it, else 0) or, only for gates, ``swigluoai`` (gpt-oss) or
            ``swiglu:LIMIT:ALPHA:BETA``: swish of the gate, at most LIMIT, times the sum of BETA and the value, limited
            to LIMIT in magnitude. The default is ``silu`` for gates and none, the empty string, for values. With an
            activation, ``quantize`` needs no `quant`.
        experts: how many experts the rows belong to; their rows follow one another, starting at given offsets; 0
            without; only for ``quantize`` with scales in ``linear`` or swizzled layouts.
        gathers: whether a tensor says which row of the input each output row is computed from; only for ``quantize``
            with `quant`.
        values_first: whether values come before gates.
        rope: how the heads of a `pair` are rotated by their tokens' positions, after the norm if there is one: ``neox``
            pairs the first half with the second, ``interleaved`` pairs neighbours; the empty string means no rotation.
            With it, ``quantize`` needs no `quant`.
        rotary_size: how many elements `rope` rotates, from the start of each head; 0 for all.
        head_size: elements of a head, if a row has several heads for `rope` to rotate; 0 if a row is one head.
        paged: whether rotated keys and unchanged values are inserted into the pages of caches, and only queries are
            written as usual; only with `rope`. `quant` is how the caches are encoded.
        keep_heads: whether keys and values are also written as usual; only if `paged`.
        slots: dtype of the slots of tokens in the caches, ``int32`` or ``int64``.
        angles: dtype of the table of cosines and sines; int32 for one of frequencies.
        positions: dtype of the positions, ``int32`` or ``int64``.
        activates_norm: whether the activation is applied to the norm, before it is encoded.
        gate: what a second tensor of gates multiplies after its activation: ``input`` or ``norm``; empty without. Such
            gates also allow the activation ``sigmoid``.
        weight_rows: how many rows of the hidden size the weight and the bias have; rows cycle through them, because
            they are groups of a longer row, each normalized separately.
        sandwich: whether the input is also normalized, with a separate weight, before a residual is added; only for
            ``rmsnorm``.
        weights: how many weights, 1 to 4, the norm is multiplied by, one after another; with several, each product is a
            separate output; only for an ``rmsnorm`` that is plain or has a residual.
        sinkhorn: for hyper-connections before a layer, how many rounds, 1 to 100, of Sinkhorn and Knopp's normalization
            to apply to the mix of the streams after it; the streams' factors are then computed from projections, not
            given; only for ``quantize`` without `quant`; 0 without.
        splits: how many partial sums, 1 to 64, projections and sums of squares consist of; only with `sinkhorn`.
        prenorm: whether the sum of the streams' squares is computed, not given; only with `sinkhorn`.
        branch_gate: whether the input is multiplied by a gate, a separate tensor, before a residual is added; this and
            the next four are only for ``layernorm``.
        gate_bias: whether a float32 bias is added to that gate; implies `branch_gate`.
        branch_scale: whether the input, or its gate, is multiplied by a float32 number.
        modulated: whether the norm is multiplied by 1 plus a scale, and a shift is added, both separate tensors, as in
            DiT; the norm then has no weight.
        modulation_bias: whether float32 biases are added to the scale and the shift.
        all_reduce: how the inputs of several GPUs, the ranks, are summed before a residual is added: ``one_shot``,
            every rank sums all rows; ``two_shot``, each rank sums some rows and encodes them for all; ``sharded``, the
            same, but the sum with a residual stays on the rank that computes it; ``reduce_scatter``, so do all results;
            ``one_shot_scatter``, the same, but rows are sent to the rank that sums them instead of read by it;
            ``all_gather``, nothing is summed, and each rank encodes its own rows for all; empty, no ranks.
            ``quantize`` without `quant` writes only the sums.
        ranks: how many ranks there are, 2 to 8; only with `all_reduce`, otherwise 0.
        rounds_sum: whether the sum over ranks is first rounded to the input's dtype; with ``two_shot``, ranks then
            exchange the sums, and each encodes all rows.
        sums_of: for ``sum_rows`` of a gradient's partial sums, the dtype of the gradient's rows; empty for any other
            matrix.
        schedule: the text of a `RowSchedule`, such as ``4x2``; empty for the one that the rules choose. It changes no
            bit. The CPU has none, and kernels in CuTe-DSL use their own rules.

    Raises:
        ValueError: a field has a value that is not allowed, or not allowed with the others.

    Example:
        >>> KernelConfig.parse("rmsnorm:hidden_size=4096,quant=e2m1/16").quant.scale_format
        'e4m3'
    """

    op: str
    hidden_size: int
    input: str = "bfloat16"
    weight: str = ""
    unit_bias: bool = False
    residual: bool = False
    quant: QuantSpec | None = None
    keep_norm: bool = False
    row_dims: int = 1
    vector_bytes: int = 16
    pdl: bool = False
    gate_columns: int = 0
    streams: int = 0
    many_rows: bool = False
    keep_rstd: bool = False
    keep_statistics: bool = False
    pair: bool = False
    second_size: int = 0
    batched: bool = False
    masked: bool = False
    scale_per_matrix: bool = False
    weight_per_matrix: bool = False
    amax_parts: int = 0
    scale_ub: bool = False
    inverse_global_scale: bool = False
    alignment: int = 1
    axis: int = -1
    tensor_scale: bool = False
    shuffle_rows: int = 0
    bias: bool = False
    backward: bool = False
    frozen: bool = False
    rounding: str = "once"
    activation: str = ""
    experts: int = 0
    gathers: bool = False
    values_first: bool = False
    rope: str = ""
    rotary_size: int = 0
    head_size: int = 0
    angles: str = "float32"
    positions: str = "int64"
    paged: bool = False
    keep_heads: bool = False
    slots: str = "int64"
    activates_norm: bool = False
    gate: str = ""
    weight_rows: int = 1
    sandwich: bool = False
    weights: int = 1
    sinkhorn: int = 0
    splits: int = 1
    prenorm: bool = False
    branch_gate: bool = False
    gate_bias: bool = False
    branch_scale: bool = False
    modulated: bool = False
    modulation_bias: bool = False
    all_reduce: str = ""
    ranks: int = 0
    rounds_sum: bool = False
    sums_of: str = ""
    schedule: str = ""

    def __post_init__(self) -> None:
        settle_types(self)
        if not self.weight:
            object.__setattr__(self, "weight", default_weight(self.op, self.input))
        if not self.activation:
            object.__setattr__(self, "activation", default_activation(self.gate_columns, self.gate))
        object.__setattr__(self, "activation", canonical(self.activation))
        if self.gate_columns == -1:
            object.__setattr__(self, "gate_columns", self.hidden_size)
        if self.second_size == self.hidden_size:
            object.__setattr__(self, "second_size", 0)
        if self.head_size == self.hidden_size:
            object.__setattr__(self, "head_size", 0)
        if self.gate_bias:
            object.__setattr__(self, "branch_gate", True)
        if self.rope and not self.rotary_size:
            object.__setattr__(self, "rotary_size", self.head_size or self.hidden_size)
        check(self)
        object.__setattr__(self, "rounding", distinct_rounding(self))

    @property
    def normalizes(self) -> bool:
        """Whether rows are normalized."""
        return self.op in NORMS

    @property
    def has_weight(self) -> bool:
        """Whether the normalized row is multiplied by a weight."""
        return self.normalizes and self.weight != "none"

    @property
    def has_bias(self) -> bool:
        """Whether a bias, in the weight's dtype, is added to the product with the weight."""
        return self.bias or (self.op == "layernorm" and self.has_weight)

    @property
    def moves(self) -> bool:
        """Whether elements are moved as they are."""
        return self.op in MOVES

    @property
    def is_row_wise(self) -> bool:
        """Whether the kernel works on whole rows, rather than on independent items."""
        return self.normalizes or (self.op == "quantize" and self.axis != 0 and not self.has_square_blocks)

    @property
    def divides_rows(self) -> bool:
        """Whether ranks divide the rows, which they read from each other, and each encodes only its own."""
        return self.all_reduce not in ("", "one_shot", "one_shot_scatter") and not self.passes_sums

    @property
    def scatters(self) -> bool:
        """Whether each rank has only its own rows of the sum, and keeps what it makes of them."""
        return self.all_reduce in SCATTERED

    @property
    def passes_sums(self) -> bool:
        """Whether ranks divide the rows to sum them, and each encodes all."""
        return self.all_reduce == "two_shot" and self.rounds_sum

    @property
    def counts_rows(self) -> bool:
        """Whether tensors say how many rows each matrix or expert has, so that the host does not know."""
        return self.masked or self.experts > 0

    @property
    def rows_combined(self) -> int:
        """Rows of the hidden size per row of the input: 2 with gates or sums for a bias, or the number of streams."""
        return 2 if self.gate_columns or (self.op == "sum_rows" and self.bias) else self.streams or 1

    @property
    def combine(self) -> str:
        """The source of a row: an enumerator of Combine in common/types.h, without its prefix."""
        if self.all_reduce:
            return "reduced"
        if self.branch_gate or self.branch_scale or self.modulated:
            return "branch"
        if self.residual and not self.backward:
            return "sandwich" if self.sandwich else "add"
        if self.gate_columns:
            return "gated"
        if self.gate:
            return "scaled" if self.gate == "input" else "beside"
        if self.activation and not self.activates_norm:
            return "activated"
        if self.streams:
            return "mapped" if self.sinkhorn else "mix"
        return "rescaled" if self.rescales_input else "input"

    @property
    def sums_first(self) -> bool:
        """Whether a sum over the loaded elements must be known before the row can be computed from them."""
        return self.combine == "sandwich" or self.prenorm

    @property
    def finish(self) -> str:
        """The final step of a norm: an enumerator of Finish in common/types.h, without its prefix; empty for none."""
        if self.modulated:
            return "modulated"
        return "gated" if self.gate == "norm" else "activated" if self.activates_norm else ""

    @property
    def rescales_input(self) -> bool:
        """Whether the input is an FP8 tensor whose scale follows from the global one: E4M3, quantized as it is."""
        is_given = self.quant is not None and self.quant.has_blocks and self.quant.global_scale == "given"
        is_combined = self.gate_columns or self.activation or self.streams
        return self.op == "quantize" and self.input == "float8_e4m3fn" and is_given and not is_combined

    @property
    def block_size(self) -> int:
        """Elements of a row that share a scale; 1 if scales belong to rows, to the tensor, or do not exist."""
        return self.quant.block_columns if self.quant else 1

    @property
    def block_rows(self) -> int:
        """Rows that share the scale of a block."""
        return self.quant.block_rows if self.quant else 1

    @property
    def has_square_blocks(self) -> bool:
        """Whether blocks span rows as well as columns."""
        return self.block_rows > 1

    @property
    def encoded_size(self) -> int:
        """Elements in a row of codes: the hidden size, rounded up to the alignment; of two sizes, the larger."""
        return max(round_up(self.hidden_size, self.alignment), self.second_size)

    @property
    def row_multiple(self) -> int:
        """The multiple that the layout of the scales rounds the number of rows up to."""
        return self.quant.row_multiple if self.quant else 1

    @property
    def scale_columns(self) -> int:
        """Blocks of a row."""
        if self.quant and self.quant.has_given_scales and self.quant.given_block[1] is None:
            return 1
        return ceil_div(self.encoded_size, self.block_size)

    @property
    def padded_scale_columns(self) -> int:
        """Scales that the layout stores for each row, including padding."""
        if self.quant is None:
            return self.scale_columns
        multiple = SWIZZLED_COLUMNS if self.quant.is_swizzled else PACKED_COLUMNS if self.quant.is_packed else 1
        return round_up(self.scale_columns, multiple)

    @property
    def needs_row_amax(self) -> bool:
        """Whether the largest magnitude of each row, or of each of its chunks, is found before it is encoded."""
        waits = self.quant is not None and (self.quant.needs_row_amax or self.quant.crosses_warps)
        return (self.amax_parts > 0 and self.normalizes) or waits

    def __str__(self) -> str:
        implied = {"activation": default_activation(self.gate_columns, self.gate)}
        later = [
            f.name for f in fields(self)[len(ALWAYS_NAMED) :] if getattr(self, f.name) != implied.get(f.name, f.default)
        ]
        listed = [*ALWAYS_NAMED[1:], *later]
        return f"{self.op}:" + options_text({name: getattr(self, name) for name in listed})

    @classmethod
    def parse(cls, text: str) -> KernelConfig:
        """Return the KernelConfig of a text form, or raise ValueError saying what cannot be read."""
        return cls(**read_fields(text))


# The fields that text forms always name: those up to `pdl`.
_NAMES = tuple(field.name for field in fields(KernelConfig))
ALWAYS_NAMED = _NAMES[: _NAMES.index("pdl") + 1]


def read_fields(text: str) -> dict[str, Any]:
    """Read the fields that the text form of a KernelConfig names, including the op, or raise ValueError."""
    op, _, rest = text.strip().partition(":")
    values = {"op": op, **read_options(rest)}
    if "hidden_size" not in values:
        raise ValueError(f"config: {text!r} has no hidden_size; write for example rmsnorm:hidden_size=4096")
    return values


def read_options(text: str) -> dict[str, Any]:
    """Read the fields that follow the op in a text form, or raise ValueError."""
    return read_values(text, _TYPES)


_TYPES = {field.name: str(field.type) for field in fields(KernelConfig) if field.name != "op"}
