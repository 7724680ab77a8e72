"""``generate`` and ``sample``: graphs from a checkpoint."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from layerdag.datasets.dataset import encode_batch
from layerdag.errors import DataError, UsageError
from layerdag.graph.attributed_graph import LABEL, NUM_LAYERS, NUM_NODES, Condition
from layerdag.models.base import DAGModel, SampleRequest
from layerdag.programs.inference import ShapeInference
from layerdag.programs.targets import TOLERANCE, Targets, solve_targets
from layerdag.runtime.rng import derive_seed
from layerdag.sampling.executed import ExecutionCheck
from layerdag.sampling.feasibility import (
    BATCH_SIZE,
    PROGRAM_BATCH_SIZE,
    FaultCounter,
    batches_of_like_size,
    possible_codes,
    sample_checked,
    size_error,
)
from layerdag.sampling.generated import FilesAhead, GeneratedGraph, has_communication, sample_name
from layerdag.sampling.processes import sample_and_finish, sample_in_processes
from layerdag.sampling.settings import PREDICTED, GenerationSettings
from layerdag.schema.schema import GraphSchema, complete_conditions
from layerdag.schema.size_tables import DEPTH, FAMILY
from layerdag.training.checkpoint import (
    SAMPLED,
    LoadedCheckpoint,
    checkpoint_path,
    checkpoint_schema,
    load_checkpoint,
)

_REDRAWS_OF_FAULTS = 8
"""Times that a job that contradicts itself, or of several silent ranks, is drawn again."""
_REDRAWS_OF_COPIES = 32
"""Times that a program is drawn again that repeats one of the training programs."""
_REDRAWS_AS_ASKED = 4
"""Of these, those under the conditions of the first draw; the others draw open ones again."""
_REDRAWS_OF_FAILURES = 32
"""Times that a program is drawn again that does not run."""
_DRAWN_AHEAD = 16
"""Programs that are drawn side by side for the next trials: as fast as a few alone."""

# Seeds of further draws follow from it; another word would change the samples of a seed.
_FURTHER = "communication"


def generate(
    model: DAGModel,
    schema: GraphSchema,
    settings: GenerationSettings,
    ahead: FilesAhead | None = None,
) -> Iterator[GeneratedGraph]:
    """Yield sampled graphs in order of their seeds; open conditions are drawn for each.

    Args:
        model: In evaluation mode.
        schema: Of the model.
        settings: What to sample.
        ahead: Makes files of programs where several processes draw.

    Raises:
        VocabularyError: If a wanted condition is unknown to the schema.
    """
    settings = settings.resolved(model, schema)
    rows = _requested(schema, settings)
    yield from sample_like(model, schema, rows, settings, wanted=settings.conditions, ahead=ahead)


def sample_once(
    model: DAGModel, schema: GraphSchema, settings: GenerationSettings
) -> list[GeneratedGraph]:
    """Return what the model itself draws, for a look at it; arguments are those of ``generate``.

    Nothing is drawn again, whatever is wrong with it.
    """
    settings = settings.resolved(model, schema)
    rows = _requested(schema, settings)
    drawing = _Drawing.from_settings(model, schema, settings)
    size = settings.batch_size or BATCH_SIZE
    parts = [range(i, min(i + size, len(rows))) for i in range(0, len(rows), size)]
    return [
        graph
        for numbers in parts
        for graph in drawing.drawn_once(
            numbers, [settings.seed + i for i in numbers], [rows[i] for i in numbers]
        )
    ]


def generate_batched(
    model: DAGModel,
    schema: GraphSchema,
    settings: GenerationSettings,
    ahead: FilesAhead | None = None,
) -> Iterator[GeneratedGraph]:
    """Yield what ``generate`` does, all held at once and drawn in fewer steps.

    Graphs of about the same requested size are drawn side by side, as many as
    ``batches_of_like_size`` allows, so that few wait for the largest of their batch. Arguments are
    those of ``generate``.

    Raises:
        VocabularyError: If a wanted condition is unknown to the schema.
    """
    settings = settings.resolved(model, schema)
    rows = _requested(schema, settings)
    drawing = _Drawing.from_settings(model, schema, settings)
    drawing = replace(drawing, wanted=settings.conditions)
    batches = [
        _Batch(tuple(b), tuple(rows[i] for i in b)) for b in batches_of_like_size(rows, settings)
    ]
    drawing = drawing.making(ahead, len(batches))
    numbers = [i for batch in batches for i in batch.numbers]
    found = dict(zip(numbers, drawing.all_graphs(batches), strict=True))
    for i in range(len(rows)):
        yield found.pop(i)


def _requested(schema: GraphSchema, settings: GenerationSettings) -> list[dict[str, Condition]]:
    seeds = [settings.seed + i for i in range(settings.num)]
    rows = complete_conditions(schema, settings.conditions, seeds)
    if not schema.kind.has_steps or DEPTH not in settings.conditions:
        return rows
    # Sizes that were drawn beside a depth that is asked for may be those of another depth.
    drawn = {NUM_NODES, NUM_LAYERS} - settings.conditions.keys()
    return [{n: value for n, value in row.items() if n not in drawn} for row in rows]


def sample_like(
    model: DAGModel,
    schema: GraphSchema,
    rows: Sequence[Mapping[str, Condition]],
    settings: GenerationSettings,
    numbers: Sequence[int] | None = None,
    wanted: Mapping[str, Condition] | None = None,
    ahead: FilesAhead | None = None,
) -> Iterator[GeneratedGraph]:
    """Yield one graph for each row of conditions, graph i with seed ``settings.seed + i``.

    Args:
        model: In evaluation mode.
        schema: Of the model.
        rows: Conditions in their own units; missing ones are unknown to the model.
        settings: Steps, guidance, limits and batch size; its ``num`` and conditions are
            not used.
        numbers: Numbers of the graphs where they are a part of a run; by default from 0 on.
        wanted: Conditions that were asked for: of a program that keeps repeating one of the data,
            or not running, the others, but for the family, are drawn again. None keeps the rows as
            they are.
        ahead: As ``generate`` takes it.

    Raises:
        VocabularyError: If a condition or category is unknown to the schema.
        UsageError: If the model cannot do what the settings ask for.
    """
    settings = settings.resolved(model, schema, asked=frozenset().union(*rows))
    drawing = replace(_Drawing.from_settings(model, schema, settings), wanted=wanted)
    size = settings.batch_size or BATCH_SIZE
    if settings.batch_size is None and schema.kind.has_steps:  # short, so that more fit
        size = min(PROGRAM_BATCH_SIZE, math.ceil(len(rows) / (settings.processes or 1)) or 1)
    numbers = range(len(rows)) if numbers is None else numbers
    batches = [
        _Batch(tuple(numbers[start : start + size]), tuple(rows[start : start + size]))
        for start in range(0, len(rows), size)
    ]
    yield from drawing.making(ahead, len(batches)).all_graphs(batches)


@dataclass(frozen=True)
class _Batch:
    """Graphs that are drawn side by side.

    Attributes:
        numbers: Of the graphs in the run.
        rows: Their conditions, in their own units.
    """

    numbers: tuple[int, ...]
    rows: tuple[Mapping[str, Condition], ...]


@dataclass(frozen=True, order=True)
class _Miss:
    """What is wrong with a sample; the least of several is the best.

    Attributes:
        faults: Contradictions that decoding would repair; of a program, that it does not run.
        copies: Whether it repeats a training program whose hash the schema keeps.
        size: How far it is from the number of nodes asked for (``size_miss``).
    """

    faults: int
    copies: bool
    size: float


@dataclass(frozen=True, eq=False)
class _Drawing:
    """Draws graphs of one request, any of them side by side.

    Attributes:
        model: In evaluation mode.
        schema: Of the model.
        settings: With what was left to the model.
        check: Runs programs while they are drawn; None for other graphs.
        wanted: Conditions that were asked for, where others may be drawn again.
        ahead: Makes files of what was drawn.
    """

    model: DAGModel
    schema: GraphSchema
    settings: GenerationSettings
    check: ExecutionCheck | None = None
    wanted: Mapping[str, Condition] | None = None
    ahead: FilesAhead | None = None

    @classmethod
    def from_settings(
        cls, model: DAGModel, schema: GraphSchema, settings: GenerationSettings
    ) -> "_Drawing":
        """Return what draws the graphs of a request. Raises as ``sample_like``."""
        settings = settings.resolved(model, schema)
        check = ExecutionCheck(schema, ShapeInference()) if schema.kind.has_steps else None
        return cls(model, schema, settings, check)

    def making(self, ahead: FilesAhead | None, batches: int) -> "_Drawing":
        """Return what makes files of programs, too, if several processes draw so many batches.

        One process makes each when it is written, so that what was drawn is seen at once.
        """
        several = min(self.settings.processes or 1, batches) > 1
        return replace(self, ahead=ahead if several and self.check is not None else None)

    def all_graphs(self, batches: Sequence[_Batch]) -> Iterator[GeneratedGraph]:
        """Yield the graphs of all batches, in order, with their files if it makes them."""
        processes, schema = self.settings.processes or 1, self.schema
        if self.ahead is None:
            drawn = sample_in_processes(self.batch, batches, processes, schema)
            return chain.from_iterable(drawn)
        return sample_and_finish(self.batch, self.with_files, batches, processes, schema)

    def batch(self, batch: _Batch) -> list[GeneratedGraph]:
        """Return the graphs of a batch."""
        return self.graphs(batch.numbers, batch.rows)

    def with_files(self, batch: _Batch, at: int, graph: GeneratedGraph) -> GeneratedGraph:
        """Return a graph of a batch with its files."""
        assert self.ahead is not None
        return self.ahead(graph, batch.numbers[at])

    def graphs(
        self, numbers: Sequence[int], rows: Sequence[Mapping[str, Condition]]
    ) -> list[GeneratedGraph]:
        """Return the graphs with these numbers in the run, and these conditions.

        A job that contradicts itself, or of several ranks that exchange nothing, is no program:
        it is drawn again, with seeds that follow from its own, and so is a program that repeats a
        training program, and a graph of another size than asked for, ``settings.redraws`` times.
        The one with the fewest faults is kept, and of these the one of the nearest size.
        """
        redraws = self.settings.redraws
        assert redraws is not None
        of_faults = _REDRAWS_OF_FAULTS if self.check is None else _REDRAWS_OF_FAILURES
        seeds = [self.settings.seed + i for i in numbers]
        found, misses = self._judged(self.drawn_once(numbers, seeds, rows), rows)
        ahead: dict[tuple[int, int], GeneratedGraph] = {}
        for trial in range(max(redraws, of_faults, _REDRAWS_OF_COPIES)):
            wrong = [
                k
                for k, miss in enumerate(misses)
                if (miss.faults and trial < of_faults)
                or (miss.copies and trial < _REDRAWS_OF_COPIES)
                or (miss.size and trial < redraws)
            ]
            if not wrong:
                break
            if any((k, trial) not in ahead for k in wrong):
                trials = 1 if self.check is None else max(1, _DRAWN_AHEAD // len(wrong))
                places = [(k, t) for t in range(trial, trial + trials) for k in wrong]
                again = self.drawn_once(
                    [numbers[k] for k, _ in places],
                    [derive_seed(seeds[k], _FURTHER, t) for k, t in places],
                    [self._row_of_trial(rows[k], seeds[k], t) for k, t in places],
                )
                ahead = dict(zip(places, again, strict=True))
            judged = self._judged([ahead[k, trial] for k in wrong], [rows[k] for k in wrong])
            for k, graph, miss in zip(wrong, *judged, strict=True):
                if miss < misses[k]:
                    found[k], misses[k] = replace(graph, seed=seeds[k]), miss
        for k, miss in enumerate(misses):
            if miss.copies:
                found[k] = replace(found[k], is_copy=True)
        return found

    def _row_of_trial(
        self, row: Mapping[str, Condition], seed: int, trial: int
    ) -> Mapping[str, Condition]:
        """Return the conditions of a further draw.

        Few programs have the conditions of a row that so many draws could not leave the data with,
        and none may have the size that a limit or a rare mixture of conditions leaves.
        """
        same = trial < _REDRAWS_AS_ASKED
        if self.wanted is None or same or not self.schema.kind.has_steps:
            return row
        kept = {name: row[name] for name in (FAMILY,) if name in row}
        seeds = [derive_seed(seed, _FURTHER, trial)]
        (drawn,) = complete_conditions(self.schema, {**kept, **self.wanted}, seeds)
        return {name: value for name, value in drawn.items() if name in row}

    def _judged(
        self, graphs: Sequence[GeneratedGraph], rows: Sequence[Mapping[str, Condition]]
    ) -> tuple[list[GeneratedGraph], list[_Miss]]:
        if self.check is None:
            return list(graphs), self._misses(graphs, rows)
        copies = self.schema.are_copies([graph.dag for graph in graphs])
        graphs = [
            graph
            if copied
            else self._checked(graph, row)  # a copy is drawn again, and need not be run
            for graph, copied, row in zip(graphs, copies, rows, strict=True)
        ]
        misses = [
            _Miss(0, True, 0.0) if copied else _program_miss(graph)
            for graph, copied in zip(graphs, copies, strict=True)
        ]
        return graphs, misses

    def _misses(
        self, graphs: Sequence[GeneratedGraph], rows: Sequence[Mapping[str, Condition]]
    ) -> list[_Miss]:
        """Return what is wrong with each job; sizes count where they are drawn again."""
        faults = self._faults.counts([graph.dag for graph in graphs], rows)
        if not self.settings.redraws:
            return [_Miss(count, False, 0.0) for count in faults]
        limit = self.settings.max_nodes
        return [
            _Miss(count, False, size_error(graph.dag, row, limit))
            for count, graph, row in zip(faults, graphs, rows, strict=True)
        ]

    def _checked(self, graph: GeneratedGraph, row: Mapping[str, Condition]) -> GeneratedGraph:
        """Return a sample with its program, which has been run; as it is if that does not run.

        The program has the numbers that are asked for, or those nearest to them.
        """
        targets = self.settings.targets or Targets()
        if DEPTH in self.settings.conditions:
            targets = replace(targets, depth=_depth(row))
        try:
            program = graph.program
        except DataError:
            return graph
        if not targets.asked():
            return replace(graph, checked=program)
        try:
            found = solve_targets(program, targets, tuple(self.settings.sizes))
        except (DataError, UsageError) as error:
            # Without it the sample would be a program that does not have what was asked for.
            return replace(graph, unmet=str(error))
        wrong = found.program.check(content=True)
        if wrong:
            return replace(graph, unmet=f"{found.program.name}: {wrong[0].found}.")
        return replace(graph, checked=found.program, reached=found.reached)

    @property
    def _faults(self) -> FaultCounter:
        return FaultCounter(self.schema, communicate=has_communication(self.schema))

    def drawn_once(
        self,
        numbers: Sequence[int],
        seeds: Sequence[int],
        rows: Sequence[Mapping[str, Condition]],
    ) -> list[GeneratedGraph]:
        """Return the graphs that these seeds give."""
        settings = self.settings
        result = sample_checked(self.model, self.schema, self._request(tuple(seeds), rows))
        drawn = zip(numbers, seeds, rows, result.dags, result.truncated, strict=True)
        graphs = [
            GeneratedGraph(
                sample_name(i),
                seed,
                dag.to("cpu").with_conditions(row),
                cut,
                self.schema,
                sizes=settings.sizes,
                drawn_with=seed,
            )
            for i, seed, row, dag, cut in drawn
        ]
        if settings.labels == PREDICTED:
            graphs = _with_predicted_labels(self.model, self.schema, graphs)
        return graphs

    def _known(self, row: Mapping[str, Condition]) -> Mapping[str, Condition]:
        """Return conditions as the model knows them.

        A depth that is asked for is reached by repeating units. Few families have deep programs:
        told of it, the model would draw another family.
        """
        if self.check is None or DEPTH not in self.settings.conditions:
            return row
        return {name: value for name, value in row.items() if name != DEPTH}

    def _request(
        self, seeds: tuple[int, ...], rows: Sequence[Mapping[str, Condition]]
    ) -> SampleRequest:
        settings = self.settings
        assert settings.best_of is not None
        assert settings.guidance is not None
        assert settings.temperature is not None
        device = next(self.model.parameters()).device
        numeric_BC, category_BM = self.schema.encode_conditions(map(self._known, rows))
        return SampleRequest(
            numeric_BC=numeric_BC.to(device),
            category_BM=category_BM.to(device),
            seeds=seeds,
            max_nodes=settings.max_nodes,
            steps=settings.steps,
            guidance=settings.guidance,
            temperature=settings.temperature,
            best_of=settings.best_of,
            nodes_B=torch.tensor([float(row.get(NUM_NODES, math.nan)) for row in rows]),
            layers_B=torch.tensor([float(row.get(NUM_LAYERS, math.nan)) for row in rows]),
            possible=possible_codes(self.schema, rows),
            faults=partial(self._faults.counts, rows=rows, each=settings.best_of),
            check=self.check,
        )


def _program_miss(graph: GeneratedGraph) -> _Miss:
    if graph.unmet:  # better than a copy, and drawn again as often as one that is far off
        return _Miss(0, False, math.inf)
    if graph.checked is None:
        return _Miss(1, False, math.inf)
    far = max((each.miss for each in graph.reached), default=0.0)
    return _Miss(0, False, far if far > TOLERANCE else 0.0)


def _depth(row: Mapping[str, Condition]) -> int | None:
    """Return the number of units that a program shall have, None for any."""
    asked = row.get(DEPTH)
    return round(asked) if isinstance(asked, int | float) and asked > 0.5 else None


def _with_predicted_labels(
    model: DAGModel, schema: GraphSchema, graphs: Sequence[GeneratedGraph]
) -> list[GeneratedGraph]:
    batch = encode_batch(schema, [graph.dag for graph in graphs])
    found_BC = model.predict_numeric_conditions(batch.to(next(model.parameters()).device))
    assert found_BC is not None
    column = [condition.name for condition in schema.numeric_conditions].index(LABEL)
    label = schema.numeric_conditions[column]
    return [
        replace(graph, dag=graph.dag.with_conditions({**graph.dag.conditions, LABEL: y}))
        for graph, y in zip(graphs, map(label.decode, found_BC[:, column].tolist()), strict=True)
    ]


def sample(
    checkpoint: LoadedCheckpoint | str | Path | None = None,
    num: int = 16,
    seed: int = 0,
    *,
    conditions: Mapping[str, Condition] | None = None,
    **settings: Any,
) -> list[GeneratedGraph]:
    """Sample graphs into memory.

    Args:
        checkpoint: What ``train`` or ``load_checkpoint`` returned, or a checkpoint's folder; None
            is "programs", the checkpoint of forward programs inside the package.
        num: Number of graphs.
        seed: Graph i is sampled with ``seed + i`` and depends on nothing else of the call.
        conditions: Wanted conditions in their own units, such as ``{"family": "gpt"}``; open ones
            are drawn from what the training graphs were like.
        **settings: Further ``GenerationSettings``: steps, guidance, best_of, max_nodes, ...

    Returns:
        Graphs with ``dag`` (codes), ``graph`` (names and numbers) and ``workload()`` (traces).

    Raises:
        CheckpointError: If the checkpoint cannot be read.
        UsageError: If a setting is out of bounds.
        VocabularyError: If a condition or its category is unknown; names the nearest one.
    """
    if not isinstance(checkpoint, LoadedCheckpoint):
        checkpoint = load_checkpoint(checkpoint_path(str(checkpoint or SAMPLED)))
    wanted = GenerationSettings(num=num, seed=seed, conditions=conditions or {}, **settings)
    return list(generate(checkpoint.model, checkpoint_schema(checkpoint), wanted))
