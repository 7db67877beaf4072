"""jitnorm for torch: importing it registers the operators ``torch.ops.jitnorm``, and `QuantizedTensor` as a pytree.

A call of a public function does so by itself once torch records it, as `torch.compile` and `torch.export` do. Import it
where operators are needed without one: to load an exported program, or to call ``torch.ops.jitnorm`` directly.
"""

import torch as _torch

from jitnorm.interop import framework_of as _framework_of
from jitnorm.ops import general as _general
from jitnorm.torch import library as _library

_library.register()
_framework_of(_torch.empty(0), "").register_node(_general.QuantizedTensor, _general.leaves_of, _general.of_leaves)
