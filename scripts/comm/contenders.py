"""Contenders: the fused call, alternatives that compute the same, and bounds set by links and memory.

Each contender makes calls of its own tensors, of which there are as many sets as the setting says, so that inputs do
not come from the L2 cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import distributed
from torch.distributed import _symmetric_memory as symmetric

import jitnorm
from comm.cases import METHODS, SPECS
from comm.devices import Device

Call = Callable[[], object]


@dataclass
class Setting:
    """A shape and format, which all contenders have.

    Attributes:
        device: of this rank.
        ranks: how many there are.
        rows: of the input.
        hidden_size: of the input.
        format: of the codes, one of `SPECS`.
        sets: how many sets of tensors calls take turns at.
        workspace: of jitnorm, as it is by default.
        one_shot_workspace: one for one-shot calls of more rows than they are for.
    """

    device: Device
    ranks: int
    rows: int
    hidden_size: int
    format: str
    sets: int
    workspace: jitnorm.comm.Workspace
    one_shot_workspace: jitnorm.comm.Workspace

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows, self.hidden_size

    @property
    def own_rows(self) -> slice:
        """The rows of this rank, where ranks divide them; the last ranks may have fewer."""
        each = -(-self.rows // self.ranks)
        return slice(self.device.rank * each, (self.device.rank + 1) * each)

    @property
    def equal_rows(self) -> slice:
        """The rows of this rank, where all have the same number."""
        if self.rows % self.ranks:
            raise NotImplementedError(f"{self.rows} rows are not divided alike by {self.ranks} ranks")
        return self.own_rows

    def new(self) -> Any:
        """A matrix of random bfloat16 on the device."""
        return torch.randn(self.shape, dtype=torch.bfloat16, device=self.device.kind)

    @cached_property
    def weight(self) -> Any:
        return torch.ones(self.hidden_size, dtype=torch.bfloat16, device=self.device.kind)

    @cached_property
    def encoding(self) -> dict[str, Any]:
        """How calls are told the format."""
        scale = torch.ones(1, device=self.device.kind) if self.format == "fp8_tensor" else None
        return {"spec": SPECS[self.format], "scale": scale}

    @cached_property
    def shared(self) -> list[Any]:
        """Each set's matrix in torch's symmetric memory."""
        where = f"cuda:{self.device.rank}"
        tensors = [symmetric.empty(self.shape, dtype=torch.bfloat16, device=where) for _ in range(self.sets)]
        for tensor in tensors:
            symmetric.rendezvous(tensor, self.device.group())
            tensor.copy_(self.new())
        return tensors

    @property
    def next_rank(self) -> int:
        """The rank whose matrices this one reads."""
        return (self.device.rank + 1) % self.ranks

    def of_peers(self) -> Iterable[tuple[Any, Any]]:
        """Each set's matrix, and the next rank's as this rank sees it."""
        for own in self.shared:
            memory = symmetric.rendezvous(own, self.device.group())
            yield own, memory.get_buffer(self.next_rank, self.shape, torch.bfloat16)

    def add_norm(self, rows: slice = slice(None)) -> Callable[[Any], object]:
        """Make the call that follows an unfused sum of some rows over ranks, with its own residual."""
        residual, weight = self.new()[rows], self.weight
        if self.format == "none":
            return lambda x: jitnorm.add_rmsnorm(x, residual, weight)
        return lambda x: jitnorm.add_norm_quantize(x, residual, weight, **self.encoding)


def fused(method: str, round_sum: bool, s: Setting) -> Iterable[Call]:
    """jitnorm's call. Where ranks divide the rows, the input is in the workspace, as if a GEMM wrote it there."""
    workspace = s.one_shot_workspace if method == "one_shot" else s.workspace
    taken = workspace.method_of(*s.shape, SPECS[s.format], round_sum) if method == "auto" else method
    is_divided = taken != "one_shot"
    for _ in range(s.sets):
        x = workspace.empty(*s.shape, library="torch").copy_(s.new()) if is_divided else s.new()
        yield partial(
            jitnorm.comm.all_reduce_norm_quantize,
            x,
            s.weight,
            workspace,
            residual=s.new(),
            method=method,
            round_sum=round_sum,
            **s.encoding,
        )


def scattered(s: Setting) -> Iterable[Call]:
    """jitnorm's reduce-scatter and what follows, of an input in the workspace."""
    residual = s.new()[s.own_rows]
    for _ in range(s.sets):
        x = s.workspace.empty(*s.shape, library="torch").copy_(s.new())
        yield partial(
            jitnorm.comm.reduce_scatter_norm_quantize, x, s.weight, s.workspace, residual=residual, **s.encoding
        )


