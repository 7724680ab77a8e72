"""Draws of jobs: codes that nodes cannot have together, and contradictions of a sample.

Each rule is one whose breach decoding would have to repair (``layerdag.codec``).

Shape letters: B graphs, F feature columns (codes of all attributes), K codes.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import final

import torch
from jaxtyping import Bool
from torch import Tensor

from layerdag.codec.folding import COMMUNICATION, NONE
from layerdag.codec.placement import fitting_ranks
from layerdag.codec.unfolding import needed_repairs
from layerdag.codec.vocabulary import OTHER, SEND, is_communication
from layerdag.dag.dag import DAG
from layerdag.graph.attributed_graph import AttributedGraph, Condition
from layerdag.kinds.job import WORLD_SIZE
from layerdag.models.base import JointCodeMasks
from layerdag.sampling.draw_policy import DrawPolicy
from layerdag.sampling.generated import GeneratedGraph, GeneratedJob, requested_ranks
from layerdag.schema.attributes import CategoryAttribute
from layerdag.schema.schema import GraphSchema

_MESSAGE = "MESSAGE"


def has_multi_rank_jobs(schema: GraphSchema) -> bool:
    """Return whether some training job ran on several ranks."""
    words = (c.values for c in schema.category_conditions if c.name == WORLD_SIZE)
    return any(word not in ("1", OTHER) for values in words for word in values)


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit()


def _ranks(row: Mapping[str, Condition]) -> int:
    """Return the number of ranks that is asked for; 0 if it is not known."""
    word = str(row.get(WORLD_SIZE, ""))
    return int(word) if _is_number(word) else 0


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
    if attribute in ("stage", "peer") and _is_number(word):
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


def _type_and_peer(kind: str, peer: str) -> bool:
    if kind == _MESSAGE:
        return _is_number(peer)
    return kind == "COMM_COLL" or peer == NONE


_RULES: Mapping[tuple[str, str], Callable[[str, str], bool]] = {
    ("op", "type"): _operator_and_type,
    ("type", "group"): lambda kind, group: (kind == "COMM_COLL") == (group not in (NONE, OTHER)),
    ("type", "stage"): lambda kind, stage: kind == "COMM_COLL" or _is_number(stage),
    ("type", "peer"): _type_and_peer,
}
"""Whether words of two attributes go together."""


SILENT = 10
"""Faults that a job of several ranks which exchange nothing counts as."""

USUAL = ("compute_without_cost", "collective_that_is_not_simulated")
"""Repairs that whole collections of real traces need, so that they are no fault of a sample."""


def has_communication(schema: GraphSchema) -> bool:
    """Return whether some training job had a collective, in a group that it names."""
    groups = [
        a for a in schema.attributes if a.name == "group" and isinstance(a, CategoryAttribute)
    ]
    return any(set(attribute.values) - {NONE, OTHER} for attribute in groups)


@final
class JobDraws(DrawPolicy):
    """Draws of jobs.

    A job that contradicts itself, or of several ranks that exchange nothing, has faults.
    """

    def drawn(self, name: str, seed: int, dag: DAG, truncated: bool) -> GeneratedGraph:
        """See ``DrawPolicy.drawn``."""
        return GeneratedJob(name, seed, dag, truncated, self.schema)

    def possible_codes(self, rows: Sequence[Mapping[str, Condition]]) -> JointCodeMasks | None:
        """See ``DrawPolicy.possible_codes``."""
        schema = self.schema
        if not {"op", "type"} <= {a.name for a in schema.attributes}:
            return None
        ranks = [_ranks(row) if has_multi_rank_jobs(schema) else 0 for row in rows]
        by_ranks = {count: _in_jobs_of(schema, count) for count in set(ranks)}
        return JointCodeMasks(_together(schema), torch.stack([by_ranks[count] for count in ranks]))

    @cached_property
    def _usual(self) -> tuple[str, ...]:
        """Repairs that are not counted."""
        if has_multi_rank_jobs(self.schema):
            return USUAL
        # All training jobs ran on one rank, whatever they exchanged with themselves.
        return (*USUAL, "collective_of_one_rank", "message_of_one_rank")

    def faults(
        self, dags: Sequence[DAG], rows: Sequence[Mapping[str, Condition]], each: int = 1
    ) -> list[int]:
        """See ``DrawPolicy.faults``."""
        jobs = (dag.to("cpu").with_conditions(rows[i // each]) for i, dag in enumerate(dags))
        return [self._faults_of(self.schema.decode(job)) for job in jobs]

    def _faults_of(self, graph: AttributedGraph) -> int:
        if not {"op", "type", "stage"} <= set(graph.categories):
            return 0
        wanted = requested_ranks(graph.conditions, None)
        fitting = fitting_ranks(graph, wanted)
        needed = needed_repairs(graph, fitting)
        found = sum(count for name, count in needed.items() if name not in self._usual)
        silent = wanted > 1 and COMMUNICATION.isdisjoint(graph.categories["type"])
        return found + fitting - wanted + SILENT * (silent and has_communication(self.schema))
