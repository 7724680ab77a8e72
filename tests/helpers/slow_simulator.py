"""A slow simulator of compute nodes and messages, written from the rules in the reference page.

One queue of events by tick, first-in first-out within a tick; whenever something of a rank ends,
its ready nodes are issued in ascending id wherever their slot is free. Links are never shared.
"""

import heapq
import itertools
from collections import defaultdict
from dataclasses import dataclass, field


@dataclass
class Job:
    """One node: its slot ("cpu", "gpu", "comm" or ""), parents, and what it does.

    ``time`` is the duration of compute and the transfer time of a send; ``key`` names the message
    of a send or receive.
    """

    slot: str
    parents: tuple[int, ...]
    time: int = 0
    key: tuple[object, ...] | None = None


@dataclass
class _Rank:
    """What a rank knows while it runs."""

    jobs: dict[int, Job]
    waiting: dict[int, set[int]] = field(init=False)
    busy: set[str] = field(default_factory=set)
    issue: dict[int, int] = field(default_factory=dict)
    finish: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.waiting = {id: set(job.parents) for id, job in self.jobs.items()}


def run(ranks: list[dict[int, Job]]) -> list[dict[int, tuple[int, int]]]:
    """Return (issue, finish) of every node of every rank that ended, by id."""
    return _Machine(ranks).run()


class _Machine:
    """Events of all ranks, and the messages that are on their way or asked for."""

    def __init__(self, ranks: list[dict[int, Job]]) -> None:
        self.ranks = [_Rank(jobs) for jobs in ranks]
        self.events: list[tuple[int, int, int, int]] = []
        self.order = itertools.count()
        self.arrived: set[tuple[object, ...]] = set()
        self.asked: dict[tuple[object, ...], tuple[int, int]] = {}

    def run(self) -> list[dict[int, tuple[int, int]]]:
        for rank in range(len(self.ranks)):
            self.issue(rank, 0)
        while self.events:
            now, _, rank, id = heapq.heappop(self.events)
            self.end(rank, id, now)
            job = self.ranks[rank].jobs[id]
            if job.slot == "comm" and job.key is not None:
                self.arrived.add(job.key)
                if job.key in self.asked:
                    self.end(*self.asked.pop(job.key), now)
        return [{id: (own.issue[id], own.finish[id]) for id in own.finish} for own in self.ranks]

    def issue(self, rank: int, now: int) -> None:
        own = self.ranks[rank]
        for id in sorted(own.jobs):
            job = own.jobs[id]
            if id in own.issue or own.waiting[id] or (job.slot and job.slot in own.busy):
                continue
            own.issue[id] = now
            own.busy |= {job.slot} - {""}
            if job.slot or job.key in self.arrived:
                heapq.heappush(self.events, (now + job.time, next(self.order), rank, id))
            elif job.key is not None:
                self.asked[job.key] = (rank, id)

    def end(self, rank: int, id: int, now: int) -> None:
        own = self.ranks[rank]
        own.finish[id] = now
        own.busy.discard(own.jobs[id].slot)
        for parents in own.waiting.values():
            parents.discard(id)
        self.issue(rank, now)


def exposed(spans: list[tuple[int, int, str]], order: tuple[str, ...], end: int) -> dict[str, int]:
    """Return the time of each kind of span that no earlier kind in ``order`` covers, and "idle".

    Args:
        spans: (start, end, kind).
        order: Kinds, the first one counted first.
        end: Until when to count.
    """
    edges = sorted({0, end, *(edge for start, stop, _ in spans for edge in (start, stop))})
    total: dict[str, int] = defaultdict(int)
    for left, right in itertools.pairwise(edges):
        if right > end:
            break
        kinds = {kind for start, stop, kind in spans if start <= left and right <= stop}
        found = next((kind for kind in order if kind in kinds), "idle")
        total[found] += right - left
    return dict(total)
