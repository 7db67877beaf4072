"""Ranks that store into each other's memory, and all their possible runs.

A store that was issued is pending until it arrives, which may be at any later time and in any order: only a release
waits for what its rank issued before, two stores of a rank to one cell keep their order, and at the end of a kernel
what it stored into its own rank's memory has arrived. Loads happen in the order of the program. Of a rank that dies,
what has not arrived by then never does. Steps of a rank that no other can notice or spoil are taken at once: every
other order of them leads to the same states.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

EMPTY = 0
RUNNING, FAILED, DEAD, ENDED = range(4)


@dataclass(frozen=True)
class Store:
    """Issues a value for each cell; a release arrives after everything that the rank issued before it."""

    cells: tuple[int, ...]
    value: int
    release: bool = False


@dataclass(frozen=True)
class Take:
    """Waits until a slot is not empty. It must then hold this value, and counts as read."""

    cell: int
    value: int


@dataclass(frozen=True)
class Await:
    """Waits until a flag has this value or a higher one."""

    cell: int
    value: int


@dataclass(frozen=True)
class Load:
    """Reads a cell, which must hold this value by now."""

    cell: int
    value: int


@dataclass(frozen=True)
class Settle:
    """Waits until everything that the rank issued has arrived, like a host that synchronizes its device."""


@dataclass(frozen=True)
class Meet:
    """Waits until all ranks have reached this point; a host that waits in vain gives up."""


@dataclass(frozen=True)
class Wipe:
    """Empties slots of the rank's own memory, read or not, at once."""

    cells: tuple[int, ...]


Step = Store | Take | Await | Load | Settle | Meet | Wipe


@dataclass(frozen=True)
class Kernel:
    """The steps of each block. A rank that failed goes on at its next reset, or not at all."""

    blocks: tuple[tuple[Step, ...], ...]
    reset: bool = False
    resident: int | None = None
    """How many blocks run at a time, the first first; by default all do."""
    in_order: bool = True
    """Whether blocks start in their order, as the hardware starts them; else in any."""

    def may_start(self, block: int, places: tuple[int, ...]) -> bool:
        if self.resident is None:
            return True
        started = [place > 0 for place in places]
        running = [0 < place < len(steps) for place, steps in zip(places, self.blocks, strict=True)]
        return sum(running) < self.resident and (all(started[:block]) or not self.in_order)

    @property
    def chooses(self) -> bool:
        """Whether several blocks could start next."""
        return self.resident is not None and not self.in_order


@dataclass(frozen=True)
class Protocol:
    """The launches of each rank, the rank whose memory holds each cell, and the cells that are slots.

    Data may arrive only in an empty slot, and only a slot that was read may be emptied.
    """

    launches: tuple[tuple[Kernel, ...], ...]
    owners: tuple[int, ...]
    slots: frozenset[int] = frozenset()
    survives_failure: bool = False
    """Whether a rank goes on with its next kernel after a wait of its own has expired: it must not."""
    ends_with_own_stores: bool = True
    """Whether what a kernel stored into its own rank's memory has arrived when the next one starts."""


Rank = tuple[int, int, tuple[int, ...]]
"""The kernel it is in, its state, and the step of each block."""
Pending = tuple[int, int, int, frozenset[tuple[int, int]]]
"""Who issued it, the cell, the value, and the cells and values of his that must arrive before it."""
State = tuple[tuple[Rank, ...], tuple[int, ...], frozenset[Pending]]


class ViolationError(Exception):
    """A run that breaks a property, with its events."""


def read(value: int) -> int:
    """A slot's value once it was read; values are even."""
    return value | 1


