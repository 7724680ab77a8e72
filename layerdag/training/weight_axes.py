"""What the rows of a weight stand for, and where they come from in a warm start.

Which rows of the old model a row of the new model starts from: by word, by kind, by value.

A *source* is a matrix (new codes x old codes): row i says how the row of code i is mixed from old
rows. A row of zeros has nothing to start from and keeps its fresh initialization.

Shape letters: K codes of the new schema, J codes of the old one, V values, F features.

Numeric conditions by value: the old scale of a number as a function of the new one.

A condition is standardized by the data it was learned from, so the same number enters two models
as two values. What enters the new model is expressed by what entered the old one: exactly where
both are linear in the number (or both in its logarithm), else by least squares.

Shape letters: V values, F features.

What the rows of a weight stand for, as segments of codes.

Shape letters: K rows of the new model, J rows of the old one.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Final

import numpy as np
from jaxtyping import Float
from torch import Tensor

from layerdag.codec.vocabulary import is_communication
from layerdag.errors import VocabularyError
from layerdag.schema.attributes import CategoryAttribute, NumericAttribute
from layerdag.schema.conditions import CategoryCondition, NumericCondition
from layerdag.schema.schema import GraphSchema

BY_NAME: Final = "by name"
BY_KIND: Final = "from their kind"
BY_VALUE: Final = "by value"
FRESH: Final = "fresh"

# Values inside a bin that vote for the old bins that hold them.
_VALUES_PER_BIN = 16


@dataclass(frozen=True, eq=False)
class RowSource:
    """Where the rows of some codes come from.

    Attributes:
        matrix_KJ: float64; row i mixes the old rows into the row of code i.
        offset_K: float64, added to the entries of a bias.
        how: For each code, one of the constants of this module.
    """

    matrix_KJ: np.ndarray
    offset_K: np.ndarray
    how: tuple[str, ...]

    @classmethod
    def from_matrix(cls, matrix_KJ: np.ndarray, how: Sequence[str]) -> "RowSource":
        """Return a source without offsets."""
        return cls(matrix_KJ, np.zeros(len(matrix_KJ)), tuple(how))

    @classmethod
    def none(cls, new: int, old: int) -> "RowSource":
        """Return the source of codes that nothing is known of."""
        return cls.from_matrix(np.zeros((new, old)), [FRESH] * new)


def word_kind(word: str) -> str:
    """Return what kind of operator or other value a word names, to judge by its name.

    Returns:
        "message" (c10d::send, c10d::recv), "collective" (other c10d operators), "optimizer"
        (operators over lists of tensors, fused steps), "backward", "compute" (other operators) or
        "value" (what is no operator).
    """
    if is_communication(word):
        return "message" if word.endswith(("::send", "::recv")) else "collective"
    space, colons, name = word.partition("::")
    if not colons or not space:
        return "value"
    if "_foreach_" in name or name.startswith("_fused_"):
        return "optimizer"
    return "backward" if "backward" in name else "compute"


def by_word(new: Sequence[str], old: Sequence[str]) -> RowSource:
    """Map words: the same word, else the mean of the old words of its kind, else of all words."""
    index_of = {word: index for index, word in enumerate(old)}
    kinds = np.array([word_kind(word) for word in old])
    matrix_KJ, how = np.zeros((len(new), len(old))), []
    for row_J, word in zip(matrix_KJ, new, strict=True):
        if word in index_of:
            row_J[index_of[word]] = 1.0
            how.append(BY_NAME)
            continue
        alike_J = kinds == word_kind(word)
        alike_J = alike_J if alike_J.any() else np.ones_like(alike_J)
        row_J[alike_J] = 1.0 / alike_J.sum()
        how.append(BY_KIND)
    return RowSource.from_matrix(matrix_KJ, how)


def by_same_name(new: Sequence[str], old: Sequence[str]) -> RowSource:
    """Map words to the same word; others have nothing to start from."""
    matrix_KJ = np.array([[float(a == b) for b in old] for a in new]).reshape(len(new), len(old))
    return RowSource.from_matrix(matrix_KJ, [BY_NAME if row.any() else FRESH for row in matrix_KJ])


def by_bin(new: NumericAttribute, old: NumericAttribute) -> RowSource:
    """Map bins: the same bin, else the mean of the old bins over the values of the new one.

    A value outside of all old bins counts for the nearest one. Code 0 is "absent" in both.
    """
    matrix_KJ = np.zeros((new.num_codes, old.num_codes))
    matrix_KJ[0, 0] = 1.0
    index_of = {row: index for index, row in enumerate(old.bins, start=1)}
    position_V = (np.arange(_VALUES_PER_BIN) + 0.5) / _VALUES_PER_BIN
    for code, row in enumerate(new.bins, start=1):
        if row in index_of:
            matrix_KJ[code, index_of[row]] = 1.0
        elif old.bins:
            value_V = new.decode(np.full(_VALUES_PER_BIN, code), position_V)
            matrix_KJ[code] = np.bincount(old.encode(value_V)[0], minlength=old.num_codes)
            matrix_KJ[code] /= _VALUES_PER_BIN
    return RowSource.from_matrix(matrix_KJ, [BY_VALUE if row.any() else FRESH for row in matrix_KJ])


def by_count(new_lows: Sequence[int], old_lows: Sequence[int]) -> RowSource:
    """Map bins of whole numbers by the numbers that they share.

    Args:
        new_lows: Smallest number of each bin, followed by one past the last bin's largest.
        old_lows: The same of the old bins; what lies beyond them counts for the last one.
    """
    low_J, high_J = np.array(old_lows[:-1]), np.array(old_lows[1:], dtype=float)
    high_J[-1] = np.inf
    rows = []
    for low, high in pairwise(new_lows):
        shared_J = np.clip(np.minimum(high, high_J) - np.maximum(low, low_J), 0, None)
        rows.append(shared_J / shared_J.sum())
    return RowSource.from_matrix(np.array(rows), [BY_VALUE] * len(rows))


def by_largest_below(new: Sequence[int], old: Sequence[int]) -> RowSource:
    """Map numbers to the largest old number that is not larger; both ascend from 0."""
    matrix_KJ = np.zeros((len(new), len(old)))
    matrix_KJ[np.arange(len(new)), np.searchsorted(old, new, side="right") - 1] = 1.0
    return RowSource.from_matrix(matrix_KJ, [BY_VALUE] * len(new))


def attribute_source(column: int, here: GraphSchema, there: GraphSchema) -> RowSource | None:
    """Return the source of an attribute's codes, None if the old schema has no such attribute.

    Args:
        column: Of the attribute in the new schema.
        here: The new schema.
        there: The old schema.
    """
    new = here.attributes[column]
    old = next((a for a in there.attributes if a.name == new.name), None)
    if isinstance(new, CategoryAttribute) and isinstance(old, CategoryAttribute):
        return by_word(new.values, old.values)
    if isinstance(new, NumericAttribute) and isinstance(old, NumericAttribute):
        return by_bin(new, old)
    return None


def category_source(new: CategoryCondition, there: GraphSchema) -> RowSource | None:
    """Return the source of a condition's words, None if the old schema has no such condition."""
    old = next((c for c in there.category_conditions if c.name == new.name), None)
    return None if old is None else by_word(new.values, old.values)


