"""What can be sampled together: joint code masks, faulty samples, batches by size.

Codes that nodes of jobs cannot have together, or not in a job of so many ranks.

Each rule here is one whose breach decoding would have to repair (``layerdag.codec``).

Shape letters: B graphs, F feature columns (codes of all attributes), K codes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from jaxtyping import Bool
from torch import Tensor

from layerdag.codec.folding import COMMUNICATION, NONE
from layerdag.codec.placement import fitting_ranks
from layerdag.codec.unfolding import needed_repairs
from layerdag.codec.vocabulary import OTHER, SEND, is_communication
from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import encode_batch
from layerdag.errors import CheckpointError
from layerdag.graph.attributed_graph import NUM_NODES, AttributedGraph, Condition
from layerdag.kinds.job import WORLD_SIZE
from layerdag.models.base import DAGModel, JointCodeMasks, SampleRequest, SampleResult
from layerdag.sampling.generated import requested_ranks
from layerdag.sampling.settings import GenerationSettings
from layerdag.schema.attributes import CategoryAttribute
from layerdag.schema.schema import GraphSchema

TOLERANCE = 0.1
"""Fraction of the nodes asked for that a sample may have more or fewer."""


def requested_nodes(row: Mapping[str, Condition], max_nodes: int) -> float | None:
    """Return the number of nodes that is asked for, from 1 to the limit; None where it is open.

    Args:
        row: Conditions in their own units.
        max_nodes: Limit of a graph.
    """
    value = row.get(NUM_NODES)
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return min(max(float(value), 1.0), float(max_nodes))


def size_error(dag: DAG, row: Mapping[str, Condition], max_nodes: int) -> float:
    """Return |log(found / asked)| of the nodes; 0 within ``TOLERANCE``, or if none are asked for.

    Args:
        dag: A finished graph.
        row: Conditions in their own units.
        max_nodes: Limit of a graph.
    """
    asked = requested_nodes(row, max_nodes)
    if asked is None or abs(dag.num_nodes - asked) <= TOLERANCE * asked:
        return 0.0
    return abs(math.log(dag.num_nodes / asked))


BATCH_SIZE, PROGRAM_BATCH_SIZE = 32, 128
"""Graphs side by side where nothing else is asked for and each is wanted as soon as possible."""

MOST_POSITIONS = 100_000
"""Rows of the sampler times the nodes expected of each: what its caches hold, about a gigabyte."""

# Of a graph whose conditions do not tell.
_USUAL_NODES = 256.0


def batches_of_like_size(
    rows: Sequence[Mapping[str, Condition]], settings: GenerationSettings
) -> list[list[int]]:
    """Return the places of ``rows`` in batches, in order of the number of nodes asked for.

    Args:
        rows: Conditions of each graph.
        settings: With what was left to the model. Its batch size, if it has one, is that of every
            batch; otherwise each is as large as ``MOST_POSITIONS`` allows.
    """
    usual = min(_USUAL_NODES, float(settings.max_nodes))
    sizes = [requested_nodes(row, settings.max_nodes) or usual for row in rows]
    rows_of_each = (settings.best_of or 1) * (1 if settings.guidance == 1 else 2)
    batches: list[list[int]] = []
    for index in sorted(range(len(rows)), key=lambda i: (sizes[i], i)):
        # Sizes ascend, so that this one is the largest of the batch.
        fits = MOST_POSITIONS // (rows_of_each * sizes[index])
        most = settings.batch_size or max(1, math.floor(fits))
        if batches and len(batches[-1]) < most:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


_MESSAGE = "MESSAGE"


def possible_codes(
    schema: GraphSchema, rows: Sequence[Mapping[str, Condition]]
) -> JointCodeMasks | None:
    """Return what nodes of sampled jobs can have; None for graphs that are no jobs.

    Args:
        schema: Of the model.
        rows: Conditions of each graph.
    """
    if not schema.kind.has_traces or not {"op", "type"} <= {a.name for a in schema.attributes}:
        return None
    ranks = [_ranks(row) if has_multi_rank_jobs(schema) else 0 for row in rows]
    by_ranks = {count: _in_jobs_of(schema, count) for count in set(ranks)}
    return JointCodeMasks(_together(schema), torch.stack([by_ranks[count] for count in ranks]))


def has_multi_rank_jobs(schema: GraphSchema) -> bool:
    """Return whether some training job ran on several ranks."""
    words = (c.values for c in schema.category_conditions if c.name == WORLD_SIZE)
    return any(word not in ("1", OTHER) for values in words for word in values)


def _ranks(row: Mapping[str, Condition]) -> int:
    """Return the number of ranks that is asked for; 0 if it is not known."""
    word = str(row.get(WORLD_SIZE, ""))
    return int(word) if word.isascii() and word.isdigit() else 0


def _in_jobs_of(schema: GraphSchema, ranks: int) -> Bool[Tensor, " F"]:
    """Return which codes nodes of a job of so many ranks can have; all where that is not known."""
    return torch.cat(
        [
            torch.tensor([not ranks or _fits_ranks(a.name, w, ranks) for w in _words(a)])
            if isinstance(a, CategoryAttribute)
            else torch.ones(a.num_codes, dtype=torch.bool)
            for a in schema.attributes
        ]
    )


def _fits_ranks(attribute: str, word: str, ranks: int) -> bool:
    if attribute in ("stage", "peer") and word.isascii() and word.isdigit():
        return int(word) < ranks
    if ranks > 1:
        return True
    if attribute == "op":
        return not is_communication(word)
    if attribute == "type":
        return word not in COMMUNICATION
    return True


def _together(schema: GraphSchema) -> Bool[Tensor, "F F"]:
    sizes = [a.num_codes for a in schema.attributes]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    pairs_FF = torch.ones((sum(sizes), sum(sizes)), dtype=torch.bool)
    for (i, first), (j, second) in combinations(enumerate(schema.attributes), 2):
        rule = _RULES.get((first.name, second.name))
        if rule is None:
            continue
        for k, word in enumerate(_words(first)):
            fits_K = torch.tensor([rule(word, other) for other in _words(second)])
            pairs_FF[starts[i] + k, starts[j] : starts[j] + sizes[j]] = fits_K
            pairs_FF[starts[j] : starts[j] + sizes[j], starts[i] + k] = fits_K
    return pairs_FF


def _words(attribute: object) -> Sequence[str]:
    assert isinstance(attribute, CategoryAttribute)
    return attribute.values


def _operator_and_type(operator: str, kind: str) -> bool:
    if kind in COMMUNICATION:
        if operator == OTHER:
            return True
        return is_communication(operator) and (kind == _MESSAGE) == (operator == SEND)
    return not is_communication(operator)


def _type_and_group(kind: str, group: str) -> bool:
    return (kind == "COMM_COLL") == (group not in (NONE, OTHER))


def _type_and_stage(kind: str, stage: str) -> bool:
    return kind == "COMM_COLL" or (stage.isascii() and stage.isdigit())


def _type_and_peer(kind: str, peer: str) -> bool:
    if kind == _MESSAGE:
        return peer.isascii() and peer.isdigit()
    return kind == "COMM_COLL" or peer == NONE


_RULES: Mapping[tuple[str, str], Callable[[str, str], bool]] = {
    ("op", "type"): _operator_and_type,
    ("type", "group"): _type_and_group,
    ("type", "stage"): _type_and_stage,
    ("type", "peer"): _type_and_peer,
}
"""Whether words of two attributes go together."""


SILENT = 10
"""Faults that a job of several ranks which exchange nothing counts as."""

COPY = 100
"""Faults of a program that repeats one of the data, so that it is hardly ever chosen."""

USUAL = ("compute_without_cost", "collective_that_is_not_simulated")
"""Repairs that whole collections of real traces need, so that they are no fault of a sample."""


@dataclass(frozen=True)
class FaultCounter:
    """Counts the contradictions of jobs that decoding would repair (docs/reference/attributes.md).

    A program has none while it is drawn; if it repeats one of the data, it counts as ``COPY``.

    Attributes:
        schema: Of the model.
        communicate: Whether ranks of training jobs exchange something, so that silence is a fault.
    """

    schema: GraphSchema
    communicate: bool

    @property
    def usual(self) -> tuple[str, ...]:
        """Repairs that are not counted."""
        if has_multi_rank_jobs(self.schema):
            return USUAL
        # All training jobs ran on one rank, whatever they exchanged with themselves.
        return (*USUAL, "collective_of_one_rank", "message_of_one_rank")

    def counts(
        self, dags: Sequence[DAG], rows: Sequence[Mapping[str, Condition]], each: int = 1
    ) -> list[int]:
        """Return the faults of finished graphs; 0 for graphs that are no jobs and no programs.

        Args:
            dags: Graphs.
            rows: Conditions of each graph, or of each ``each`` graphs in a row.
            each: Candidates that have the same conditions.
        """
        if self.schema.kind.has_steps:
            return [
                COPY * copied for copied in self.schema.are_copies([dag.to("cpu") for dag in dags])
            ]
        if not self.schema.kind.has_traces:
            return [0] * len(dags)
        jobs = (dag.to("cpu").with_conditions(rows[i // each]) for i, dag in enumerate(dags))
        return [self._of(self.schema.decode(job)) for job in jobs]

    def _of(self, graph: AttributedGraph) -> int:
        if not {"op", "type", "stage"} <= set(graph.categories):
            return 0
        wanted = requested_ranks(graph.conditions, None)
        fitting = fitting_ranks(graph, wanted)
        needed = needed_repairs(graph, fitting)
        found = sum(count for name, count in needed.items() if name not in self.usual)
        silent = wanted > 1 and COMMUNICATION.isdisjoint(graph.categories["type"])
        return found + fitting - wanted + SILENT * (silent and self.communicate)


def sample_checked(model: DAGModel, schema: GraphSchema, request: SampleRequest) -> SampleResult:
    """Return what ``model.sample`` returns.

    Raises:
        CheckpointError: If sampling fails and the likelihood of a small graph is not finite.
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
