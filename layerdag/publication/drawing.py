"""Draw samples for publication: filter copies, renumber, batch."""

import json
import time
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import final

import numpy as np
import torch

from layerdag.dag.dag import DAG, graph_hash
from layerdag.dag.statistics import GraphStatistics
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.discovery import FoundJobs
from layerdag.errors import DataError, UsageError
from layerdag.evaluation.validity import check_structure
from layerdag.graph.attributed_graph import AttributedGraph, Condition
from layerdag.graph.formats.program_json import CALL, SIZES
from layerdag.kinds.program import PROGRAM
from layerdag.privacy.copies import (
    CopyComparison,
    CopyTest,
    call_keys,
    keys_of_one_run,
    tuple_keys,
)
from layerdag.programs.forward_program import Program
from layerdag.publication.settings import ReleaseSettings
from layerdag.publication.workspace import DRAWN, HASHES, PrivateWorkspace
from layerdag.runtime.files import atomic_path, discard_folder, write_text
from layerdag.runtime.rng import numpy_generator
from layerdag.runtime.terminal import track
from layerdag.sampling.generated import GeneratedGraph, GeneratedProgram
from layerdag.sampling.generation import draw_policy, generate
from layerdag.sampling.settings import GenerationSettings
from layerdag.schema.attributes import NumericAttribute
from layerdag.schema.schema import GraphSchema
from layerdag.training.checkpoint import LoadedCheckpoint
from layerdag.validation.checking import check_workload
from layerdag.validation.rules import has_errors


def write_batch(file: Path, batch: Sequence[GeneratedGraph]) -> None:
    """Write a batch as arrays and JSON, whole or not at all."""
    arrays: dict[str, np.ndarray] = {}
    for i, sample in enumerate(batch):
        dag = sample.dag
        parts = {"x": dag.x_NA, "u": dag.u_NA, "e": dag.edge_index_2E, "t": dag.edge_type_E}
        arrays |= {f"{name}{i}": part.numpy() for name, part in parts.items()}
    notes = [
        {"seed": s.seed, "truncated": bool(s.truncated), "conditions": dict(s.dag.conditions)}
        | ({"program": _program_of(s)} if isinstance(s, GeneratedProgram) else {})
        for s in batch
    ]
    arrays["notes"] = np.frombuffer(json.dumps(notes).encode(), dtype=np.uint8)
    with atomic_path(file) as draft, draft.open("wb") as stream:
        np.savez_compressed(stream, allow_pickle=False, **arrays)


def _program_of(sample: GeneratedProgram) -> dict[str, object] | None:
    return None if sample.checked is None else sample.checked.to_json()


def read_batch(file: Path, schema: GraphSchema) -> list[GeneratedGraph]:
    """Read a batch; raises ValueError or KeyError if the file is damaged."""
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as held:
            notes = json.loads(held["notes"].tobytes())
            return [_sample_of(held, i, note, schema) for i, note in enumerate(notes)]
    except zipfile.BadZipFile as error:
        raise ValueError(str(error)) from error


def _sample_of(
    held: Mapping[str, np.ndarray], i: int, note: Mapping[str, object], schema: GraphSchema
) -> GeneratedGraph:
    x_NA, u_NA, edges, types = (torch.from_numpy(held[f"{name}{i}"]) for name in "xuet")
    conditions = note["conditions"]
    assert isinstance(conditions, dict)
    dag = DAG.build(x_NA, edges, edge_type_E=types, u_NA=u_NA, conditions=conditions)
    seed = int(str(note["seed"]))
    name, truncated = f"drawn-{seed}", bool(note["truncated"])
    if not schema.kind.has_steps:
        return draw_policy(schema, GenerationSettings()).drawn(name, seed, dag, truncated)
    if note["program"] is None:
        return GeneratedProgram(name, seed, dag, truncated, schema, unmet="It does not run.")
    checked = Program.from_json(note["program"], name)
    return GeneratedProgram(name, seed, dag, truncated, schema, checked=checked)


def published_conditions(sample: GeneratedGraph) -> Iterator[tuple[str, Condition]]:
    """Yield the conditions of a sample, numbers to three digits."""
    for name, value in sample.dag.conditions.items():
        if name not in ("num_nodes", "num_layers", "world_size"):
            yield name, value if isinstance(value, str) else float(f"{value:.3g}")


SAME_BIN = 2
"""Trials in which drawn numbers stay in their bins; later ones move one to a neighboring bin."""


