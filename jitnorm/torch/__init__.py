"""jitnorm for torch: modules; its import registers the operators ``torch.ops.jitnorm``, and QuantizedTensor with torch.

Calling a public function registers the operators when torch records the call, as in `torch.compile` and `torch.export`.
Import this package if you need them earlier: to load an exported program or saved quantized tensors (``torch.load``),
or to call ``torch.ops.jitnorm`` directly.
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
