"""Runs the PTX of a kernel on the host, thread for thread, so that a machine without a GPU can compare its bytes.

It knows the instructions that our kernels consist of, from CuTe-DSL and from CUDA C++, and fails on any other. Of the
threads that may advance, by default all of a grid, those at the lowest instruction do first, which is where branches
meet again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from ptx_numbers import Numbers
from ptx_registers import BITS, Array
from ptx_text import SHARED_BYTES, Instruction, parse_ptx
from warp_orders import NewOrder, Together, WarpOrder

_UNKNOWN = 0xA5  # a byte that is on its way
_OF_WARP, _OF_BLOCK, _OF_CLUSTER = 1, 2, 3  # barriers
_FOR_BYTES = 255  # that an mbarrier counts
_STEPS_BETWEEN_RELEASES = 64
_STEP_NANOSECONDS = 1000  # that an instruction takes, for those who look at the clock
_CLUSTER_SHIFT = 24  # a shared address of a cluster: the block's rank plus 1, above these bits


def run_ptx(
    ptx: str,
    memory: Array,
    parameters: list[int | float],
    grid: int,
    block: int,
    cluster: int = 1,
    *,
    order: NewOrder = Together,
    readable: Array | None = None,
) -> None:
    """Run the only kernel of `ptx`, whose pointers are offsets into the bytes of `memory`, with its warps together or
    in another order; `readable` says which bytes it may read, if not all.
    """
    run_launches(ptx, memory, [parameters], grid, block, cluster, order=order, readable=readable)


def run_launches(
    ptx: str,
    memory: Array,
    parameters: Sequence[list[int | float] | None],
    grid: int,
    block: int,
    cluster: int,
    *,
    order: NewOrder,
    readable: Array | None = None,
) -> None:
    """Run several launches of a kernel at once, such as those of ranks, with the parameters of each; None for one that
    is not made.
    """
    machine = _Machine(ptx, memory, parameters, grid, block, cluster, order())
    machine.readable = np.ones(memory.size, bool) if readable is None else readable
    with np.errstate(all="ignore"):
        machine.run()


def _bits_of(parameter: int | float) -> int:
    return int(np.float32(parameter).view(np.uint32)) if isinstance(parameter, float) else parameter & (1 << 64) - 1


def _bytes_from(at: Array, size: int) -> Array:
    """The addresses of numbers' bytes, with a row for each number."""
    addresses: Array = at[:, None] + np.arange(size)
    return addresses


def _space_of(modifiers: list[str]) -> str:
    """The space of an access, which is global if it is not named."""
    return next((each for each in modifiers if each.partition("::")[0] in ("global", "shared", "param")), "global")


