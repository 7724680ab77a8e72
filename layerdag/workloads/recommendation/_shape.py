"""The shape of a deep learning recommendation model with cross layers (DLRM-DCNv2)."""

from dataclasses import dataclass
from itertools import pairwise

from layerdag.errors import ConfigError


@dataclass(frozen=True)
class RecommenderShape:
    """A recommendation model: embedding tables, two dense networks, low-rank cross layers.

    Attributes:
        name: For messages and summaries.
        rows: Rows of each embedding table.
        look_ups: Rows of each table that a sample looks up and sums.
        width: Numbers of a row.
        dense_inputs: Dense features of a sample.
        bottom: Widths of the network over dense features; the last is ``width``.
        top: Widths of the network over the crossed features; the last is 1.
        cross_layers: Cross layers (Wang et al. 2021), each of two matrices and a bias.
        rank: Inner width of a cross layer.

    Raises:
        ConfigError: If numbers are not possible or do not fit together.
    """

    name: str
    rows: tuple[int, ...]
    look_ups: tuple[int, ...]
    width: int
    dense_inputs: int
    bottom: tuple[int, ...]
    top: tuple[int, ...]
    cross_layers: int
    rank: int

    def __post_init__(self) -> None:
        numbers = (*self.rows, *self.look_ups, self.width, self.dense_inputs, *self.bottom,
            *self.top, self.cross_layers, self.rank)  # fmt: skip
        if any(type(number) is not int or number < 1 for number in numbers):
            raise ConfigError(f"model {self.name}: all numbers must be whole and at least 1.")
        if not self.rows or len(self.rows) != len(self.look_ups):
            raise ConfigError(
                f"model {self.name}: {len(self.look_ups)} numbers of look-ups for "
                f"{len(self.rows)} tables; give one for each table."
            )
        if not self.bottom or self.bottom[-1] != self.width:
            raise ConfigError(
                f"model {self.name}: the bottom network ends with width "
                f"{self.bottom[-1] if self.bottom else 0}, rows have {self.width}; give the same."
            )
        if self.top[-1:] != (1,):
            raise ConfigError(
                f"model {self.name}: the top network ends with width "
                f"{self.top[-1] if self.top else 0}, a prediction has 1; end it with 1."
            )

    @property
    def crossed(self) -> int:
        """Numbers of a sample that the cross layers mix."""
        return (len(self.rows) + 1) * self.width

    @property
    def bottom_layers(self) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of the linear layers over dense features."""
        return tuple(pairwise((self.dense_inputs, *self.bottom)))

    @property
    def cross_matrices(self) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of the matrices of all cross layers."""
        return ((self.crossed, self.rank), (self.rank, self.crossed)) * self.cross_layers

    @property
    def top_layers(self) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of the linear layers behind the cross layers."""
        return tuple(pairwise((self.crossed, *self.top)))

    @property
    def table_parameters(self) -> int:
        """Parameters of all tables."""
        return sum(self.rows) * self.width

    @property
    def dense_parameters(self) -> int:
        """Parameters of all that is on every rank."""
        networks = sum((n + 1) * m for n, m in (*self.bottom_layers, *self.top_layers))
        crosses = sum(n * m for n, m in self.cross_matrices)
        return networks + crosses + self.cross_layers * self.crossed

    @property
    def parameters(self) -> int:
        """Parameters of the model."""
        return self.table_parameters + self.dense_parameters


RECOMMENDERS = {
    shape.name: shape
    for shape in (
        # MLPerf's recommendation benchmark on multi-hot Criteo; flags of its reference (TorchRec).
        RecommenderShape(
            "dlrm-v2",
            rows=(40000000, 39060, 17295, 7424, 20265, 3, 7122, 1543, 63, 40000000, 3067956,
                  405282, 10, 2209, 11938, 155, 4, 976, 14, 40000000, 40000000, 40000000, 590152,
                  12973, 108, 36),
            look_ups=(3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3,
                      1, 1),
            width=128, dense_inputs=13, bottom=(512, 256, 128), top=(1024, 1024, 512, 256, 1),
            cross_layers=3, rank=512,
        ),
    )
}  # fmt: skip
"""Shapes by name."""