@final
class Renumbering:
    """Gives nodes other numbers until they have none of a single real run."""

    def __init__(self, schema: GraphSchema, unique: np.ndarray) -> None:
        """Avoid the keys ``unique`` (sorted, see ``tuple_keys``)."""
        self._schema = schema
        self._unique = unique

    def hits(self, graph: AttributedGraph) -> np.ndarray:
        """Return which nodes have the numbers of a single real run, bool (N,)."""
        return np.isin(keys_of(graph), self._unique)

    def again(self, sample: GeneratedGraph, trial: int) -> GeneratedGraph:
        """Return a sample with other numbers where it has those of a single run.

        They are drawn anew in their bins, and then in the bins beside.

        Args:
            sample: What earlier trials made of it.
            trial: Counts from 0; another one gives other numbers.
        """
        hit_N = self.hits(sample.decoded)
        rows = np.flatnonzero(hit_N) if hit_N.any() else np.arange(sample.dag.num_nodes)
        rng = numpy_generator(sample.seed, "numbers of a single run", trial)
        x_NA, u_NA = sample.dag.x_NA.clone(), sample.dag.u_NA.clone()
        counts = [
            a.num_codes if isinstance(a, NumericAttribute) else 0 for a in self._schema.attributes
        ]
        columns = [column for column, count in enumerate(counts) if count]
        fresh = rng.random((len(rows), len(columns)), dtype=np.float32)
        at = np.ix_(rows, np.array(columns, dtype=np.int64))
        u_NA[at] = torch.from_numpy(np.minimum(fresh, np.float32(1 - 2**-24)))
        for row in rows.tolist() if trial >= SAME_BIN else ():
            stated = [c for c in columns if x_NA[row, c] > 0 and counts[c] > 2]
            if stated:
                column = stated[int(rng.integers(len(stated)))]
                step = 1 if rng.random() < 0.5 else -1
                code = int(x_NA[row, column]) + step
                inside = 1 <= code < counts[column]
                x_NA[row, column] = code if inside else code - 2 * step
        u_NA[x_NA == 0] = 0
        return replace(sample, dag=sample.dag.with_columns(x_NA, u_NA))


def keys_of(graph: AttributedGraph) -> np.ndarray:
    """Return a key of each node's operator and numbers, or call and sizes, uint64 (N,)."""
    if PROGRAM.describes(graph):
        return call_keys(graph.categories[CALL], graph.categories[SIZES])
    operators = next(iter(graph.categories.values()))
    return tuple_keys(operators, list(graph.numbers.values()))


TRIALS = 8
"""Times that a sample is given other numbers before it is rejected."""
KEPT = "kept"
REPEATED = "repeats an earlier sample"
TRUNCATED = "cut off at the largest size"
INVALID = "breaks a rule on graphs"
NO_TRACE = "breaks a rule on traces"
NO_PROGRAM = "breaks a rule on programs"
UNIQUE_TUPLE = "holds numbers of a single real run"
UNIQUE_CALL = "holds a call of a single real run"


@dataclass(eq=False)
class ReleaseFilter:
    """Decides of each drawn sample, in order.

    Attributes:
        copies: The test for copies.
        unique: Keys of the numbers that one real run alone has.
        statistics: Of the training graphs, for the rules.
        seen: Hashes of the kept samples.
        renumbered: Nodes of kept samples that got other numbers than were drawn.
    """

    data: GraphDataset
    copies: CopyTest
    unique: np.ndarray
    statistics: GraphStatistics
    seen: set[str] = field(default_factory=set)
    renumbered: int = 0

    @classmethod
    def from_jobs(cls, jobs: FoundJobs, data: GraphDataset) -> "ReleaseFilter":
        """Prepare all tests on the real graphs."""
        return cls(
            data,
            CopyTest(data.graphs["train"], data.held_out, data.schema.measured_columns),
            keys_of_one_run([keys_of(graph) for graph in jobs.graphs], jobs.runs),
            GraphStatistics.measure(data.graphs["train"], data.schema.sizes()),
        )

    @cached_property
    def _renumbering(self) -> Renumbering:
        return Renumbering(self.data.schema, self.unique)

    def filter(self, samples: Sequence[GeneratedGraph]) -> Iterator[tuple[GeneratedGraph, str]]:
        """Yield each sample as it may be published, with what becomes of it."""
        if not samples:
            return
        dags = [sample.dag for sample in samples]
        valid_B = check_structure(dags, self.statistics).valid_B
        resembling = self.copies.resemblances(dags)
        for sample, valid, found in zip(samples, valid_B, resembling, strict=True):
            if sample.truncated:
                yield sample, TRUNCATED
            elif not valid:
                yield sample, INVALID
            elif found is not CopyComparison.NEW:
                yield sample, found.value
            else:
                yield self._decided(sample)

    def _decided(self, sample: GeneratedGraph) -> tuple[GeneratedGraph, str]:
        word = graph_hash(sample.dag)
        if word in self.seen:
            return sample, REPEATED
        if sample.schema.kind.has_steps:
            return sample, self._decided_program(sample, word)
        first = sample
        for trial in range(TRIALS):
            try:
                graph = sample.written_graph()
            except DataError:
                return sample, NO_TRACE
            if not self._renumbering.hits(graph).any():
                # With other numbers it may resemble another real graph than before.
                is_changed = not torch.equal(sample.dag.x_NA, first.dag.x_NA)
                if is_changed and self.copies.resemblances([sample.dag]) != [CopyComparison.NEW]:
                    return sample, CopyComparison.NEAR.value
                self.seen.add(word)
                self.renumbered += _changed(first, sample)
                return sample, KEPT
            sample = self._renumbering.again(sample, trial)
        return first, UNIQUE_TUPLE

    def _decided_program(self, sample: GeneratedGraph, word: str) -> str:
        try:
            graph = sample.written_graph()
            if np.isin(keys_of(graph), self.unique).any():
                return UNIQUE_CALL
            step = sample.derived().workload
        except (DataError, UsageError):
            return NO_PROGRAM
        if has_errors(check_workload(step)):
            return NO_TRACE
        self.seen.add(word)
        return KEPT