Features = Callable[[np.ndarray], np.ndarray]
"""From standardized values (V,) to what a model is given of them (V, F)."""

# Standard deviations of the new data over which features are fitted, and the number of values.
_RANGE, _VALUES = 3.0, 121
# Standard deviations of the old data beyond which the old model has seen nothing.
_SEEN = 3.0
_RIDGE: Final = 1e-6


def numeric_pair(
    index: int, here: GraphSchema, there: GraphSchema
) -> tuple[NumericCondition, NumericCondition] | None:
    """Return a numeric condition of the new schema and that of the same name of the old one."""
    new = here.numeric_conditions[index]
    old = next((c for c in there.numeric_conditions if c.name == new.name), None)
    return None if old is None else (new, old)


def same_scale(new: NumericCondition, old: NumericCondition) -> bool:
    """Return whether a number has the same standardized value in both."""
    return (new.mean, new.std, new.log) == (old.mean, old.std, old.log)


def feature_source(new: NumericCondition, old: NumericCondition, features: Features) -> RowSource:
    """Return how weights on features of the new value are mixed from those on the old value's.

    Over the values of the new data, weighted as if they were normal, the old model's features are
    fitted by linear combinations of the new model's.
    """
    if same_scale(new, old):
        width = features(np.zeros(1)).shape[1]
        return RowSource.from_matrix(np.eye(width), [BY_VALUE] * width)
    new_V = np.linspace(-_RANGE, _RANGE, _VALUES)
    old_V = np.clip(np.array([_restandardized(z, new, old) for z in new_V]), -_SEEN, _SEEN)
    known_V = np.isfinite(old_V)
    weight_V1 = np.exp(-0.25 * new_V[known_V, None] ** 2)
    given_VF = features(new_V[known_V]) * weight_V1
    wanted_VF = features(old_V[known_V]) * weight_V1
    gram_FF = given_VF.T @ given_VF + _RIDGE * np.eye(given_VF.shape[1])
    matrix_FF = np.linalg.solve(gram_FF, given_VF.T @ wanted_VF)
    return RowSource.from_matrix(matrix_FF, [BY_VALUE] * len(matrix_FF))


