"""The batch of one rank: which sequences run in the next iteration (Orca, vLLM, Sarathi).

Sequences that decode go first, one token each; what is left of the budget of tokens goes to prompts
that have begun, then to those that wait, in the order of their arrival. A prompt may be cut into
chunks. Where the cache is full, the sequence that was admitted last leaves it and starts again.
"""

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np

from layerdag.serving.kv_cache import KVCache


@dataclass(frozen=True)
class Limits:
    """What an engine lets into a batch.

    Attributes:
        sequences: Most sequences that run at a time (vLLM: max_num_seqs).
        tokens: Most tokens of an iteration (max_num_batched_tokens).
        chunked: Whether a prompt may be cut; otherwise it waits until the budget holds all of it.
        mixed: Whether prompts share an iteration with sequences that decode; otherwise these wait.
    """

    sequences: int = 256
    tokens: int = 8192
    chunked: bool = True
    mixed: bool = True


@dataclass(eq=False, slots=True)
class Run:
    """One request in an engine.

    Attributes:
        request: Its place among all requests.
        arrival_s: When it came to this engine.
        target: Tokens that must be in the cache before it decodes.
        outputs: Tokens of the answer.
        hashes: Of the parts of its prompt.
        loaded: Whether its cache arrives with it (disaggregated decode).
        computed: Tokens of ``target`` in the cache.
        answered: Tokens of the answer that are drawn.
        begun: Decode step after which it decodes.
        blocks: Blocks of its own while it prefills; of the prefill while it decodes.
        shared: Parts that it shares.
        admitted: Number of its admission.
        running: Whether it is in the batch.
    """

    request: int
    arrival_s: float
    target: int
    outputs: int
    hashes: Sequence[int] = ()
    loaded: bool = False
    computed: int = 0
    answered: int = 0
    begun: int = -1
    blocks: int = 0
    shared: list[int] = field(default_factory=list)
    admitted: int = 0
    running: bool = False


@dataclass(slots=True)
class Batch:
    """What one rank does in an iteration, or in several alike that only decode.

    Attributes:
        prompts: Sequences with the tokens of their prompts that are computed.
        decodes: Sequences that decode.
        context: Cached tokens that they read together, their new ones included.
    """

    prompts: list[tuple[Run, int]]
    decodes: int
    context: int

    def load(self) -> tuple[int, ...]:
        """Return the numbers of ``BatchLoad``, in its order."""
        tokens = pairs = read = ends = 0
        for run, chunk in self.prompts:
            tokens += chunk
            pairs += chunk * run.computed + chunk * (chunk + 1) // 2
            read += run.computed + chunk
            ends += run.computed + chunk == run.target
        prompts = (len(self.prompts), tokens, pairs, read)
        return (*prompts, self.decodes, self.context, self.decodes + ends)