class _Machine(Numbers):
    readable: Array

    def __init__(
        self, ptx: str, memory: Array, parameters: Sequence[list[int | float] | None], grid: int, block: int,
        cluster: int, order: WarpOrder,
    ) -> None:  # fmt: skip
        self.instructions, self.labels, symbols = parse_ptx(ptx)
        super().__init__(len(parameters), grid, block, symbols)
        self.memory, self.cluster, self.order = memory, cluster, order
        made = next(filter(None, parameters))
        self.parameters = np.array([list(map(_bits_of, each or [0] * len(made))) for each in parameters], np.uint64)
        self.shared = np.zeros((self.grid, SHARED_BYTES), np.uint8)
        self.barriers: dict[tuple[int, int], list[int]] = {}
        # Those on their way: threads, the groups that each has them in, where to in the shared memory, and what.
        self.copies: list[tuple[Array, Array, Array, Array]] = []
        self.groups = np.zeros(self.count, np.int64)  # that each thread has committed
        is_made = np.array([each is not None for each in parameters])
        self.pc = np.where(is_made[self.launch], 0, len(self.instructions))
        self.waits = np.zeros(self.count, np.uint8)  # at which barrier
        self.expected = np.zeros(self.count, np.int64)  # threads there, if they are not all of the block
        self.sent: list[tuple[int, Array, tuple[int, int]]] = []  # to where, what, and the barrier that counts it
        self.votes: dict[str, Array] = {}  # by register, the threads that await the votes of their block

    def run(self) -> None:
        end = len(self.instructions)
        for step in range(4_000_000):
            if self.sent:
                self._receive(self.order.arriving(len(self.sent)))
            if step % _STEPS_BETWEEN_RELEASES == 0:  # threads that wait in a loop for others can always advance
                self._release()
            places = np.where(self.waits == 0, self.pc, end)
            can_advance = (places < end).reshape(self.grid, -1, 32).any(axis=2)
            if not can_advance.any():
                if self.sent:
                    self._receive(np.zeros(1, np.int64))
                elif self.waits.any():
                    assert self._release(), "threads wait for others at another barrier"
                else:
                    return
                continue
            places[~np.repeat(self.order.advancing(can_advance), 32)] = end
            at = int(places.min())
            self.active = np.flatnonzero(places == at)
            self.pc[self.active] += 1
            self.special["%globaltimer"] += _STEP_NANOSECONDS
            self._execute(self.instructions[at])
        raise AssertionError("the kernel does not end")

    def _release(self) -> bool:
        """Release the threads at a barrier whose warp, block or cluster is complete; whether there are any."""
        is_released = np.zeros(self.count, bool)
        warp = np.arange(self.count) // 32
        for barrier, group in ((_OF_WARP, warp), (_OF_BLOCK, self.block), (_OF_CLUSTER, self.block // self.cluster)):
            is_missing = (self.waits != barrier) & (self.pc < len(self.instructions))
            is_released |= (self.waits == barrier) & ~np.isin(group, group[is_missing])
        # Of some threads, who said how many.
        for barrier in np.unique(self.waits[(self.waits > _OF_CLUSTER) & (self.waits < _FOR_BYTES)]):
            waits = self.waits == barrier
            is_released |= waits & (np.bincount(self.block[waits], minlength=self.grid)[self.block] == self.expected)
        self.waits[is_released] = 0
        self._count_votes(is_released)
        return bool(is_released.any())

    def _execute(self, instruction: Instruction) -> None:
        if instruction.predicate:
            holds = self.read(instruction.predicate, 1).astype(bool) ^ instruction.is_negated
            self.active = self.active[holds]
            if not self.active.size:
                return
        name, *modifiers = instruction.opcode.split(".")
        getattr(self, f"_do_{name}")(modifiers, instruction.operands)

    # Memory

    def _address(self, operand: str) -> Array:
        base, _, offset = operand.strip("[]").partition("+")
        return self.read(base) + np.uint64(int(offset or 0) & (1 << 64) - 1)

    def _bytes(self, space: str, operand: str) -> tuple[Array, Any]:
        """The flat memory of a space, and each thread's address in it."""
        address = self._address(operand).astype(np.int64)
        if space == "global":
            return self.memory, address
        block = self.block[self.active]
        if space == "shared::cluster":
            rank = (address >> _CLUSTER_SHIFT) - 1
            block, address = block // self.cluster * self.cluster + rank, address & (1 << _CLUSTER_SHIFT) - 1
        return self.shared.reshape(-1), block * SHARED_BYTES + address

    def _do_ld(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        space, kind = _space_of(modifiers), modifiers[-1]
        size = BITS[kind] // 8
        if space == "param":
            number = int(operands[1].strip("[]").rpartition("_")[2])
            self.write(operands[0], self.parameters[self.launch[self.active], number])
            return
        flat, at = self._bytes(space, operands[1])
        targets = operands[0].strip("{}").replace(" ", "").split(",")
        assert not (at % (size * len(targets))).any(), "misaligned load"
        assert flat is not self.memory or self.readable[_bytes_from(at, size * len(targets))].all(), "read elsewhere"
        for i, target in enumerate(targets):
            each = flat[_bytes_from(at + size * i, size)].view(f"<{'i' if kind[0] == 's' else 'u'}{size}")
            self.write(target, each[:, 0].astype(np.int64).view(np.uint64))

    def _do_st(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        if modifiers[0] == "async":
            assert modifiers[1:4] == ["weak", "shared::cluster", "mbarrier::complete_tx::bytes"]
            _, at = self._bytes("shared::cluster", operands[0])
            values = self.read(operands[1]).astype(f"<u{BITS[modifiers[-1]] // 8}")[:, None].view(np.uint8)
            self.sent += zip(at.tolist(), values, self._barriers(operands[2]), strict=True)
            return
        size = BITS[modifiers[-1]] // 8
        flat, at = self._bytes(_space_of(modifiers), operands[0])
        sources = operands[1].strip("{}").replace(" ", "").split(",")
        assert not (at % (size * len(sources))).any(), "misaligned store"
        for i, source in enumerate(sources):
            each = self.read(source).astype(f"<u{size}")
            flat[_bytes_from(at + size * i, size)] = each[:, None].view(np.uint8)

    def _receive(self, which: Array) -> None:
        """Let some of what threads have sent arrive."""
        arriving = [self.sent[i] for i in which]
        self.sent = [self.sent[i] for i in np.setdiff1d(np.arange(len(self.sent)), which)]
        for at, value, barrier in arriving:
            assert (self.pc[self.block == barrier[0]] < len(self.instructions)).any(), "a block has ended too early"
            self.shared.reshape(-1)[at : at + value.size] = value
            self._count_bytes(barrier, value.size)

    def _do_red(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        self._update(modifiers, *operands)

    def _do_atom(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        self.write(operands[0], self._update(modifiers, *operands[1:]))

    def _update(self, modifiers: list[str], address: str, operand: str) -> Array:
        """Let one thread after the other update a word; what each found there."""
        *where, operator, kind = modifiers
        assert where[-1] == "global"
        dtype = np.dtype(f"u{BITS[kind] // 8}")
        found = np.zeros(self.active.size, np.uint64)
        values = self.read(operand, BITS[kind]).astype(dtype)
        for i, (at, value) in enumerate(zip(self._address(address).astype(np.int64), values, strict=True)):
            word = self.memory[at : at + dtype.itemsize].view(dtype)
            found[i] = word[0]
            word[0] = {"add": np.add, "max": np.maximum, "or": np.bitwise_or}[operator](word[0], value)
        return found

    def _do_mapa(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        rank = self.read(operands[2]) + np.uint64(1)
        self.write(operands[0], self.read(operands[1]) | rank << np.uint64(_CLUSTER_SHIFT))

    def _do_mbarrier(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        """Phases end with one arrival once all bytes are announced; copies arrive as soon as they begin."""
        if modifiers[0] == "init":
            for barrier in self._barriers(operands[0]):
                assert barrier not in self.barriers, "this is a barrier already"
                self.barriers[barrier] = [0, 0, 0]  # the parity of the phase, arrivals, bytes to come
        elif modifiers[0] == "inval":
            for barrier in self._barriers(operands[0]):
                assert self.barriers.pop(barrier)[1:] == [0, 0], "not all bytes came"
        elif modifiers[:2] == ["arrive", "expect_tx"]:
            for barrier, size in zip(self._barriers(operands[1]), self.read(operands[2], 32), strict=True):
                state = self.barriers[barrier]
                state[1] += 1
                state[2] += int(size)
                self._end_phase(state)
        else:
            assert modifiers[:2] == ["try_wait", "parity"]
            parities = self.read(operands[2], 1)
            pairs = zip(self._barriers(operands[1]), parities, strict=True)
            is_over = np.array([self.barriers[barrier][0] != parity for barrier, parity in pairs])
            self.write(operands[0], is_over, 1)
            self.waits[self.active[~is_over]] = _FOR_BYTES

    def _barriers(self, operand: str) -> list[tuple[int, int]]:
        """The block of each active thread, or the one that its address names, and the barrier's address."""
        addresses = self._address(operand).astype(np.int64)
        ranks, blocks = (addresses >> _CLUSTER_SHIFT) - 1, self.block[self.active]
        blocks = np.where(ranks < 0, blocks, blocks // self.cluster * self.cluster + ranks)
        return list(zip(blocks.tolist(), (addresses & (1 << _CLUSTER_SHIFT) - 1).tolist(), strict=True))

    def _count_bytes(self, barrier: tuple[int, int], size: int) -> None:
        self.barriers[barrier][2] -= size
        self._end_phase(self.barriers[barrier])

    def _end_phase(self, state: list[int]) -> None:
        """Let threads look again once all has come that was announced."""
        assert state[2] >= 0, "more bytes came than were announced"
        if state[1] == 1 and state[2] == 0:
            state[:] = [1 - state[0], 0, 0]
            self.waits[self.waits == _FOR_BYTES] = 0

    def _do_fence(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        pass

    def _do_cp(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        if modifiers[1] != "bulk":
            self._copy_ahead(modifiers, operands)
            return
        assert modifiers[:3] == ["async", "bulk", "shared::cluster"]
        to, source, size = (self._address(operand) for operand in operands[:3])
        assert not ((to | source | size) % 16).any(), "misaligned copy"
        for i, barrier in enumerate(self._barriers(operands[3])):
            memory = self.memory[int(source[i]) :][: int(size[i])]
            assert memory.size == size[i], "the copy reads past the memory"
            self.shared[barrier[0], int(to[i]) :][: int(size[i])] = memory
            self._count_bytes(barrier, int(size[i]))

    def _copy_ahead(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        """Start copies, whose targets are undefined until a thread waits for them."""
        if modifiers[1] in ("wait_all", "wait_group"):
            self._wait_for_copies(None if modifiers[1] == "wait_all" else int(operands[0]))
            return
        if modifiers == ["async", "commit_group"]:
            self.groups[self.active] += 1
            return
        assert modifiers in (["async", "cg", "shared", "global"], ["async", "ca", "shared", "global"])
        width = int(operands[2])
        assert width == 16 or (modifiers[1] == "ca" and width in (4, 8))
        (_, places), (_, sources) = self._bytes("shared", operands[0]), self._bytes("global", operands[1])
        assert not ((places | sources) % width).any(), "misaligned copy"
        sizes = self.read(operands[3], 32) if len(operands) > 3 else np.full(places.size, width)
        byte = np.arange(width)
        is_read = byte < sizes.astype(np.int64)[:, None]
        copied = np.zeros(is_read.shape, np.uint8)
        read = (sources[:, None] + byte)[is_read]
        assert self.readable[read].all(), "copied from elsewhere"
        copied[is_read] = self.memory[read]
        self.shared.reshape(-1)[places[:, None] + byte] = _UNKNOWN
        self.copies.append((self.active, self.groups[self.active], places, copied))

    def _wait_for_copies(self, pending: int | None) -> None:
        """Wait until at most that many groups are in flight, besides copies not yet in a group; None waits for all."""
        arrived = np.zeros(self.count, np.int64)  # groups, of the threads that wait
        arrived[self.active] = self.groups[self.active] + (1 if pending is None else -pending)
        on_their_way = []
        for threads, groups, places, copied in self.copies:
            is_there = groups < arrived[threads]
            self.shared.reshape(-1)[places[is_there, None] + np.arange(copied.shape[1])] = copied[is_there]
            if not is_there.all():
                on_their_way.append((threads[~is_there], groups[~is_there], places[~is_there], copied[~is_there]))
        self.copies = on_their_way

    # Control

    def _do_bra(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        self.pc[self.active] = self.labels[operands[0]]

    def _do_ret(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        self.pc[self.active] = len(self.instructions)

    def _do_cvta(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        self.write(operands[0], self.read(operands[1]))

    def _count_votes(self, is_released: Array) -> None:
        """Tell the threads of blocks that have all voted whether all said so."""
        for register, is_voting in self.votes.items():
            voters = np.flatnonzero(is_voting & is_released)
            votes, blocks = self.registers[register], self.block[voters]
            is_against = np.bincount(blocks, votes[voters] == 0, self.grid) > 0
            votes[voters] = ~is_against[blocks]
            is_voting[voters] = False

    def _do_bar(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        if modifiers[0] == "red":
            assert modifiers[1:] == ["and", "pred"]
            self.write(operands[0], self.read(operands[2], 1), 1)
            self.votes.setdefault(operands[0], np.zeros(self.count, bool))[self.active] = True
            self.waits[self.active] = _OF_BLOCK
            return
        self.waits[self.active] = _OF_WARP if modifiers[0] == "warp" else _OF_BLOCK
        if len(operands) > 1:
            self.waits[self.active] = _OF_CLUSTER + self.read(operands[0], 32)
            self.expected[self.active] = self.read(operands[1], 32)

    def _do_barrier(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        if "wait" in modifiers:
            self.waits[self.active] = _OF_CLUSTER

    def _do_griddepcontrol(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        pass

    def _do_prefetch(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        pass

    def _do_shfl(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        source = self.registers[operands[1]]
        by, lane = self.read(operands[2], 32).astype(np.int64), self.active % 32
        together = np.bincount(self.active // 32, weights=2.0**lane).astype(np.int64)[self.active // 32]
        assert not (self.read(operands[4], 32).astype(np.int64) & ~together).any(), (
            "lanes that exchange are not together"
        )
        first = self.active - lane
        segment = self.read(operands[3], 32).astype(np.int64) >> 8 & 31  # the bits of a lane that its partner has, too
        partner = {
            "bfly": self.active ^ by,
            "up": np.where(lane < by, self.active, self.active - by),
            "idx": first + (lane & segment | by & ~segment & 31),
        }
        self.write(operands[0].partition("|")[0], source[partner[modifiers[1]]])

    def _do_vote(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        assert self.active.size % 32 == 0, "a warp is not together"
        votes = self.read(operands[1], 1).astype(np.uint64)
        if modifiers[1:] in (["any", "pred"], ["all", "pred"]):
            of_warps = votes.reshape(-1, 32).astype(bool)
            found = of_warps.any(axis=1) if modifiers[1] == "any" else of_warps.all(axis=1)
            self.write(operands[0], np.repeat(found, 32), 1)
            return
        assert modifiers == ["sync", "ballot", "b32"]
        bits = votes << (self.active % 32).astype(np.uint64)
        self.write(operands[0], np.repeat(np.bitwise_or.reduce(bits.reshape(-1, 32), axis=1), 32), 32)

    def _do_redux(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        assert modifiers == ["sync", "max", "u32"]
        assert self.active.size % 32 == 0, "a warp is not together"
        of_warps = self.read(operands[1], 32).reshape(-1, 32).max(axis=1)
        self.write(operands[0], np.repeat(of_warps, 32), 32)