def _changed(first: GeneratedGraph, last: GeneratedGraph) -> int:
    if last is first:
        return 0
    pairs = zip(first.decoded.numbers.values(), last.decoded.numbers.values(), strict=True)
    changed = [~np.isclose(one, other, equal_nan=True) for one, other in pairs]
    return int(np.any(changed, axis=0).sum()) if changed else 0


BATCH = 32
FIRST_PIECE = 4
"""Samples that are drawn first, to learn how long one takes."""
MAX_DRAWN_PER_KEPT = 20


@dataclass(frozen=True, eq=False)
class AcceptedSamples:
    """All samples that were drawn.

    Attributes:
        samples: In order of their seeds.
        outcomes: What became of each: ``KEPT``, or the reason of its rejection.
        renumbered: Nodes of kept samples that got other numbers, for those drawn were of a single
            real run, or go with such.
        threshold: Distance below which a sample counted as a near copy.
        seconds: That drawing took.
    """

    samples: tuple[GeneratedGraph, ...]
    outcomes: tuple[str, ...]
    renumbered: int
    threshold: float
    seconds: float

    def kept(self, most: int | None = None) -> list[GeneratedGraph]:
        """Return the samples that may be published."""
        found = [s for s, word in zip(self.samples, self.outcomes, strict=True) if word == KEPT]
        return found[:most]

    @property
    def with_copies(self) -> list[GeneratedGraph]:
        """What would be published without the rejection of copies."""
        wanted = {KEPT, CopyComparison.COPY.value, CopyComparison.NEAR.value}
        return [s for s, word in zip(self.samples, self.outcomes, strict=True) if word in wanted]

    @property
    def price(self) -> float | None:
        """Samples drawn for each one that was kept; None if none was."""
        kept = sum(word == KEPT for word in self.outcomes)
        return len(self.outcomes) / kept if kept else None

    def counts(self) -> Mapping[str, int]:
        """Return the number of samples by outcome."""
        return Counter(self.outcomes)


def draw_samples(
    settings: ReleaseSettings,
    jobs: FoundJobs,
    data: GraphDataset,
    checkpoint: LoadedCheckpoint,
    work: PrivateWorkspace,
    seconds: float,
) -> AcceptedSamples:
    """Draw until enough are kept or time is up; what an earlier run drew is taken up.

    Args:
        settings: Of the release.
        jobs: The real graphs, for the numbers that only one run has.
        data: The same, split.
        checkpoint: What to sample from.
        work: The private folder.
        seconds: Most seconds to draw.
    """
    folder = work.path / DRAWN
    _start_anew_if_other(folder, settings, work)
    sieve = ReleaseFilter.from_jobs(jobs, data)
    write_text(work.path / HASHES, json.dumps(sorted(sieve.copies.hashes)) + "\n")
    began = time.monotonic()
    draw = _BatchDrawer(settings, checkpoint, data, began + seconds)
    samples: list[GeneratedGraph] = []
    outcomes: list[str] = []
    index = 0
    bar = iter(track(range(settings.num), "sampling", settings.num))
    while True:
        kept = sum(word == KEPT for word in outcomes)
        file = folder / f"{index:05d}.npz"
        before = _finished_batches(work, settings)
        most = max(MAX_DRAWN_PER_KEPT * settings.num, 4 * BATCH) if kept else 4 * BATCH
        enough = kept >= settings.num or len(outcomes) >= most
        if enough or (
            not file.is_file() and index and (index >= before or not draw.time_for_one())
        ):
            break
        batch = draw.batch(file, index, whole=index + 1 < before)
        for sample, word in sieve.filter(batch):
            samples.append(sample)
            outcomes.append(word)
            if word == KEPT:
                next(bar, None)
        index += 1
    seconds = time.monotonic() - began
    longest = max(seconds, float(work.stages.get("sample", {}).get("seconds", 0.0)))
    facts = {"batches": index, "num": settings.num, "drawn": len(outcomes)}
    work.note("sample", {**facts, "seconds": round(longest, 1)})
    return AcceptedSamples(
        tuple(samples), tuple(outcomes), sieve.renumbered, sieve.copies.threshold, seconds
    )


