"""What each fault changes, which figures must see it, and what each figure looks at.

Written before anything was measured, but for two figures that were added after a first run,
"nearest_program" and "attribute_pairs:op x flops", and for "joint_tails", which was added later and
whose definition was chosen by what it sees of "numbers_shuffled"; the attacks that learn, align or
infer were added later, each declared before it was measured here. A figure that looks at nothing
that a fault changes must stay; one that looks at some of it may move, and must where the fault is
what it is made for.
"""

from dataclasses import dataclass
from enum import Enum, Flag, auto

from faults._graphs import (
    attributes_shuffled,
    blocks_not_repeating,
    durations_scaled,
    numbers_shuffled,
    rewired,
    rewired_keeping_degrees,
)
from faults._samples import (
    Fault,
    copies,
    families_dropped,
    in_each_graph,
    labels_swapped,
    memorizer,
    retimed_copies,
)
from layerdag.schema.attributes import NumericAttribute
from layerdag.schema.schema import GraphSchema

RETIMED_SPREAD = 0.3
"""Standard deviation of the logarithm of a duration measured again."""
EDITS = 0.05
HEAVY_EDITS = 0.2
_SHARES = (0.05, 0.1, 0.2, 0.5)
_MEMORIZED = (0.05, 0.2, 0.5, 1.0)


class Aspect(Flag):
    """What a fault can change, and a figure look at."""

    NOTHING = 0
    POPULATION = auto()  # which programs there are
    WIRING = auto()  # which nodes are connected, and so the layers
    DEGREES = auto()
    PLACES = auto()  # at which nodes operators stand
    COSTS = auto()  # which numbers an operator has
    DURATIONS = auto()
    LABELS = auto()
    COPIES = auto()  # training graphs, equal in everything
    LIKENESS = auto()  # nearness to training graphs


class Duty(Enum):
    """What is asked of a figure under a fault."""

    MUST = "must move"
    MAY = "may move"
    STILL = "must stay"


@dataclass(frozen=True)
class Planted:
    """A fault and what is said of it beforehand.

    Attributes:
        name: Of the fault.
        changes: What it changes.
        must: Figures that have to see it, by name or by the name before the colon.
        strengths: To plant it at, ascending.
    """

    name: str
    changes: Aspect
    must: tuple[str, ...]
    strengths: tuple[float, ...] = _SHARES

    def duty(self, figure: str) -> Duty:
        """Return what is asked of a figure."""
        if not looks_at(figure) & self.changes:
            return Duty.STILL
        is_made_for_it = figure in self.must or figure.partition(":")[0] in self.must
        return Duty.MUST if is_made_for_it else Duty.MAY


_LOCAL = ("edge_bigrams", "type_hashes", "path_novelty", "path_frequencies")
_AROUND = ("neighborhood_novelty", "neighborhood_repetition")
_WHOLE = ("mmd:embedding", "classifier_bound")
_ATTACKS = (
    "dcr_share",
    "nearest_sample",
    "density_ratio",
    "nearest_program",
    "calibrated_classifier",
    "unique_motifs",
    "reconstruction",
    "model",
)
_SPANS = ("edge_span", "precision", "node_classifier")

FAULTS = (
    Planted(
        "rewired_keeping_degrees",
        Aspect.WIRING,
        (*_LOCAL, *_AROUND, *_WHOLE, *_SPANS, "repeated_blocks:nodes"),
    ),
    Planted(
        "rewired",
        Aspect.WIRING | Aspect.DEGREES,
        (
            *_LOCAL,
            *_AROUND,
            *_WHOLE,
            *_SPANS,
            "repeated_blocks:nodes",
            "in_degree",
            "out_degree",
            "mmd:in_degree",
            "mmd:out_degree",
            "backward_without_forward",
        ),
    ),
    Planted(
        "attributes_shuffled",
        Aspect.PLACES,
        (
            *_LOCAL,
            *_AROUND,
            *_WHOLE,
            "precision",
            "node_classifier",
            "repeated_blocks:nodes",
            "backward_without_forward",
        ),
    ),
    Planted(
        "numbers_shuffled",
        Aspect.COSTS,
        (
            "attribute_pairs",
            "shape_violation:bounds",
            "joint_tails:flops x duration",
            "joint_tails:bytes x duration",
            "node_classifier",
            *_WHOLE,
        ),
    ),
    Planted("labels_swapped", Aspect.LABELS, ("tstr",)),
    Planted(
        "families_dropped",
        Aspect.POPULATION,
        (
            "attribute:op",
            "mmd:first_attribute",
            "recall",
            "coverage",
            "edge_bigrams",
            "path_frequencies",
            *_WHOLE,
        ),
    ),
    Planted(
        "copies",
        Aspect.COPIES | Aspect.LIKENESS,
        ("copied", "program_copied", *_ATTACKS, "neighborhood_novelty", "path_novelty"),
        strengths=(0.01, 0.05, 0.2, 0.5),
    ),
    Planted(
        "memorizer",
        Aspect.LIKENESS | Aspect.WIRING | Aspect.PLACES | Aspect.COSTS,
        (*_ATTACKS, "program_near"),
        strengths=_MEMORIZED,
    ),
    Planted(
        "memorizer_heavy_edits",
        Aspect.LIKENESS | Aspect.WIRING | Aspect.PLACES | Aspect.COSTS,
        (*_ATTACKS, "program_near"),
        strengths=_MEMORIZED,
    ),
    Planted(
        "memorizer_retimed",
        Aspect.LIKENESS | Aspect.DURATIONS,
        (*_ATTACKS, "program_copied"),
        strengths=_MEMORIZED,
    ),
    Planted(
        "durations_scaled",
        Aspect.DURATIONS,
        ("attribute:duration", "attribute_pairs", "node_classifier", *_WHOLE),
        strengths=(0.05, 0.1, 0.2, 0.5, 1.0),
    ),
    Planted(
        "blocks_not_repeating",
        Aspect.PLACES,
        ("repeated_blocks:nodes", "repeated_blocks:number", "neighborhood_repetition"),
        strengths=(*_SHARES, 1.0),
    ),
)
"""All faults, in the order of the table."""