@dataclass(frozen=True)
class Explorer:
    """Explores all runs of a protocol, including those where a rank dies or waits expire, if that may happen."""

    protocol: Protocol
    deaths: int = 0
    expiry: bool = False

    def explore(self) -> int:
        """Return the number of states; raise ViolationError with the shortest run that breaks a property."""
        ranks = range(len(self.protocol.launches))
        start: State = tuple(self._at(rank, 0) for rank in ranks), (EMPTY,) * len(self.protocol.owners), frozenset()
        for rank in ranks:
            start = self._settled(start, rank)
        before: dict[State, tuple[State, str] | None] = {start: None}
        generation = [start]
        while generation:
            following = []
            for state in generation:
                try:
                    steps = list(self._steps(state))
                    if not steps:
                        self._check_end(state)
                except ViolationError as error:
                    raise ViolationError("\n".join([*_history(before, state), str(error)])) from None
                for label, reached in steps:
                    if reached not in before:
                        before[reached] = state, label
                        following.append(reached)
            generation = following
        return len(before)

    def _at(self, rank: int, kernel: int) -> Rank:
        launches = self.protocol.launches[rank]
        if kernel == len(launches):
            return kernel, ENDED, ()
        return kernel, RUNNING, (0,) * len(launches[kernel].blocks)

    def _steps(self, state: State) -> Iterator[tuple[str, State]]:
        """The possible next steps, each with the state after it."""
        ranks, _, pending = state
        for store in pending:
            if _may_arrive(store, pending):
                yield self._arrival(state, store)
        deaths = sum(status == DEAD for _, status, _ in ranks)
        for rank, (kernel, status, places) in enumerate(ranks):
            if status in (DEAD, ENDED):
                continue
            if deaths < self.deaths:
                yield f"rank {rank} dies", _without_rank(state, rank)
            launch = self.protocol.launches[rank][kernel]
            for block, (place, steps) in enumerate(zip(places, launch.blocks, strict=True)):
                if place == len(steps) or (place == 0 and not launch.may_start(block, places)):
                    continue
                step, name = steps[place], f"rank {rank} call {kernel} block {block}"
                if self._is_ready(state, rank, step):
                    yield f"{name}: {step}", self._settled(self._advanced(state, rank, block, step), rank)
                elif self.expiry and isinstance(step, Meet):
                    yield f"{name}: {step} expires, and it gives up", _without_rank(state, rank)
                elif self.expiry and isinstance(step, Take | Await):
                    gone = (*places[:block], len(steps), *places[block + 1 :])
                    expired = _with_rank(state, rank, (kernel, FAILED, gone))
                    yield f"{name}: {step} expires", self._settled(expired, rank)

    def _arrival(self, state: State, store: Pending) -> tuple[str, State]:
        ranks, memory, pending = state
        issuer, cell, value, _ = store
        held = memory[cell]
        label = f"rank {issuer}'s {value} arrives in cell {cell} of rank {self.protocol.owners[cell]}"
        if cell in self.protocol.slots:
            if value != EMPTY and held != EMPTY:
                raise ViolationError(f"{label}, which holds {held}")
            if value == EMPTY and held not in (EMPTY, read(held)):
                raise ViolationError(f"{label} and empties it of {held} before that was read")
        reached = (ranks, (*memory[:cell], value, *memory[cell + 1 :]), pending - {store})
        return label, self._settled(reached, self.protocol.owners[cell])

    def _is_ready(self, state: State, rank: int, step: Step) -> bool:
        ranks, memory, pending = state
        if isinstance(step, Take):
            return memory[step.cell] != EMPTY
        if isinstance(step, Await):
            return memory[step.cell] >= step.value
        if isinstance(step, Settle):
            return not any(issuer == rank for issuer, *_ in pending)
        if isinstance(step, Meet):
            kernel, _, places = ranks[rank]
            return all(status != DEAD and (k, p[:1]) >= (kernel, places[:1]) for k, status, p in ranks)
        return True

    def _advanced(self, state: State, rank: int, block: int, step: Step) -> State:
        ranks, memory, pending = state
        kernel, status, places = ranks[rank]
        if isinstance(step, Take | Load) and memory[step.cell] not in (step.value, read(step.value)):
            raise ViolationError(f"rank {rank} call {kernel}: {step} finds {memory[step.cell]}")
        if isinstance(step, Take):
            memory = (*memory[: step.cell], read(step.value), *memory[step.cell + 1 :])
        if isinstance(step, Wipe):
            memory = tuple(EMPTY if cell in step.cells else held for cell, held in enumerate(memory))
        if isinstance(step, Store):
            earlier = frozenset((c, v) for issuer, c, v, _ in pending if issuer == rank and step.release)
            pending = pending | {(rank, cell, step.value, earlier) for cell in step.cells}
        moved = (kernel, status, (*places[:block], places[block] + 1, *places[block + 1 :]))
        return _with_rank((ranks, memory, pending), rank, moved)

    def _settled(self, state: State, rank: int) -> State:
        """The state after the rank's steps that no other can observe: stores issued, kernels ended and started."""
        while (further := self._unnoticed(state, rank)) is not None:
            state = further
        return state

    def _unnoticed(self, state: State, rank: int) -> State | None:
        kernel, status, places = state[0][rank]
        if status in (DEAD, ENDED):
            return None
        blocks, is_over = self.protocol.launches[rank][kernel].blocks, True
        for block, (place, steps) in enumerate(zip(places, blocks, strict=True)):
            if place < len(steps):
                is_over = False
                if self._is_unnoticed(state, rank, block, steps[place]):
                    return self._advanced(state, rank, block, steps[place])
        if not is_over or (self.protocol.ends_with_own_stores and self._own_are_pending(state, rank)):
            return None
        return _with_rank(state, rank, self._next(rank, kernel, status))

    def _own_are_pending(self, state: State, rank: int) -> bool:
        return any(issuer == rank == self.protocol.owners[cell] for issuer, cell, *_ in state[2])

    def _is_unnoticed(self, state: State, rank: int, block: int, step: Step) -> bool:
        """Also to see a flag, which only rises, and to take what arrived, if no store of the rank's own can empty it.

        A peer's store to a slot that is not empty breaks a property, whether the slot was read or not.
        """
        kernel, _, places = state[0][rank]
        launch = self.protocol.launches[rank][kernel]
        if places[block] == 0 and (launch.chooses or not launch.may_start(block, places)):
            return False
        if isinstance(step, Take) and state[1][step.cell] != EMPTY:
            others = [steps[places[b] :] for b, steps in enumerate(launch.blocks) if b != block]
            cells = [cell for steps in others for other in steps if isinstance(other, Store) for cell in other.cells]
            return step.cell not in cells and not any(cell == step.cell for _, cell, *_ in state[2])
        return isinstance(step, Store) or (isinstance(step, Await) and state[1][step.cell] >= step.value)

    def _next(self, rank: int, kernel: int, status: int) -> Rank:
        if status == RUNNING or self.protocol.survives_failure:
            return self._at(rank, kernel + 1)
        launches = self.protocol.launches[rank]
        reset = next((k for k in range(kernel + 1, len(launches)) if launches[k].reset), len(launches))
        return self._at(rank, reset)

    def _check_end(self, state: State) -> None:
        waiting = [rank for rank, (_, status, _) in enumerate(state[0]) if status not in (DEAD, ENDED)]
        if waiting:
            raise ViolationError(f"ranks {waiting} wait forever")


def _may_arrive(store: Pending, pending: frozenset[Pending]) -> bool:
    issuer, cell, value, earlier = store
    for other_issuer, other_cell, other_value, _ in pending:
        if other_issuer != issuer:
            continue
        if (other_cell, other_value) in earlier or (other_cell == cell and other_value < value):
            return False
    return True


def _with_rank(state: State, rank: int, changed: Rank) -> State:
    ranks, memory, pending = state
    return (*ranks[:rank], changed, *ranks[rank + 1 :]), memory, pending


def _without_rank(state: State, rank: int) -> State:
    ranks, memory, pending = state
    left = frozenset(store for store in pending if store[0] != rank)
    return _with_rank((ranks, memory, left), rank, (ranks[rank][0], DEAD, ()))


def _history(before: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    labels = []
    while (came := before[state]) is not None:
        state, label = came
        labels.append(label)
    return labels[::-1]
