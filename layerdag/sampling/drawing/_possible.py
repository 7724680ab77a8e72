"""Codes that nodes of jobs cannot have together, or not in a job of so many ranks.

Each rule here is one whose breach decoding would have to repair (``layerdag.codec``).

Shape letters: B graphs, F feature columns (codes of all attributes), K codes.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import torch
from jaxtyping import Bool
from torch import Tensor

from layerdag.codec import COMMUNICATION, NONE, OTHER, SEND, is_communication
from layerdag.datasets.schema import CategoryAttribute, GraphSchema
from layerdag.graph import Condition
from layerdag.models import PossibleCodes

WORLD_SIZE = "world_size"
_MESSAGE = "MESSAGE"


def possible_codes(
    schema: GraphSchema, rows: Sequence[Mapping[str, Condition]]
) -> PossibleCodes | None:
    """Return what nodes of sampled jobs can have; None for graphs that are no jobs.

    Args:
        schema: Of the model.
        rows: Conditions of each graph.
    """
    if schema.kind != "trace" or not {"op", "type"} <= {a.name for a in schema.attributes}:
        return None
    ranks = [_ranks(row) if knows_several_ranks(schema) else 0 for row in rows]
    by_ranks = {count: _in_jobs_of(schema, count) for count in set(ranks)}
    return PossibleCodes(_together(schema), torch.stack([by_ranks[count] for count in ranks]))


def knows_several_ranks(schema: GraphSchema) -> bool:
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
    """Return whether a node of a job of so many ranks can have this word."""
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
    """Return which codes one node can have together."""
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
    """Return the words of a categorical attribute by code."""
    assert isinstance(attribute, CategoryAttribute)
    return attribute.values


def _operator_and_type(operator: str, kind: str) -> bool:
    """Return whether a node of a type can have a name: communication is named as such."""
    if kind in COMMUNICATION:
        if operator == OTHER:
            return True
        return is_communication(operator) and (kind == _MESSAGE) == (operator == SEND)
    return not is_communication(operator)


def _type_and_group(kind: str, group: str) -> bool:
    """Return whether a node of a type can have a group: collectives have one, others none."""
    return (kind == "COMM_COLL") == (group not in (NONE, OTHER))


def _type_and_stage(kind: str, stage: str) -> bool:
    """Return whether a node of a type can be run by a stage: only collectives by all of them."""
    return kind == "COMM_COLL" or (stage.isascii() and stage.isdigit())


def _type_and_peer(kind: str, peer: str) -> bool:
    """Return whether a node of a type can have a peer: messages do, computation has none."""
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