def _drawing_plan(settings: ReleaseSettings, num: int, seed: int) -> GenerationSettings:
    return GenerationSettings(
        num=num,
        seed=seed,
        max_nodes=settings.max_nodes,
        best_of=settings.best_of,
        temperature=settings.temperature,
    )


def _finished_batches(work: PrivateWorkspace, settings: ReleaseSettings) -> float:
    """Return after how many batches an earlier run ended; the same call ends there again."""
    noted = work.stages.get("sample", {})
    ended = isinstance(noted.get("batches"), int) and noted.get("num") == settings.num
    return float(noted["batches"]) if ended else float("inf")


def _start_anew_if_other(folder: Path, settings: ReleaseSettings, work: PrivateWorkspace) -> None:
    note = folder / "temperature.json"
    plan = _drawing_plan(settings, BATCH, settings.seed)
    chosen = plan.temperature if plan.best_of is None else [plan.temperature, plan.best_of]
    wanted = json.dumps(chosen)
    if folder.is_dir() and not (note.is_file() and note.read_text() == wanted):
        work.note("sample", {})
        discard_folder(folder)
    folder.mkdir(exist_ok=True)
    write_text(note, wanted)


class _BatchDrawer:
    """Draws batches in pieces that end in time: a piece cannot be stopped inside.

    A sample depends on its seed alone, so that pieces of any size make the same samples.

    Args:
        settings: Of the release.
        checkpoint: What to sample from.
        data: Real graphs with their schema.
        end: Time of the clock at which drawing is to end.
    """

    def __init__(
        self,
        settings: ReleaseSettings,
        checkpoint: LoadedCheckpoint,
        data: GraphDataset,
        end: float,
    ) -> None:
        self._settings, self._checkpoint, self._data = settings, checkpoint, data
        self._end = end
        self._slowest = 0.0  # seconds of a sample

    def time_for_one(self) -> bool:
        """Return whether one more sample would end in time."""
        return time.monotonic() + self._slowest < self._end

    def batch(self, file: Path, index: int, *, whole: bool) -> list[GeneratedGraph]:
        """Return a batch as far as there is time, the first time at least one piece of it.

        Args:
            file: Where it lies, perhaps in part, and is written.
            index: Its number.
            whole: Whether what an earlier run left in part is to be finished.
        """
        drawn = self._read(file)
        there = len(drawn)
        while len(drawn) < BATCH and (whole or not drawn):
            left = (self._end - time.monotonic()) / self._slowest if self._slowest else FIRST_PIECE
            size = min(int(left), BATCH - len(drawn))
            if size < 1 and drawn:
                break
            began = time.monotonic()
            drawn += self._draw(self._settings.seed + index * BATCH + len(drawn), max(size, 1))
            took = (time.monotonic() - began) / max(size, 1)
            self._slowest = max(self._slowest, took)
        if len(drawn) > there:
            write_batch(file, drawn)
            return read_batch(file, self._data.schema)
        return drawn

    def _read(self, file: Path) -> list[GeneratedGraph]:
        if file.is_file():
            try:
                return read_batch(file, self._data.schema)
            except (OSError, ValueError, KeyError, TypeError, EOFError):
                file.unlink()
        return []

    def _draw(self, seed: int, num: int) -> list[GeneratedGraph]:
        model, schema = self._checkpoint.model, self._data.schema
        plan = replace(_drawing_plan(self._settings, num, seed), batch_size=num)
        try:
            return list(generate(model, schema, replace(plan, labels="predicted")))
        except UsageError:  # no label to predict
            return list(generate(model, schema, plan))
