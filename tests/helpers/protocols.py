"""The protocols of jitnorm.comm for protocol_machine, and faulty variants of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from protocol_machine import EMPTY, Await, Kernel, Load, Meet, Protocol, Settle, Step, Store, Take, Wipe


@dataclass(frozen=True)
class OneShot:
    """Every rank pushes its rows into its peers' slots, and waits for theirs in its own.

    A block has a row. `rows` are those of each call; 0 stands for a two-shot call between, of which only the wait for
    all ranks and the clearing matter here, None for a collective reset of the workspace.
    """

    ranks: int
    rows: tuple[int | None, ...]
    words: int = 1
    """Stores a row takes, each of which arrives alone."""
    buffers: int = 3
    clears: bool = True
    clears_rows_of_this_call: bool = False
    clears_before_it_waits: bool = True
    clears_in_two_shot: bool = True
    meets_before_reset: bool = True
    resident: int | None = None
    in_order: bool = True
    survives_failure: bool = False
    starts_early: bool = False
    """Whether a kernel touches the workspace before the clearing of the one before it has arrived."""
    scatters: bool = False
    """Whether a row goes to the rank that owns it alone, and its mark, in word -1, to all."""
    awaits_marks: bool = True

    def protocol(self) -> Protocol:
        most, words = max(rows or 0 for rows in self.rows), range(-1 if self.scatters else 0, self.words)
        places = product(range(self.ranks), range(self.buffers), range(self.ranks), range(most), words)
        cells = {place: number for number, place in enumerate(places)}
        launches = tuple(self._launches(rank, cells) for rank in range(self.ranks))
        owners = tuple(owner for owner, *_ in cells)
        slots = frozenset(number for (*_, word), number in cells.items() if word >= 0)
        return Protocol(launches, owners, slots, self.survives_failure, not self.starts_early)

    def _launches(self, rank: int, cells: dict[tuple[int, ...], int]) -> tuple[Kernel, ...]:
        kernels, epoch = [], 0
        for call, rows in enumerate(self.rows):
            if rows is None:
                kernels.append(self._reset(rank, cells))
                epoch = 0
                continue
            cleared = (self.rows[call - 1] or 0) if epoch else 0
            if self.clears_rows_of_this_call:
                cleared = min(cleared, rows)
            blocks = tuple(self._block(rank, call, epoch, row, rows, cleared, cells) for row in range(rows))
            if rows == 0:
                clear = self._block(rank, call, epoch, 0, 1, cleared, cells)[1]
                blocks = ((clear, Meet()) if self.clears_in_two_shot else (Meet(),),)
            kernels.append(Kernel(blocks, resident=self.resident, in_order=self.in_order))
            epoch += 1
        return tuple(kernels)

    def _block(
        self, rank: int, call: int, epoch: int, row: int, rows: int, cleared: int, cells: dict[tuple[int, ...], int]
    ) -> tuple[Step, ...]:
        buffer, used = epoch % self.buffers, (epoch - 1) % self.buffers
        peers, words, value = [r for r in range(self.ranks) if r != rank], range(self.words), 2 * (call + 1)
        owner = row // -(-rows // self.ranks) if self.scatters else rank
        told = [owner] if owner != rank else [] if self.scatters else peers
        push = Store(tuple(cells[peer, buffer, rank, row, word] for peer in told for word in words), value)
        emptied = product(peers, range(row, cleared, rows), words)
        clear = Store(tuple(cells[(rank, used, *slot)] for slot in emptied if self.clears), EMPTY)
        awaited = peers if owner == rank else []
        takes: list[Step] = [Take(cells[rank, buffer, peer, row, word], value) for peer in awaited for word in words]
        sends: list[Step] = [push]
        if self.scatters:
            sends.append(Store(tuple(cells[peer, buffer, rank, row, -1] for peer in peers), value))
            takes += [Await(cells[rank, buffer, peer, row, -1], value) for peer in peers if self.awaits_marks]
        return (*sends, clear, *takes) if self.clears_before_it_waits else (*sends, *takes, clear)

    def _reset(self, rank: int, cells: dict[tuple[int, ...], int]) -> Kernel:
        """Once no rank has a kernel or a store in flight, each clears its own memory, and all wait for each other."""
        own = tuple(number for place, number in cells.items() if place[0] == rank)
        first = (Settle(), Meet()) if self.meets_before_reset else ()
        return Kernel(((*first, Wipe(own), Settle(), Meet()),), reset=True)


@dataclass(frozen=True)
class TwoShot:
    """Every rank reads its chunk of all ranks' input, and stores what it makes of it into all ranks' outputs.

    Or one half of that: it keeps what it makes, or stores what it makes of its own input alone.

    A producer writes the input and a consumer reads the output, in kernels of their own. A rank has a flag for each
    peer that its input is complete, and one that the peer's chunk of the output is written. What a rank has of its own
    takes no part.
    """

    ranks: int
    calls: int
    orders_flags: bool = True
    flags_first: bool = False
    awaits_inputs: bool = True
    gathers: bool = True
    """Whether all ranks get all chunks; else the owner keeps its own, as reduce-scatter does."""
    reads: bool = True
    """Whether ranks read the input of others; else each has its chunk, as all-gather does."""
    awaits_end: bool = True

    def protocol(self) -> Protocol:
        kinds = ("input", "arrived", "output", "written")
        places = list(product(kinds, range(self.ranks), range(self.ranks)))
        cells = {place: number for number, place in enumerate(places)}
        owners = tuple(owner for _, owner, _ in places)
        launches = tuple(
            tuple(kernel for call in range(self.calls) for kernel in self._call(rank, 2 * (call + 1), cells))
            for rank in range(self.ranks)
        )
        return Protocol(launches, owners)

    def _call(self, rank: int, value: int, cells: dict[tuple[str, int, int], int]) -> tuple[Kernel, ...]:
        peers = [peer for peer in range(self.ranks) if peer != rank]

        def flag(kind: str) -> list[Step]:
            awaited: list[Step] = [Await(cells[kind, rank, peer], value) for peer in peers]
            # Ranks whose input nobody reads have nothing to release before they say that they are there.
            is_released = self.orders_flags and (self.reads or kind == "written")
            return [Store(tuple(cells[kind, peer, rank] for peer in peers), value, is_released), *awaited]

        produce = Store((cells["input", rank, rank],), value)
        arrived = flag("arrived")
        reads = [Load(cells["input", peer, peer], value) for peer in peers if self.reads]
        write = Store(tuple(cells["output", peer, rank] for peer in peers if self.gathers), value)
        written = flag("written")
        combine = [*(arrived if self.awaits_inputs else arrived[:1]), *reads]
        combine += [written[0], write, *written[1:]] if self.flags_first else [write, *written]
        if not self.awaits_end:
            combine = combine[: -len(peers)]
        consume = [Load(cells["output", rank, peer], value) for peer in peers if self.gathers]
        return Kernel(((produce,),)), Kernel((tuple(combine),)), Kernel((tuple(consume),))


@dataclass(frozen=True)
class PassedSums:
    """Every rank sums a chunk of all ranks' input, and tells the others each sum, of which all make all outputs.

    A block has a row; own rows come first. Ranks say once that their input is complete. A sum has come when its slot is
    not empty, and whoever has read it empties the slot: it is needed again once its rank has said that the next input
    is complete. Nobody waits at the end: who has all sums knows that nobody reads its input any more.
    """

    ranks: int
    rows: tuple[int, ...]
    words: int = 1
    """Stores a sum takes, each of which arrives alone."""
    awaits_inputs: bool = True
    clears: bool = True
    starts_early: bool = False
    """Whether a kernel says so before the stores of the one before it have arrived."""
    own_first: bool = True
    resident: int | None = None

    def protocol(self) -> Protocol:
        most = max(self.rows)
        places = [("input", rank, 0) for rank in range(self.ranks)]
        places += [("ready", *pair) for pair in product(range(self.ranks), repeat=2)]
        places += [("sum", rank, word) for rank in range(self.ranks) for word in range(most * self.words)]
        cells = {place: number for number, place in enumerate(places)}
        slots = frozenset(number for (kind, *_), number in cells.items() if kind == "sum")
        launches = tuple(
            tuple(kernel for call, rows in enumerate(self.rows) for kernel in self._call(rank, call, rows, cells))
            for rank in range(self.ranks)
        )
        owners = tuple(owner for _, owner, _ in places)
        return Protocol(launches, owners, slots, ends_with_own_stores=not self.starts_early)

    def _call(self, rank: int, call: int, rows: int, cells: dict[tuple[str, int, int], int]) -> tuple[Kernel, ...]:
        value, peers = 2 * (call + 1), [peer for peer in range(self.ranks) if peer != rank]
        each = -(-rows // self.ranks)
        numbers = sorted(range(rows), key=lambda row: (row // each != rank) == self.own_first)
        blocks: list[list[Step]] = []
        for row in numbers:
            words = range(row * self.words, (row + 1) * self.words)
            if row // each != rank:
                told = [cells["sum", rank, word] for word in words]
                clear = Store(tuple(told) if self.clears else (), EMPTY)
                blocks.append([*(Take(cell, value) for cell in told), clear])
                continue
            ready: list[Step] = [Await(cells["ready", rank, peer], value) for peer in peers if self.awaits_inputs]
            reads = [Load(cells["input", peer, 0], value) for peer in peers]
            tell = Store(tuple(cells["sum", peer, word] for peer in peers for word in words), value)
            blocks.append([*ready, *reads, tell])
        announce = Store(tuple(cells["ready", peer, rank] for peer in peers), value)
        blocks[0].insert(0, announce)
        produce = Store((cells["input", rank, 0],), value)
        return Kernel(((produce,),)), Kernel(tuple(map(tuple, blocks)), resident=self.resident)
