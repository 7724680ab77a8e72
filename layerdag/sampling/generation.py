"""``generate`` and ``sample``: graphs from a checkpoint."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import encode_batch
from layerdag.errors import CheckpointError
from layerdag.graph.attributed_graph import LABEL, NUM_LAYERS, NUM_NODES, Condition
from layerdag.kinds.flow import FLOW
from layerdag.kinds.graph_kind import GraphKind
from layerdag.kinds.job import JOB
from layerdag.kinds.program import PROGRAM
from layerdag.models.base import DAGModel, SampleRequest, SampleResult
from layerdag.runtime.rng import derive_seed
from layerdag.samples.manifest import sample_name
from layerdag.sampling.draw_policy import BATCH_SIZE, DrawPolicy
from layerdag.sampling.generated import EagerEncoder, GeneratedGraph
from layerdag.sampling.job_draws import JobDraws
from layerdag.sampling.processes import sample_in_processes
from layerdag.sampling.program_draws import FURTHER, ProgramDraws
from layerdag.sampling.request_sizes import batches_of_like_size
from layerdag.sampling.settings import PREDICTED, GenerationSettings
from layerdag.schema.schema import GraphSchema
from layerdag.training.checkpoint import (
    SAMPLED,
    LoadedCheckpoint,
    checkpoint_path,
    checkpoint_schema,
    load_checkpoint,
)

MAX_COPY_RETRIES = 32
"""Times that a program is drawn again that repeats one of the training programs."""
_DRAWS: Mapping[GraphKind, Callable[[GraphSchema, GenerationSettings], DrawPolicy]] = {
    JOB: JobDraws,
    PROGRAM: ProgramDraws.running,
    FLOW: DrawPolicy,
}


def generate(
    model: DAGModel,
    schema: GraphSchema,
    settings: GenerationSettings,
    ahead: EagerEncoder | None = None,
) -> Iterator[GeneratedGraph]:
    """Yield sampled graphs in order of their seeds; open conditions are drawn for each.

    The model is in evaluation mode; ``ahead`` makes files of programs where several processes draw.
    Raises VocabularyError if a wanted condition is unknown to the schema.
    """
    settings = settings.resolved(model, schema)
    sampler = Sampler(model, schema, settings, draw_policy(schema, settings))
    yield from sample_rows(
        model, schema, sampler.requested(), settings, wanted=settings.conditions, ahead=ahead
    )


def sample_once(
    model: DAGModel, schema: GraphSchema, settings: GenerationSettings
) -> list[GeneratedGraph]:
    """Return what the model itself draws, for a look at it; arguments are those of ``generate``.

    Nothing is drawn again, whatever is wrong with it.
    """
    settings = settings.resolved(model, schema)
    sampler = Sampler(model, schema, settings, draw_policy(schema, settings))
    rows = sampler.requested()
    size = settings.batch_size or BATCH_SIZE
    parts = [range(i, min(i + size, len(rows))) for i in range(0, len(rows), size)]
    return [
        graph
        for numbers in parts
        for graph in sampler.drawn_once(
            numbers, [settings.seed + i for i in numbers], [rows[i] for i in numbers]
        )
    ]


def generate_batched(
    model: DAGModel,
    schema: GraphSchema,
    settings: GenerationSettings,
    ahead: EagerEncoder | None = None,
) -> Iterator[GeneratedGraph]:
    """Yield what ``generate`` does, all held at once and drawn in fewer steps.

    Graphs of about the same requested size are drawn side by side, as many as
    ``batches_of_like_size`` allows, so that few wait for the largest of their batch. Arguments are
    those of ``generate``. Raises VocabularyError if a wanted condition is unknown to the schema.
    """
    settings = settings.resolved(model, schema)
    policy = draw_policy(schema, settings)
    sampler = Sampler(model, schema, settings, policy, settings.conditions)
    rows = sampler.requested()
    batches = [
        _Batch(tuple(b), tuple(rows[i] for i in b)) for b in batches_of_like_size(rows, settings)
    ]
    numbers = [i for batch in batches for i in batch.numbers]
    found = dict(zip(numbers, sampler.all_graphs(batches, ahead), strict=True))
    for i in range(len(rows)):
        yield found.pop(i)


def sample_rows(
    model: DAGModel,
    schema: GraphSchema,
    rows: Sequence[Mapping[str, Condition]],
    settings: GenerationSettings,
    wanted: Mapping[str, Condition] | None = None,
    ahead: EagerEncoder | None = None,
) -> Iterator[GeneratedGraph]:
    """Yield one graph for each row of conditions, graph i with seed ``settings.seed + i``.

    Conditions are in their own units; missing ones are unknown to the model. The settings' ``num``
    and conditions are not used. ``wanted`` are conditions that were asked for: of a program that
    keeps repeating one of the data, or not running, the others, but for the family, are drawn
    again. None keeps the rows as they are. Raises VocabularyError if a condition or category is
    unknown to the schema and UsageError if the model cannot do what the settings ask for.
    """
    settings = settings.resolved(model, schema, asked=frozenset().union(*rows))
    sampler = Sampler(model, schema, settings, draw_policy(schema, settings), wanted)
    size = sampler.policy.batch_size(len(rows))
    batches = [
        _Batch(tuple(range(len(rows))[i : i + size]), tuple(rows[i : i + size]))
        for i in range(0, len(rows), size)
    ]
    yield from sampler.all_graphs(batches, ahead)


@dataclass(frozen=True)
class _Batch:
    """Numbers in the run, and conditions, of graphs that are drawn side by side."""

    numbers: tuple[int, ...]
    rows: tuple[Mapping[str, Condition], ...]


def draw_policy(schema: GraphSchema, settings: GenerationSettings) -> DrawPolicy:
    """Return the policy of a schema's kind."""
    return _DRAWS[schema.kind](schema, settings)


