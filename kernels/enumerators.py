"""The enumerators of common/types.h, by the words that configurations have for them."""

from __future__ import annotations

OPS = {
    "rmsnorm": "kRmsNorm",
    "layernorm": "kLayerNorm",
    "quantize": "kQuantize",
    "dequantize": "kDequantize",
    "interleave": "kInterleave",
    "shuffle": "kShuffle",
    "sum_rows": "kSumRows",
    "mhc_post": "kQuantize",  # unused by headers, because this op has its own items
}
ACTIVATIONS = {
    "swish": "kSwish",
    "swiglu": "kClampedSwiglu",
    "fatrelu": "kFatRelu",
    "silu": "kSilu",
    "gelu": "kGeluErf",
    "gelu_tanh": "kGeluTanh",
    "relu2": "kRelu2",
    "swigluoai": "kSwigluOai",
    "sigmoid": "kSigmoid",
}
ELEMENTS = {"e2m1": "kE2M1", "e4m3": "kE4M3", "e5m2": "kE5M2", "int8": "kInt8"}
SCALE_FORMATS = {"e4m3": "kE4M3", "ue8m0": "kUE8M0", "f32": "kF32", "f32_ue8m0": "kF32"}
SCALE_OWNERS = {"row": "kRow", "tensor": "kTensor"}
GLOBAL_SCALES = {"none": "kNone", "given": "kGiven", "row": "kRow", "tensor": "kTensor"}
SCALE_ROUNDINGS = {"up": "kUp", "floor": "kFloor", "even": "kFloor"}
ROPES = {"neox": "kHalves", "interleaved": "kPairs"}
ROUNDINGS = {"output": "kOutput", "hf": "kEachStep", "vllm": "kProducts"}
