"""What the rows of a weight stand for, as segments of codes.

Shape letters: K rows of the new model, J rows of the old one.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layerdag.datasets.schema import GraphSchema
from layerdag.models.warm_start._numbers import Features, affine, feature_source, numeric_pair
from layerdag.models.warm_start._sources import (
    BY_NAME,
    BY_VALUE,
    Source,
    attribute_source,
    by_count,
    by_largest_below,
    by_same_name,
    category_source,
)


class Segment(ABC):
    """Consecutive rows of a weight that stand for the codes of one thing."""

    @abstractmethod
    def key(self, schema: GraphSchema) -> tuple[str, ...]:
        """Return what the rows are about, in words that are the same for every data set."""

    @abstractmethod
    def size(self, schema: GraphSchema) -> int:
        """Return the number of rows."""

    @abstractmethod
    def source(self, old: "Segment", here: GraphSchema, there: GraphSchema) -> Source | None:
        """Return where the rows come from, given the old model's segment of the same key."""

    def neutral_row(self, schema: GraphSchema) -> int | None:
        """Return the row that says "absent" or "unknown", None if there is none."""
        return None


@dataclass(frozen=True)
class Axis:
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

    def source(self, old: "Axis", here: GraphSchema, there: GraphSchema) -> Source:
        """Return where all rows come from.

        Args:
            old: The same weight's axis in the old model.
            here: The new schema.
            there: The old schema.
        """
        starts, total = _starts(old.segments, there)
        index_of = {s.key(there): (s, start) for s, start in zip(old.segments, starts, strict=True)}
        blocks: list[Source] = []
        carried: set[tuple[str, ...]] = set()
        for segment in self.segments:
            key = segment.key(here)
            found = index_of.get(key)
            source = None if found is None else segment.source(found[0], here, there)
            block = Source.none(segment.size(here), total)
            if found is not None and source is not None:
                end = found[1] + source.matrix_KJ.shape[1]
                block.matrix_KJ[:, found[1] : end] = source.matrix_KJ
                block = Source(block.matrix_KJ, source.offset_K, source.how)
                if self.summed and not carried:
                    self._add_neutral_rows(block, old, here, there)
                carried.add(key)
            blocks.append(block)
        return Source(
            np.concatenate([block.matrix_KJ for block in blocks]),
            np.concatenate([block.offset_K for block in blocks]),
            tuple(how for block in blocks for how in block.how),
        )

    def _add_neutral_rows(
        self, block: Source, old: "Axis", here: GraphSchema, there: GraphSchema
    ) -> None:
        """Add the neutral rows of what the new data lacks to every row of ``block`` that is set."""
        kept = {segment.key(here) for segment in self.segments}
        starts, _ = _starts(old.segments, there)
        for segment, start in zip(old.segments, starts, strict=True):
            row = segment.neutral_row(there)
            if row is not None and segment.key(there) not in kept:
                block.matrix_KJ[block.matrix_KJ.any(axis=1), start + row] += 1.0


def _starts(segments: Sequence[Segment], schema: GraphSchema) -> tuple[list[int], int]:
    """Return the first row of each segment, and the number of all rows."""
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

    def source(self, old: Segment, here: GraphSchema, there: GraphSchema) -> Source | None:
        if old.size(there) != self.rows:
            return None
        return Source.of(np.eye(self.rows), [BY_VALUE] * self.rows)


@dataclass(frozen=True)
class AttributeCodes(Segment):
    """The codes of a node attribute, perhaps followed by that of the start token."""

    column: int
    start_token: bool = False

    def key(self, schema: GraphSchema) -> tuple[str, ...]:
        return ("attribute", schema.attributes[self.column].name)

    def size(self, schema: GraphSchema) -> int:
        return schema.attributes[self.column].num_codes + self.start_token

    def source(self, old: Segment, here: GraphSchema, there: GraphSchema) -> Source | None:
        codes = attribute_source(self.column, here, there)
        if codes is None or not self.start_token:
            return codes
        matrix_KJ = np.pad(codes.matrix_KJ, ((0, 1), (0, 1)))
        matrix_KJ[-1, -1] = 1.0
        return Source.of(matrix_KJ, (*codes.how, BY_NAME))

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

    def source(self, old: Segment, here: GraphSchema, there: GraphSchema) -> Source | None:
        source = category_source(here.category_conditions[self.index], there)
        if source is None or not self.unknown:
            return source
        matrix_KJ = np.pad(source.matrix_KJ, ((1, 0), (1, 0)))
        matrix_KJ[0, 0] = 1.0
        return Source.of(matrix_KJ, (BY_NAME, *source.how))

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

    def source(self, old: Segment, here: GraphSchema, there: GraphSchema) -> Source | None:
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

    def source(self, old: Segment, here: GraphSchema, there: GraphSchema) -> Source | None:
        assert isinstance(old, CountBins)
        return by_count(self.lows, old.lows)


@dataclass(frozen=True)
class Degrees(Segment):
    """In-degrees that training graphs have, a code each."""

    values: tuple[int, ...]

    def key(self, schema: GraphSchema) -> tuple[str, ...]:
        return ("degree",)

    def size(self, schema: GraphSchema) -> int:
        return len(self.values)

    def source(self, old: Segment, here: GraphSchema, there: GraphSchema) -> Source | None:
        assert isinstance(old, Degrees)
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

    def source(self, old: Segment, here: GraphSchema, there: GraphSchema) -> Source | None:
        pair = numeric_pair(self.index, here, there)
        return None if pair is None else feature_source(*pair, self.features)


@dataclass(frozen=True)
class NumericMean(Segment):
    """The predicted mean of one standardized number."""

    index: int

    def key(self, schema: GraphSchema) -> tuple[str, ...]:
        return ("mean", schema.numeric_conditions[self.index].name)

    def size(self, schema: GraphSchema) -> int:
        return 1

    def source(self, old: Segment, here: GraphSchema, there: GraphSchema) -> Source | None:
        scale = _rescaling(self.index, here, there)
        if scale is None:
            return None
        return Source(np.array([[1 / scale[0]]]), np.array([-scale[1] / scale[0]]), (BY_VALUE,))


@dataclass(frozen=True)
class NumericSpread(Segment):
    """The predicted standard deviation of one standardized number, nearly as a logarithm."""

    index: int

    def key(self, schema: GraphSchema) -> tuple[str, ...]:
        return ("spread", schema.numeric_conditions[self.index].name)

    def size(self, schema: GraphSchema) -> int:
        return 1

    def source(self, old: Segment, here: GraphSchema, there: GraphSchema) -> Source | None:
        scale = _rescaling(self.index, here, there)
        if scale is None:
            return None
        return Source(np.eye(1), np.array([-math.log(scale[0])]), (BY_VALUE,))


def _rescaling(index: int, here: GraphSchema, there: GraphSchema) -> tuple[float, float] | None:
    """Return what ``affine`` says of a number, None if the old model has no such number."""
    pair = numeric_pair(index, here, there)
    return affine(*pair) if pair else None