@dataclass(frozen=True, eq=False)
class Sampler:
    """Draws graphs of one request, any of them side by side.

    ``wanted`` are the conditions that were asked for, if others may be drawn again.
    """

    model: DAGModel
    schema: GraphSchema
    settings: GenerationSettings
    policy: DrawPolicy
    wanted: Mapping[str, Condition] | None = None

    def requested(self) -> list[dict[str, Condition]]:
        """Return the conditions of each graph."""
        seeds = [self.settings.seed + i for i in range(self.settings.num)]
        return self.policy.requested(seeds)

    def all_graphs(
        self, batches: Sequence[_Batch], ahead: EagerEncoder | None = None
    ) -> Iterator[GeneratedGraph]:
        """Yield the graphs of all batches, in order, with their files if several processes draw.

        One process makes files when they are written, so that what was drawn is seen at once.
        """
        processes, schema = self.settings.processes or 1, self.schema
        several = min(processes, len(batches)) > 1
        if ahead is None or not several or not self.policy.makes_files_ahead:
            drawn = sample_in_processes(self.batch, batches, processes, schema)
            return chain.from_iterable(drawn)
        finish = partial(_with_files, ahead)
        return sample_in_processes(self.batch, batches, processes, schema, finish)

    def batch(self, batch: _Batch) -> list[GeneratedGraph]:
        """Return the graphs of a batch."""
        return self.graphs(batch.numbers, batch.rows)

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
        of_faults = self.policy.max_retries
        seeds = [self.settings.seed + i for i in numbers]
        found, defects = self.policy.judged(self.drawn_once(numbers, seeds, rows), rows)
        ahead: dict[tuple[int, int], GeneratedGraph] = {}
        for trial in range(max(redraws, of_faults, MAX_COPY_RETRIES)):
            wrong = [
                k
                for k, defect in enumerate(defects)
                if (defect.faults and trial < of_faults)
                or (defect.copies and trial < MAX_COPY_RETRIES)
                or (defect.size and trial < redraws)
            ]
            if not wrong:
                break
            if any((k, trial) not in ahead for k in wrong):
                trials = max(1, self.policy.draws_ahead // len(wrong))
                places = [(k, t) for t in range(trial, trial + trials) for k in wrong]
                again = self.drawn_once(
                    [numbers[k] for k, _ in places],
                    [derive_seed(seeds[k], FURTHER, t) for k, t in places],
                    [
                        rows[k]
                        if self.wanted is None
                        else self.policy.retry_conditions(rows[k], seeds[k], t, self.wanted)
                        for k, t in places
                    ],
                )
                ahead = dict(zip(places, again, strict=True))
            judged = self.policy.judged([ahead[k, trial] for k in wrong], [rows[k] for k in wrong])
            for k, graph, defect in zip(wrong, *judged, strict=True):
                if defect < defects[k]:
                    found[k], defects[k] = replace(graph, seed=seeds[k]), defect
        return found

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
            self.policy.drawn(sample_name(i), seed, dag.to("cpu").with_conditions(row), cut)
            for i, seed, row, dag, cut in drawn
        ]
        if settings.labels == PREDICTED:
            graphs = _with_predicted_labels(self.model, self.schema, graphs)
        return graphs

    def _request(
        self, seeds: tuple[int, ...], rows: Sequence[Mapping[str, Condition]]
    ) -> SampleRequest:
        settings = self.settings
        assert settings.best_of is not None
        assert settings.guidance is not None
        assert settings.temperature is not None
        device = next(self.model.parameters()).device
        numeric_BC, category_BM = self.schema.encode_conditions(
            map(self.policy.known_conditions, rows)
        )
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
            possible=self.policy.possible_codes(rows),
            faults=partial(self.policy.faults, rows=rows, each=settings.best_of),
            check=self.policy.check,
        )


def _with_files(
    ahead: EagerEncoder, batch: _Batch, at: int, graph: GeneratedGraph
) -> GeneratedGraph:
    return ahead(graph, batch.numbers[at])


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


def sample_checked(model: DAGModel, schema: GraphSchema, request: SampleRequest) -> SampleResult:
    """Return what ``model.sample`` returns.

    Raises CheckpointError if sampling fails and the likelihood of a small graph is not finite.
    """
    try:
        return model.sample(request)
    except (ValueError, IndexError, RuntimeError) as error:
        dag = DAG.build(
            torch.zeros((1, len(schema.attributes)), dtype=torch.int64),
            torch.zeros((2, 0), dtype=torch.int64),
        )
        device = request.numeric_BC.device
        with torch.no_grad():
            terms = model.losses(encode_batch(schema, [dag]).to(device), torch.Generator(device))
        if all(bool(term.total.isfinite()) for term in terms.values()):
            raise
        raise CheckpointError(
            "With the weights of this checkpoint no probability is finite; use an earlier one."
        ) from error