def affine(new: NumericCondition, old: NumericCondition) -> tuple[float, float] | None:
    """Return (a, b) with old value = a * new value + b, None if one is a logarithm."""
    if new.log != old.log:
        return None
    return new.std / old.std, (new.mean - old.mean) / old.std


def radial(center_F: Float[Tensor, " F"]) -> Features:
    """Return the features of the fast model: value, radial basis functions, one."""
    center = center_F.double().numpy()

    def features(value_V: np.ndarray) -> np.ndarray:
        bumps_VF = np.exp(-0.5 * (value_V[:, None] - center) ** 2)
        return np.column_stack([value_V, bumps_VF, np.ones_like(value_V)])

    return features


def value_and_one(value_V: np.ndarray) -> np.ndarray:
    """Return the features of the reference model: value, one."""
    return np.column_stack([value_V, np.ones_like(value_V)])


def _restandardized(value: float, new: NumericCondition, old: NumericCondition) -> float:
    """Return the old model's value of a number, NaN if it can have none."""
    try:
        return old.encode(new.decode(value))
    except VocabularyError:
        return math.nan


class Segment(ABC):
    """Consecutive rows of a weight that stand for the codes of one thing."""

    @abstractmethod
    def key(self, schema: GraphSchema) -> tuple[str, ...]:
        """Return what the rows are about, in words that are the same for every data set."""

    @abstractmethod
    def size(self, schema: GraphSchema) -> int:
        """Return the number of rows."""

    @abstractmethod
    def source(self, old: "Segment", here: GraphSchema, there: GraphSchema) -> RowSource | None:
        """Return where the rows come from, given the old model's segment of the same key."""

    def neutral_row(self, schema: GraphSchema) -> int | None:
        """Return the row that says "absent" or "unknown", None if there is none."""
        return None