def gathered(s: Setting) -> Iterable[Call]:
    """jitnorm's all-gather of codes."""
    residual = s.new()[s.equal_rows]
    for _ in range(s.sets):
        x = s.new()[s.equal_rows]
        yield partial(jitnorm.comm.norm_quantize_all_gather, x, s.weight, s.workspace, residual=residual, **s.encoding)


def scattered_not_fused(s: Setting) -> Iterable[Call]:
    """The reduce-scatter of NCCL, on the CPU gloo's, then jitnorm's add, norm and quantization of a rank's rows."""
    add_norm, out = s.add_norm(s.equal_rows), s.new()[s.equal_rows]

    def call(x: Any) -> None:
        distributed.reduce_scatter_tensor(out, x, group=s.device.group())
        add_norm(out)

    for _ in range(s.sets):
        yield partial(call, s.new())


def gathered_not_fused(s: Setting) -> Iterable[Call]:
    """jitnorm's add and norm of a rank's rows, the all-gather of NCCL or gloo, then jitnorm's quantization of all."""
    out, residual = s.new(), s.new()[s.equal_rows]

    def call(x: Any) -> None:
        norm, _ = jitnorm.add_rmsnorm(x, residual, s.weight)
        distributed.all_gather_into_tensor(out, norm, group=s.device.group())
        if s.format != "none":
            jitnorm.quantize(out, **s.encoding)

    for _ in range(s.sets):
        yield partial(call, s.new()[s.equal_rows])


@dataclass(frozen=True)
class PeerRead:
    """A kernel that reads the next rank's matrix once and writes its negative to its own memory.

    Attributes:
        rank: the own one.
        of: the rank that it reads from.
        own: the matrix that another reads.
        peer: the one that this rank reads.
        out: what it writes.
    """

    rank: int
    of: int
    own: Any
    peer: Any
    out: Any

    def __call__(self) -> None:
        torch.neg(self.peer, out=self.out)  # copy_ could run on a copy engine

    def refill(self, seed: int) -> None:
        """Write other values to this rank's matrix."""
        self.own.copy_(self._values(self.rank, seed))

    def has_read(self, seed: int) -> bool:
        """Whether every byte of the result comes from the values that the peer has written since."""
        return bool(torch.equal(self.out, -self._values(self.of, seed)))

    def _values(self, rank: int, seed: int) -> Any:
        numbers = torch.Generator(self.own.device).manual_seed(1000 * seed + rank)
        return torch.randn(self.own.shape, generator=numbers, device=self.own.device, dtype=self.own.dtype)


def peer_read(s: Setting) -> Iterable[Call]:
    """A kernel that reads the next rank's matrix once and writes it to its own memory."""
    for own, peer in s.of_peers():
        yield PeerRead(s.device.rank, s.next_rank, own, peer, torch.empty_like(own))


def peer_sum(s: Setting) -> Iterable[Call]:
    """A kernel that reads the next rank's matrix once and writes a single number."""
    for _, peer in s.of_peers():
        yield partial(torch.sum, peer, dim=(0, 1), out=torch.empty((), dtype=peer.dtype, device=peer.device))


def peer_norm(s: Setting) -> Iterable[Call]:
    """The op that follows a sum, of the next rank's matrix: a fused call without waiting and adding shares."""
    add_norm = s.add_norm()
    for _, peer in s.of_peers():
        yield partial(add_norm, peer)


def local_copy(s: Setting) -> Iterable[Call]:
    """A kernel that reads and writes the rank's own matrix once."""
    for _ in range(s.sets):
        x = s.new()
        yield partial(torch.neg, x, out=torch.empty_like(x))


def not_fused(s: Setting) -> Iterable[Call]:
    """The all-reduce of NCCL, on the CPU gloo's, then jitnorm's add, norm and quantization."""
    group = s.device.group()

    def call(x: Any, add_norm: Callable[[Any], object]) -> None:
        distributed.all_reduce(x, group=group)
        add_norm(x)

    for _ in range(s.sets):
        yield partial(call, s.new(), s.add_norm())