@final
class Scheduler:
    """Queue, cache and running sequences of one rank."""

    def __init__(self, limits: Limits, cache: KVCache) -> None:
        self.limits = limits
        self.cache = cache
        self.waiting: deque[Run] = deque()
        self.preemptions = 0
        self.reused = 0
        self._prefilling: list[Run] = []
        self._finishing: list[tuple[int, int, Run]] = []
        self._admissions: list[tuple[int, Run]] = []
        self._count = 0
        self._decodes = 0
        self._context = 0
        self._step = 0
        self._reserved = 0
        self._crowded = False
        # Sequences that fill a block in a step, by the step modulo the tokens of a block.
        self._filling = np.zeros(cache.block_tokens, dtype=np.int64)

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return len(self._prefilling) + self._decodes

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.running or self.waiting)

    @property
    def load(self) -> int:
        """Requests that are here, running or waiting."""
        return self.running + len(self.waiting)

    def next_batch(self) -> Batch:
        """Return what runs in the next iteration; makes room for it."""
        before = self.preemptions
        while self._filled_at(self._step + 1) > self.cache.free:
            self._preempt()
        self._crowded = self.preemptions > before
        self._reserved = self._filled_at(self._step + 1)
        budget = self.limits.tokens - (self._decodes if self.limits.mixed else 0)
        prompts: list[tuple[Run, int]] = []
        for run in self._prefilling:
            chunk = self._grown(run, min(run.target - run.computed, budget))
            if chunk > 0:
                prompts.append((run, chunk))
                budget -= chunk
        most = 0 if self._crowded else self.limits.sequences
        while budget > 0 and self.waiting and self.running < most:
            admitted = self._admit(self.waiting[0], budget)
            if admitted is None:
                break
            run = self.waiting.popleft()
            if admitted:
                prompts.append((run, admitted))
            budget -= admitted
        if not prompts and not self._decodes and self._prefilling:
            # Prompts that have begun fill the cache: the last one makes room for the others.
            self._preempt()
            return self.next_batch()
        decodes = self._decodes if self.limits.mixed or not prompts else 0
        return Batch(prompts, decodes, self._context + self._decodes if decodes else 0)

    def steps(self) -> int:
        """Return in how many iterations in a row nothing but decoding happens."""
        while self._finishing and not self._is_current(*self._finishing[0]):
            heapq.heappop(self._finishing)
        if self._prefilling or not self._finishing or (self._crowded and self.waiting):
            return 1
        # What waits has no room, and gets none before one of those that decode has ended.
        limit = self._finishing[0][0] - self._step
        cycle = self.cache.block_tokens
        free = self.cache.free
        if (limit // cycle + 1) * self._decodes <= free:
            return limit
        needed = self._filling[(self._step + 1 + np.arange(min(limit, 64 * cycle))) % cycle]
        return max(int(np.searchsorted(np.cumsum(needed), free, side="right")), 1)

    def advance(self, batch: Batch, steps: int = 1) -> tuple[list[Run], list[Run]]:
        """Take the outcome of an iteration, or of several that only decode.

        Returns:
            Sequences whose prompt has ended, and those that have all their answer.
        """
        if batch.decodes:
            cycle = self.cache.block_tokens
            whole, rest = divmod(steps, cycle)
            taken = whole * self._decodes
            taken += sum(self._filled_at(self._step + 1 + i) for i in range(rest))
            self.cache.take(taken)
            self._step += steps
            self._context += steps * self._decodes
        finished = []
        while self._finishing and self._finishing[0][0] <= self._step:
            entry = heapq.heappop(self._finishing)
            if self._is_current(*entry):
                finished.append(entry[2])
                self._leave(entry[2])
        started, cache = [], self.cache
        for run, chunk in batch.prompts:
            run.computed += chunk
            if run.computed == run.target:
                started.append(run)
                self._prefilling.remove(run)
                run.answered += 1
                if cache.hash_tokens and run.hashes:
                    parts = min(run.target // cache.hash_tokens, len(run.hashes))
                    fresh = cache.publish(list(run.hashes[len(run.shared) : parts]))
                    run.blocks -= cache.of(cache.hash_tokens) * len(fresh)
                    run.shared += fresh
                if run.answered >= run.outputs:
                    finished.append(run)
                    self._release(run)
                else:
                    self._decode(run)
        return started, finished

    def _filled_at(self, step: int) -> int:
        return int(self._filling[step % self.cache.block_tokens])

    @staticmethod
    def _is_current(_: int, admitted: int, run: Run) -> bool:
        return run.running and run.admitted == admitted

    def _preempt(self) -> None:
        """Take the sequence admitted last out of the batch; it is computed again."""
        admitted, run = self._admissions.pop()
        while not self._is_current(0, admitted, run):
            admitted, run = self._admissions.pop()
        self.preemptions += 1
        if run.begun >= 0:
            done = self._step - run.begun
            self._leave(run)
            run.answered += done
            # The token drawn last has no keys yet: it is computed with the others.
            run.target += done + 1
        else:
            self._prefilling.remove(run)
            self._release(run)
        run.computed = 0
        run.loaded = False
        self.waiting.appendleft(run)

    def _admit(self, run: Run, budget: int) -> int | None:
        """Let a waiting sequence in; return the tokens of its prompt to compute, None for none."""
        cache = self.cache
        if run.loaded:
            blocks = cache.of(run.target)
            if cache.of(run.target + 1) > cache.free - self._reserved:
                return None
            self._enter(run)
            run.blocks = blocks
            cache.take(blocks)
            run.computed = run.target
            run.answered = 1
            self._decode(run)
            self._reserved = self._filled_at(self._step + 1)
            return 0
        parts = cache.matched(run.hashes) if cache.hash_tokens else 0
        while parts and parts * cache.hash_tokens >= run.target:
            parts -= 1
        known = run.hashes[:parts]
        left = run.target - parts * cache.hash_tokens
        room = (cache.free - self._reserved - cache.unused(known)) * cache.block_tokens
        chunk = min(left, budget) if self.limits.chunked else left
        if chunk > room or (chunk > budget and budget < self.limits.tokens):
            return None
        self._enter(run)
        cache.share(known)
        run.shared = list(known)
        run.computed = parts * cache.hash_tokens
        self.reused += run.computed
        run.blocks = cache.of(chunk)
        cache.take(run.blocks)
        self._prefilling.append(run)
        return chunk

    def _enter(self, run: Run) -> None:
        self._count += 1
        run.admitted, run.running, run.begun = self._count, True, -1
        self._admissions.append((self._count, run))

    def _grown(self, run: Run, chunk: int) -> int:
        """Take blocks for more of a prompt; return its tokens, 0 where there is no room."""
        cache = self.cache
        own = run.computed - len(run.shared) * cache.hash_tokens
        room = (cache.free - self._reserved + run.blocks) * cache.block_tokens - own
        if 0 < chunk <= room:
            more = cache.of(own + chunk) - run.blocks
            cache.take(more)
            run.blocks += more
            return chunk
        return 0

    def _decode(self, run: Run) -> None:
        run.begun = self._step
        left = run.outputs - run.answered
        heapq.heappush(self._finishing, (self._step + left, run.admitted, run))
        self._decodes += 1
        self._context += run.target
        self._filling[(self._step + 1 - run.target) % self.cache.block_tokens] += 1

    def _leave(self, run: Run) -> None:
        cache = self.cache
        done = self._step - run.begun
        self._decodes -= 1
        self._context -= run.target + done
        self._filling[(run.begun + 1 - run.target) % cache.block_tokens] -= 1
        run.blocks += cache.of(run.target + done) - cache.of(run.target)
        self._release(run)

    def _release(self, run: Run) -> None:
        self.cache.give_back(run.blocks)
        self.cache.unshare(run.shared)
        run.blocks, run.shared, run.running = 0, [], False
        if run.begun >= 0:
            run.begun = -1
