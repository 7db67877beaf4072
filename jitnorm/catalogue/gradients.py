"""The gradients of norms, and the sums over rows that finish those of the parameters."""

from __future__ import annotations

from jitnorm.catalogue.op import WITHOUT_WEIGHT, Choices, Fields, Launch, Op
from jitnorm.kernels.backward import sums_gradients
from jitnorm.kernels.config import KernelConfig


def _sum_fields(weight: str, bias: bool, sums_of: str) -> Fields:
    return {"weight": weight, "bias": bias, "sums_of": sums_of}


def _sum(_: Choices, launch: Launch) -> list[Launch]:
    facts = {"hidden_size": launch.hidden_size, "input": launch.input, "weight": launch.weight}
    config = KernelConfig(**{**facts, **launch.options})
    if not sums_gradients(config):
        return []
    options = {**SUM_ROWS.fixed, "weight": config.weight, "bias": config.has_bias, "sums_of": config.input}
    return [Launch(options, launch.hidden_size, "float32", enable_pdl=launch.enable_pdl)]


def _backward_fields(residual: bool, has_weight: bool = True, weight_grad: bool = True) -> Fields:
    return {"residual": residual, **({"frozen": not weight_grad} if has_weight else WITHOUT_WEIGHT)}


def _options(choices: Choices, fields: Fields) -> dict[str, bool]:
    return {"weight_grad": False} if choices["frozen"] else {}


def _backward(name: str, computes: str, *, weight_optional: bool = False, **fixed: object) -> Op:
    return Op(
        name, computes, {**fixed, "backward": True}, _backward_fields,
        choices={"weight": "", "residual": False, "frozen": False}, also=_sum, options=_options,
        weight_optional=weight_optional,
    )  # fmt: skip


SUM_ROWS = Op(
    "sum_rows",
    "the sum of the rows of a float32 matrix",
    {"op": "sum_rows", "input": "float32"},
    _sum_fields,
    choices={"weight": "", "bias": False, "sums_of": ""},
)
RMSNORM_BACKWARD = _backward(
    "rmsnorm_backward", "the gradients of the input and the weight; Gemma's has weight + 1", weight_optional=True,
    op="rmsnorm",
)  # fmt: skip
GEMMA_RMSNORM_BACKWARD = _backward("gemma_rmsnorm_backward", RMSNORM_BACKWARD.computes, op="rmsnorm", unit_bias=True)
RMSNORM_BIAS_BACKWARD = _backward(
    "rmsnorm_bias_backward", "the gradients of the input, the weight and the bias", op="rmsnorm", bias=True
)
LAYERNORM_BACKWARD = _backward(
    "layernorm_backward", RMSNORM_BIAS_BACKWARD.computes, weight_optional=True, op="layernorm"
)

OPS = (RMSNORM_BACKWARD, GEMMA_RMSNORM_BACKWARD, RMSNORM_BIAS_BACKWARD, LAYERNORM_BACKWARD, SUM_ROWS)
