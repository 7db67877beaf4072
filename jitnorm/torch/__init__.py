"""jitnorm for torch: modules; its import registers the operators ``torch.ops.jitnorm``, and QuantizedTensor with torch.

A call of a public function registers operators by itself once torch records it, as `torch.compile` and `torch.export`
do. Import this package where they are needed without one: to load an exported program or saved quantized tensors
(``torch.load``), or to call ``torch.ops.jitnorm`` directly.
"""

import torch as _torch

from jitnorm.quantized import introduce as _introduce
from jitnorm.torch import library as _library
from jitnorm.torch.fusion import fuse, fusions
from jitnorm.torch.modules import FusedAddRMSNorm, LayerNorm, NormQuant, RMSNorm
from jitnorm.torch.straight_through import fake_norm_quantize

__all__ = ["FusedAddRMSNorm", "LayerNorm", "NormQuant", "RMSNorm", "fake_norm_quantize", "fuse", "fusions"]

_library.register()
_introduce(_torch.empty(0))
