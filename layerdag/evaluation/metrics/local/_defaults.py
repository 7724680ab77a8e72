"""What is computed of local structure, beside neighborhoods."""

from layerdag.evaluation.metrics import AttributeMetrics, Goal, Metric
from layerdag.evaluation.metrics.local._blocks import BlockFigure, RepeatedBlocks
from layerdag.evaluation.metrics.local._joint_tails import JointTails
from layerdag.evaluation.metrics.local._node_classifier import NodeClassifier
from layerdag.evaluation.metrics.local._operator_inputs import OperatorInputs
from layerdag.evaluation.metrics.local._paths import PathDistance, PathNovelty
from layerdag.evaluation.metrics.local._shapes import ShapeViolations
from layerdag.evaluation.metrics.local._type_hashes import TypeHashDistance

LENGTHS = (2, 3, 4)


def _novelty(length: int) -> PathNovelty:
    what = f"sequences of {length} operators along paths that occur in no training graph"
    return PathNovelty(f"path_novelty:{length}", what, Goal.MATCH_REAL, upper=1.0, length=length)


def _distance(length: int) -> PathDistance:
    what = f"share of each sequence of {length} operators along paths"
    return PathDistance(f"path_frequencies:{length}", what, Goal.MINIMIZE, upper=1.0, length=length)


def _blocks(figure: BlockFigure, what: str, unit: str = "", upper: float = float("inf")) -> Metric:
    name = f"repeated_blocks:{figure.value}"
    return RepeatedBlocks(name, what, Goal.MATCH_REAL, upper=upper, unit=unit, figure=figure)


LOCAL_METRICS: tuple[Metric | AttributeMetrics, ...] = (
    TypeHashDistance(
        "type_hashes",
        "share of each type hash (WfChef)",
        Goal.MINIMIZE,
        upper=1.0,
    ),
    *(_novelty(length) for length in LENGTHS),
    *(_distance(length) for length in LENGTHS),
    _blocks(BlockFigure.NUMBER, "blocks of layers that repeat one after the other", "blocks"),
    _blocks(BlockFigure.LENGTH, "length of a repeated block", "layers"),
    _blocks(BlockFigure.COUNT, "copies of a repeated block", "copies"),
    _blocks(BlockFigure.NODES, "nodes inside repeated blocks", upper=1.0),
    OperatorInputs(),
    ShapeViolations(),
    JointTails(),
    NodeClassifier(
        "node_classifier",
        "area under the ROC curve of boosted trees on nodes, 0.5 is indistinguishable",
        Goal.MINIMIZE,
        upper=1.0,
    ),
)
"""Type hashes, paths, repeated blocks, impossible inputs and numbers, tails, and a classifier."""