@dataclass(frozen=True)
class WeightAxis:
    """The rows of one weight.

    Attributes:
        segments: In order.
        dim: Dimension of the weight along which the rows lie.
        summed: Whether an input picks one row of every segment and adds them up. Then what the old
            model added for an attribute or condition that the new data lacks is kept: its neutral
            row joins the rows of the first segment that is carried over.
        places: Where in the weight each row of the segments lies; in their own order if empty.
    """

    segments: tuple[Segment, ...]
    dim: int = 0
    summed: bool = False
    positions: tuple[int, ...] = ()

    def source(self, old: "WeightAxis", here: GraphSchema, there: GraphSchema) -> RowSource:
        """Return where all rows come from.

        Args:
            old: The same weight's axis in the old model.
            here: The new schema.
            there: The old schema.
        """
        starts, total = _starts(old.segments, there)
        index_of = {s.key(there): (s, start) for s, start in zip(old.segments, starts, strict=True)}
        blocks: list[RowSource] = []
        carried: set[tuple[str, ...]] = set()
        for segment in self.segments:
            key = segment.key(here)
            found = index_of.get(key)
            source = None if found is None else segment.source(found[0], here, there)
            block = RowSource.none(segment.size(here), total)
            if found is not None and source is not None:
                end = found[1] + source.matrix_KJ.shape[1]
                block.matrix_KJ[:, found[1] : end] = source.matrix_KJ
                block = RowSource(block.matrix_KJ, source.offset_K, source.how)
                if self.summed and not carried:
                    self._add_neutral_rows(block, old, here, there)
                carried.add(key)
            blocks.append(block)
        return RowSource(
            np.concatenate([block.matrix_KJ for block in blocks]),
            np.concatenate([block.offset_K for block in blocks]),
            tuple(how for block in blocks for how in block.how),
        )

    def _add_neutral_rows(
        self, block: RowSource, old: "WeightAxis", here: GraphSchema, there: GraphSchema
    ) -> None:
        kept = {segment.key(here) for segment in self.segments}
        starts, _ = _starts(old.segments, there)
        for segment, start in zip(old.segments, starts, strict=True):
            row = segment.neutral_row(there)
            if row is not None and segment.key(there) not in kept:
                block.matrix_KJ[block.matrix_KJ.any(axis=1), start + row] += 1.0


def _starts(segments: Sequence[Segment], schema: GraphSchema) -> tuple[list[int], int]:
    ends = np.cumsum([segment.size(schema) for segment in segments]).tolist()
    return [0, *ends[:-1]], ends[-1]


@dataclass(frozen=True)
class Fixed(Segment):
    """Rows that mean the same in every model, if there are as many."""

    name: str
    rows: int

    def key(self, schema: GraphSchema) -> tuple[str, ...]:
        return ("fixed", self.name)

    def size(self, schema: GraphSchema) -> int:
        return self.rows

    def source(self, old: Segment, here: GraphSchema, there: GraphSchema) -> RowSource | None:
        if old.size(there) != self.rows:
            return None
        return RowSource.from_matrix(np.eye(self.rows), [BY_VALUE] * self.rows)


@dataclass(frozen=True)
class AttributeCodes(Segment):
    """The codes of a node attribute, perhaps followed by that of the start token."""

    column: int
    start_token: bool = False

    def key(self, schema: GraphSchema) -> tuple[str, ...]:
        return ("attribute", schema.attributes[self.column].name)

    def size(self, schema: GraphSchema) -> int:
        return schema.attributes[self.column].num_codes + self.start_token

    def source(self, old: Segment, here: GraphSchema, there: GraphSchema) -> RowSource | None:
        codes = attribute_source(self.column, here, there)
        if codes is None or not self.start_token:
            return codes
        matrix_KJ = np.pad(codes.matrix_KJ, ((0, 1), (0, 1)))
        matrix_KJ[-1, -1] = 1.0
        return RowSource.from_matrix(matrix_KJ, (*codes.how, BY_NAME))

    def neutral_row(self, schema: GraphSchema) -> int | None:
        # Code 0 of a number is "absent"; words have no such code.
        return None if hasattr(schema.attributes[self.column], "values") else 0


@dataclass(frozen=True)
class CategoryCodes(Segment):
    """The words of a categorical condition, perhaps after the row for "unknown"."""

    index: int
    unknown: bool

    def key(self, schema: GraphSchema) -> tuple[str, ...]:
        return ("condition", schema.category_conditions[self.index].name)

    def size(self, schema: GraphSchema) -> int:
        return len(schema.category_conditions[self.index].values) + self.unknown

    def source(self, old: Segment, here: GraphSchema, there: GraphSchema) -> RowSource | None:
        source = category_source(here.category_conditions[self.index], there)
        if source is None or not self.unknown:
            return source
        matrix_KJ = np.pad(source.matrix_KJ, ((1, 0), (1, 0)))
        matrix_KJ[0, 0] = 1.0
        return RowSource.from_matrix(matrix_KJ, (BY_NAME, *source.how))

    def neutral_row(self, schema: GraphSchema) -> int | None:
        return 0 if self.unknown else None