_GRAPH = Aspect.POPULATION | Aspect.WIRING | Aspect.PLACES
_LOOKS_AT = {
    "nodes": Aspect.POPULATION,
    "edges": Aspect.POPULATION,
    "layers": Aspect.POPULATION | Aspect.WIRING,
    "mean_width": Aspect.POPULATION | Aspect.WIRING,
    "width": Aspect.POPULATION | Aspect.WIRING,
    "in_degree": Aspect.POPULATION | Aspect.DEGREES,
    "out_degree": Aspect.POPULATION | Aspect.DEGREES,
    "edge_span": Aspect.POPULATION | Aspect.WIRING,
    "depth_profile": Aspect.POPULATION | Aspect.WIRING,
    "edge_types": Aspect.POPULATION,
    "edge_bigrams": _GRAPH,
    "attribute": Aspect.POPULATION,
    "attribute:duration": Aspect.POPULATION | Aspect.DURATIONS,
    "attribute_pairs": Aspect.POPULATION | Aspect.COSTS | Aspect.DURATIONS,
    "attribute_pairs:op x flops": Aspect.POPULATION | Aspect.COSTS,
    "mmd:sizes": Aspect.POPULATION | Aspect.WIRING,
    "mmd:in_degree": Aspect.POPULATION | Aspect.DEGREES,
    "mmd:out_degree": Aspect.POPULATION | Aspect.DEGREES,
    "mmd:first_attribute": Aspect.POPULATION,
    "neighborhood_novelty": _GRAPH | Aspect.LIKENESS,
    "neighborhood_repetition": _GRAPH,
    "type_hashes": _GRAPH,
    "path_novelty": _GRAPH | Aspect.LIKENESS,
    "path_frequencies": _GRAPH,
    "repeated_blocks": _GRAPH,
    "backward_without_forward": _GRAPH,
    "step_without_gradient": _GRAPH,
    "shape_violation": Aspect.COSTS,
    "joint_tails": Aspect.POPULATION | Aspect.COSTS,
    "invalid": Aspect.NOTHING,
    "warned": _GRAPH | Aspect.DEGREES,
    "copied": Aspect.COPIES,
    "program_copied": Aspect.COPIES | Aspect.LIKENESS,
    "program_near": Aspect.LIKENESS,
    "dcr_share": Aspect.LIKENESS,
    "nearest_sample": Aspect.LIKENESS,
    "density_ratio": Aspect.LIKENESS,
    "nearest_program": Aspect.LIKENESS,
    "calibrated_classifier": Aspect.LIKENESS,
    "unique_motifs": Aspect.LIKENESS,
    "reconstruction": Aspect.LIKENESS,
    "model": Aspect.LIKENESS,
    "properties": Aspect.LIKENESS,
    "tstr": _GRAPH | Aspect.DEGREES | Aspect.COSTS | Aspect.LABELS,
}
# Embeddings of whole graphs and nodes with all attributes: what is built on them sees all of it.
_ALL = _GRAPH | Aspect.DEGREES | Aspect.COSTS | Aspect.DURATIONS
_SEE_ALL = (
    *_WHOLE,
    "precision",
    "recall",
    "density",
    "coverage",
    "node_classifier",
)


ATTACKS = (*_ATTACKS, "properties")
"""Figures that are attacks on samples."""


def looks_at(figure: str) -> Aspect:
    """Return what a figure depends on; KeyError for one of which nothing is declared."""
    if figure in _SEE_ALL:
        return _ALL
    key = figure if figure in _LOOKS_AT else figure.partition(":")[0]
    return _LOOKS_AT[key]


def faults_for(schema: GraphSchema) -> dict[str, Fault]:
    """Return what plants each fault in graphs of a schema with FLOPs, bytes and durations."""
    column = {attribute.name: place for place, attribute in enumerate(schema.attributes)}
    duration = schema.attributes[column["duration"]]
    if not isinstance(duration, NumericAttribute):
        raise TypeError("Durations are numbers here.")
    costs = [column[name] for name in ("flops", "bytes", "comm_bytes") if name in column]
    return {
        "rewired_keeping_degrees": in_each_graph(rewired_keeping_degrees),
        "rewired": in_each_graph(rewired),
        "attributes_shuffled": in_each_graph(attributes_shuffled),
        "numbers_shuffled": in_each_graph(numbers_shuffled(costs)),
        "labels_swapped": labels_swapped,
        "families_dropped": families_dropped,
        "copies": copies(),
        "memorizer": memorizer(EDITS),
        "memorizer_heavy_edits": memorizer(HEAVY_EDITS),
        "memorizer_retimed": retimed_copies(column["duration"], duration, RETIMED_SPREAD),
        "durations_scaled": in_each_graph(durations_scaled(column["duration"], duration)),
        "blocks_not_repeating": in_each_graph(blocks_not_repeating),
    }