def symmetric_one_shot(s: Setting) -> Iterable[Call]:
    """torch's one-shot all-reduce over symmetric memory, then jitnorm's add, norm and quantization."""
    name = s.device.group().group_name

    def call(x: Any, add_norm: Callable[[Any], object]) -> None:
        add_norm(torch.ops.symm_mem.one_shot_all_reduce(x, "sum", name))

    for x in s.shared:
        yield partial(call, x, s.add_norm())


def symmetric_two_shot(s: Setting) -> Iterable[Call]:
    """torch's two-shot all-reduce, likewise."""
    name = s.device.group().group_name

    def call(x: Any, add_norm: Callable[[Any], object]) -> None:
        torch.ops.symm_mem.two_shot_all_reduce_(x, "sum", name)
        add_norm(x)

    for x in s.shared:
        yield partial(call, x, s.add_norm())


def flashinfer(s: Setting) -> Iterable[Call]:
    """FlashInfer's fused kernel of TensorRT-LLM: residual, norm, and FP8 by a given scale or NVFP4."""
    from flashinfer import comm

    patterns = {
        "none": comm.AllReduceFusionPattern.kARResidualRMSNorm,
        "fp8_tensor": comm.AllReduceFusionPattern.kARResidualRMSNormFP8Quant,
        "nvfp4": comm.AllReduceFusionPattern.kARResidualRMSNormFP4Quant,
    }
    if s.format not in patterns:
        raise NotImplementedError(f"FlashInfer does not fuse {s.format}")
    # Over CUDA IPC: its symmetric memory would use multicast.
    *_, workspace, metadata = comm.trtllm_create_ipc_workspace_for_all_reduce_fusion(
        s.device.rank, s.ranks, s.rows, s.hidden_size, group=s.device.group(), create_metadata=True,
        use_symm_dev_mem=False,
    )  # fmt: skip
    size, scale = s.rows * s.hidden_size, torch.ones(1, device="cuda")
    for _ in range(s.sets):
        outputs = {
            "none": {"norm_out": torch.empty(size, dtype=torch.bfloat16, device="cuda")},
            "fp8_tensor": {"quant_out": torch.empty(size, dtype=torch.float8_e4m3fn, device="cuda")},
            "nvfp4": {
                "quant_out": torch.empty(size // 2, dtype=torch.uint8, device="cuda"),
                "scale_out": torch.empty((s.rows + 127) * s.hidden_size // 16, dtype=torch.uint8, device="cuda"),
            },
        }[s.format]
        unused = dict.fromkeys({"norm_out", "quant_out", "scale_out"} - outputs.keys())
        residual = s.new().view(-1)
        yield partial(
            comm.trtllm_allreduce_fusion, allreduce_in=s.new().view(-1), world_size=s.ranks, world_rank=s.device.rank,
            token_num=s.rows, hidden_dim=s.hidden_size, workspace_ptrs=workspace, launch_with_pdl=True,
            trigger_completion_at_end=True, fp32_acc=True, pattern_code=patterns[s.format], use_oneshot=None,
            allreduce_out=None, residual_in=residual, residual_out=torch.empty_like(residual), rms_gamma=s.weight,
            rms_eps=1e-6, scale_factor=scale, layout_code=comm.QuantizationSFLayout.SWIZZLED_128x4,
            metadata=metadata, **outputs, **unused,
        )  # fmt: skip


BOUNDS = {"peer read": peer_read, "peer sum": peer_sum, "peer read and op": peer_norm, "local copy": local_copy}
FUSED = {f"fused {method}": partial(fused, method, False) for method in METHODS if method != "not_fused"}
FUSED["fused two_shot, rounded sum"] = partial(fused, "two_shot", True)
FUSED["fused auto, rounded sum"] = partial(fused, "auto", True)
OWN = {"jitnorm's sum and op": partial(fused, "not_fused", True)}
HALVES = {
    "reduce-scatter": scattered, "reduce-scatter, not fused": scattered_not_fused, "all-gather": gathered,
    "all-gather, not fused": gathered_not_fused,
}  # fmt: skip
OTHERS = {"not fused": not_fused, "one-shot": symmetric_one_shot, "two-shot": symmetric_two_shot}


def contenders(kind: str) -> dict[str, Callable[[Setting], Iterable[Call]]]:
    """The contenders of a kind of device, by name."""
    if kind == "cpu":
        return {"local copy": local_copy, "not fused": not_fused, **OWN, **FUSED, **HALVES}
    theirs = {"FlashInfer": flashinfer} if find_spec("flashinfer") else {}
    return {**BOUNDS, **OTHERS, **theirs, **OWN, **FUSED, **HALVES}