@dataclass(frozen=True)
class EdgeTypes(Segment):
    """The edge types; ``role`` tells apart several uses of them in one weight."""

    role: str = ""

    def key(self, schema: GraphSchema) -> tuple[str, ...]:
        return ("edge types", self.role)

    def size(self, schema: GraphSchema) -> int:
        return len(schema.edge_types)

    def source(self, old: Segment, here: GraphSchema, there: GraphSchema) -> RowSource | None:
        return by_same_name(here.edge_types, there.edge_types)


@dataclass(frozen=True)
class CountBins(Segment):
    """Bins of whole numbers, such as layer sizes or in-degrees.

    Attributes:
        name: Of what is counted.
        lows: Smallest number of each bin, followed by one past the last bin's largest.
    """

    name: str
    lows: tuple[int, ...]

    def key(self, schema: GraphSchema) -> tuple[str, ...]:
        return ("count", self.name)

    def size(self, schema: GraphSchema) -> int:
        return len(self.lows) - 1

    def source(self, old: Segment, here: GraphSchema, there: GraphSchema) -> RowSource | None:
        assert isinstance(old, CountBins)
        return by_count(self.lows, old.lows)


@dataclass(frozen=True)
class InDegreeRows(Segment):
    """In-degrees that training graphs have, a code each."""

    values: tuple[int, ...]

    def key(self, schema: GraphSchema) -> tuple[str, ...]:
        return ("degree",)

    def size(self, schema: GraphSchema) -> int:
        return len(self.values)

    def source(self, old: Segment, here: GraphSchema, there: GraphSchema) -> RowSource | None:
        assert isinstance(old, InDegreeRows)
        return by_largest_below(self.values, old.values)


@dataclass(frozen=True)
class NumericFeatures(Segment):
    """What a model is given of one standardized number."""

    index: int
    features: Features

    def key(self, schema: GraphSchema) -> tuple[str, ...]:
        return ("number", schema.numeric_conditions[self.index].name)

    def size(self, schema: GraphSchema) -> int:
        return int(self.features(np.zeros(1)).shape[1])

    def source(self, old: Segment, here: GraphSchema, there: GraphSchema) -> RowSource | None:
        pair = numeric_pair(self.index, here, there)
        return None if pair is None else feature_source(*pair, self.features)


@dataclass(frozen=True)
class _OneNumber(Segment):
    what: ClassVar[str]
    index: int

    def key(self, schema: GraphSchema) -> tuple[str, ...]:
        return (self.what, schema.numeric_conditions[self.index].name)

    def size(self, schema: GraphSchema) -> int:
        return 1


@dataclass(frozen=True)
class NumericMean(_OneNumber):
    """The predicted mean of one standardized number."""

    what: ClassVar[str] = "mean"

    def source(self, old: Segment, here: GraphSchema, there: GraphSchema) -> RowSource | None:
        scale = _rescaling(self.index, here, there)
        if scale is None:
            return None
        return RowSource(np.array([[1 / scale[0]]]), np.array([-scale[1] / scale[0]]), (BY_VALUE,))


@dataclass(frozen=True)
class NumericSpread(_OneNumber):
    """The predicted standard deviation of one standardized number, nearly as a logarithm."""

    what: ClassVar[str] = "spread"

    def source(self, old: Segment, here: GraphSchema, there: GraphSchema) -> RowSource | None:
        scale = _rescaling(self.index, here, there)
        if scale is None:
            return None
        return RowSource(np.eye(1), np.array([-math.log(scale[0])]), (BY_VALUE,))


def _rescaling(index: int, here: GraphSchema, there: GraphSchema) -> tuple[float, float] | None:
    """Return what ``affine`` says of a number, None if the old model has no such number."""
    pair = numeric_pair(index, here, there)
    return affine(*pair) if pair else None
