"""A serving cluster from event to event: requests come, instances iterate, answers end.

An instance is one engine; its data ranks iterate together. Between two events of a rank nothing
but decoding happens, and all these iterations are timed at once.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np

from layerdag.errors import ConfigError
from layerdag.serving.iteration_time import IterationTime
from layerdag.serving.iteration_work import BatchLoad
from layerdag.serving.kv_cache import KVCache
from layerdag.serving.requests import Requests
from layerdag.serving.scheduler import Batch, Limits, Run, Scheduler

ROUTINGS = ("least-loaded", "round-robin", "prefix")
"""To the rank with the fewest requests; in turn; to the rank that holds most of the prompt."""
MAX_STEPS = 4096
"""Iterations that are timed at once; more are seldom used up before the next arrival."""
_NEVER = float("inf")


@dataclass(frozen=True)
class Transfer:
    """How the cache of a prompt goes from where it was made to where it is decoded.

    ``token_bytes`` are those of a token on all devices of an instance.
    """

    token_bytes: float
    bytes_per_s: float
    latency_s: float = 0.0

    def seconds(self, tokens: int) -> float:
        """Return how long the cache of so many tokens takes."""
        return self.latency_s + self.token_bytes * tokens / self.bytes_per_s


@dataclass(frozen=True, eq=False)
class InstanceGroup:
    """Instances of one kind, with ``ranks`` data ranks each.

    ``limits``, ``blocks`` (of ``block_tokens`` tokens in the cache) are those of a rank.
    """

    instances: int
    ranks: int
    time: IterationTime
    limits: Limits
    blocks: int
    block_tokens: int = 16


@dataclass(eq=False)
class Iterations:
    """Iterations of an instance, columns of equal length.

    Attributes:
        start_s: When it began.
        seconds: How long it took.
        prefill_tokens: Tokens of prompts in it.
        decodes: Sequences that decoded.
        sequences: Sequences in the batch.
        waiting: Requests that waited.
        held: Blocks of the cache that were held at its end.
    """

    start_s: np.ndarray
    seconds: np.ndarray
    prefill_tokens: np.ndarray
    decodes: np.ndarray
    sequences: np.ndarray
    waiting: np.ndarray
    held: np.ndarray


@final
class Instance:
    """One engine: its ranks and its clock.

    ``hash_tokens`` are the tokens of a hashed part of a prompt, 0 where nothing is reused.
    """

    def __init__(self, group: InstanceGroup, hash_tokens: int) -> None:
        self.group = group
        self.clock = 0.0
        self._lasted = 0.0
        self.ranks = [
            Scheduler(group.limits, KVCache(group.blocks, group.block_tokens, hash_tokens))
            for _ in range(group.ranks)
        ]
        self._columns: list[tuple[np.ndarray, ...]] = []

    @property
    def busy(self) -> bool:
        """Whether any of its ranks has something to do."""
        return any(rank.busy for rank in self.ranks)

    def run(self, horizon: float) -> tuple[list[tuple[float, Run]], list[tuple[float, Run]]]:
        """Iterate once, or as often as nothing but decoding happens before ``horizon``.

        Returns:
            Sequences whose prompt has ended, and those that have all their answer, with the time.
        """
        waiting = sum(len(rank.waiting) for rank in self.ranks)
        batches = [rank.next_batch() for rank in self.ranks]
        steps = 1
        if not any(batch.prompts for batch in batches):
            steps = min(
                rank.steps() for rank, batch in zip(self.ranks, batches, strict=True)
                if batch.decodes
            )  # fmt: skip
        # Iterations seldom become shorter, so that these last at least until the horizon.
        near = (horizon - self.clock) / self._lasted if self._lasted else MAX_STEPS
        steps = min(steps, MAX_STEPS, int(min(near, MAX_STEPS)) + 2)
        columns = np.array([batch.load() for batch in batches], dtype=np.float64).T[:, :, None]
        load = np.repeat(columns, steps, axis=2)
        if steps > 1:
            load[5] += load[4] * np.arange(steps)
        seconds = self.group.time.seconds(BatchLoad(*load))
        ends = self.clock + np.cumsum(seconds)
        if horizon < ends[-1]:
            steps = int(np.searchsorted(ends, horizon)) + 1
        started: list[tuple[float, Run]] = []
        finished: list[tuple[float, Run]] = []
        end = float(ends[steps - 1])
        self._note(batches, seconds[:steps], ends[:steps], waiting)
        for rank, batch in zip(self.ranks, batches, strict=True):
            begun, done = rank.advance(batch, steps)
            started += [(end, run) for run in begun]
            finished += [(end, run) for run in done]
        self.clock, self._lasted = end, float(seconds[steps - 1])
        return started, finished

    def _note(
        self, batches: Sequence[Batch], seconds: np.ndarray, ends: np.ndarray, waiting: int
    ) -> None:
        steps = len(seconds)
        prompts = sum(chunk for batch in batches for _, chunk in batch.prompts)
        decodes = sum(batch.decodes for batch in batches)
        sequences = sum(rank.running for rank in self.ranks)
        held = sum(rank.cache.held for rank in self.ranks)
        whole = (prompts, decodes, sequences, waiting, held)
        columns = [np.full(steps, value, dtype=np.int64) for value in whole]
        if steps > 1:
            grown = np.arange(steps) * (decodes / self.group.block_tokens)
            room = self.group.blocks * self.group.ranks
            columns[-1] = np.minimum(held + grown, room).astype(np.int64)
        self._columns.append((ends - seconds, seconds, *columns))

    def iterations(self) -> Iterations:
        """Return what has been done."""
        if not self._columns:
            return Iterations(*(np.zeros(0) for _ in range(7)))
        return Iterations(*(np.concatenate(column) for column in zip(*self._columns, strict=True)))


@dataclass(frozen=True, eq=False)
class ServingRun:
    """What became of all requests.

    Attributes:
        requests: With the times at which they came.
        first_token_s: When the first token of each was drawn; NaN where it was refused.
        finish_s: When its last token was drawn; NaN where it was refused.
        instance: The instance that answered.
        refused: Requests whose prompt and answer fit in no cache.
        preemptions: How often a sequence left a batch for want of cache.
        reused_tokens: Tokens of prompts that were found in a cache.
        iterations: Of each instance.
        blocks: Blocks of the cache of each instance, all ranks.
    """

    requests: Requests
    first_token_s: np.ndarray
    finish_s: np.ndarray
    instance: np.ndarray
    refused: np.ndarray
    preemptions: int
    reused_tokens: int
    iterations: Sequence[Iterations]
    blocks: Sequence[int]


@final
class ServingCluster:
    """Instances that prefill and decode, or do both.

    Args:
        requests: To answer.
        decode: Instances that decode; they also prefill where there are no others.
        prefill: Instances for prompts alone, which need a ``transfer`` of caches.
        transfer: See ``prefill``.
        routing: One of ``ROUTINGS``.
        concurrency: Most requests at a time, of which each waits for another to end; 0 for none.
        request_s: Time of a request before it reaches an engine.

    Raises:
        ConfigError: If routing, transfer or concurrency are not possible.
    """

    def __init__(
        self,
        requests: Requests,
        decode: InstanceGroup,
        prefill: InstanceGroup | None = None,
        transfer: Transfer | None = None,
        routing: str = "least-loaded",
        concurrency: int = 0,
        request_s: float = 0.0,
    ) -> None:
        if routing not in ROUTINGS:
            raise ConfigError(
                f"serving: there is no routing '{routing}'; known are {', '.join(ROUTINGS)}."
            )
        if (prefill is None) != (transfer is None):
            raise ConfigError("serving: instances for prompts need a transfer, and it them.")
        if concurrency < 0:
            raise ConfigError(f"serving: concurrency is {concurrency}; it must be at least 0.")
        self._requests, self._transfer = requests, transfer
        hashed = requests.hash_tokens if len(requests.hashes) else 0
        self._decode = [Instance(decode, hashed) for _ in range(decode.instances)]
        self._prefill = self._decode
        if prefill is not None:
            self._prefill = [Instance(prefill, hashed) for _ in range(prefill.instances)]
        self._routing, self._turn = routing, {True: 0, False: 0}
        self._request_s = request_s
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = 0
        count = len(requests)
        self._arrival = requests.arrival_s.copy()
        self._first = np.full(count, np.nan)
        self._finish = np.full(count, np.nan)
        self._instance = np.full(count, -1, dtype=np.int64)
        room = [group.blocks * group.block_tokens for group in (decode, prefill) if group]
        self._refused = requests.input_tokens + requests.output_tokens > min(room)
        self._concurrency = concurrency
        self._next = 0

    @property
    def _all(self) -> list[Instance]:
        if self._transfer is None:
            return self._decode
        return [*self._prefill, *self._decode]

    def run(self) -> ServingRun:
        """Let all requests through."""
        if self._concurrency:
            for _ in range(min(self._concurrency, len(self._requests))):
                self._let_in(0.0)
        else:
            for at in np.flatnonzero(~self._refused).tolist():
                self._arrive(at, float(self._arrival[at]))
        instances = self._all
        while True:
            due = self._events[0][0] if self._events else _NEVER
            chosen = min((i for i in instances if i.busy), key=lambda i: i.clock, default=None)
            if chosen is None or due <= chosen.clock:
                if not self._events:
                    break
                time_s, _, act = heapq.heappop(self._events)
                act(time_s)
                continue
            if self._concurrency:
                felt = instances
            elif self._transfer is None or chosen in self._prefill:
                felt = []
            else:
                felt = self._prefill
            others = (i.clock for i in felt if i is not chosen and i.busy)
            self._outcome(chosen, *chosen.run(min(due, min(others, default=_NEVER))))
        ranks = [rank for instance in instances for rank in instance.ranks]
        return ServingRun(
            Requests(
                self._arrival, self._requests.input_tokens, self._requests.output_tokens,
                self._requests.hashes, self._requests.hash_tokens,
            ),
            self._first, self._finish, self._instance, self._refused,
            sum(rank.preemptions for rank in ranks),
            sum(rank.reused for rank in ranks),
            [instance.iterations() for instance in instances],
            [instance.group.blocks * instance.group.ranks for instance in instances],
        )  # fmt: skip

    def _let_in(self, now: float) -> None:
        """Let the next request come; what is refused holds no place."""
        while self._next < len(self._requests):
            at = self._next
            self._next += 1
            self._arrive(at, max(now, float(self._requests.arrival_s[at])))
            if not self._refused[at]:
                return

    def _arrive(self, request: int, time_s: float) -> None:
        self._arrival[request] = time_s
        if self._refused[request]:
            return
        found = self._requests
        hashes = found.hashes[request] if len(found.hashes) else ()
        # Where caches are sent away, the instance for prompts draws the first token alone.
        outputs = int(found.output_tokens[request]) if self._transfer is None else 1
        run = Run(request, time_s, int(found.input_tokens[request]), outputs, hashes)
        self._at(time_s + self._request_s, partial(self._route, self._prefill, run))

    def _at(self, time_s: float, act: Callable[[float], None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (time_s, self._order, act))

    def _route(self, instances: list[Instance], run: Run, now: float) -> None:
        ranks = [(instance, rank) for instance in instances for rank in instance.ranks]
        turn = self._turn[run.loaded]
        self._turn[run.loaded] += 1
        if self._routing == "round-robin":
            instance, rank = ranks[turn % len(ranks)]
        else:

            def cost(at: int) -> tuple[int, int, int]:
                scheduler = ranks[at][1]
                held = scheduler.cache.matched(run.hashes) if self._routing == "prefix" else 0
                return -held, scheduler.load, (at - turn) % len(ranks)

            instance, rank = ranks[min(range(len(ranks)), key=cost)]
        if not instance.busy:
            instance.clock = max(instance.clock, now)
        rank.waiting.append(run)
        self._instance[run.request] = self._all.index(instance)

    def _outcome(
        self, instance: Instance, started: list[tuple[float, Run]], ended: list[tuple[float, Run]]
    ) -> None:
        for time_s, run in started:
            if np.isnan(self._first[run.request]):
                self._first[run.request] = time_s
        for time_s, run in ended:
            request = run.request
            whole = int(self._requests.output_tokens[request])
            if self._transfer is not None and not run.loaded and whole > 1 and run.outputs == 1:
                tokens = int(self._requests.input_tokens[request])
                route = partial(
                    self._route, self._decode, Run(request, time_s, tokens, whole, loaded=True)
                )
                self._at(time_s + self._transfer.seconds(tokens), route)
                continue
            self._finish[request] = time_s
            if self._concurrency:
                # An instance that is ahead may end a later request first.
                self._at(time_s, self._let_in)
