"""How much a request for samples writes, estimated before long work."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from layerdag._runtime import NODE_BYTES, format_size
from layerdag.errors import DataError
from layerdag.graph import Condition, GraphStatistics


@dataclass(frozen=True)
class Volume:
    """What is about to be written, or was.

    Attributes:
        graphs: Number of graphs or jobs.
        least_ranks: Ranks of the smallest job; 0 for graphs that are no jobs.
        most_ranks: Ranks of the largest job; 0 for graphs that are no jobs.
        files: Number of files, about.
        bytes: Their size, about.
    """

    graphs: int
    least_ranks: int
    most_ranks: int
    files: int
    bytes: int

    def describe(self) -> str:
        """Return it in words."""
        ranks = f"{self.least_ranks:,} to {self.most_ranks:,}"
        if self.least_ranks == self.most_ranks:
            ranks = f"{self.most_ranks:,}"
        what = f"{self.graphs:,} jobs of {ranks} ranks" if self.most_ranks else (
            f"{self.graphs:,} graphs"
        )  # fmt: skip
        return f"{what}: about {self.files:,} files and {format_size(self.bytes)}"


def expected_volume(
    rows: Sequence[Mapping[str, Condition]],
    statistics: GraphStatistics,
    *,
    num: int,
    ranks: int | None,
    max_nodes: int,
    file_format: str,
) -> Volume:
    """Return about what sampling writes.

    Args:
        rows: Conditions of some of the graphs.
        statistics: Of the training graphs, for the nodes of a graph whose conditions do not tell.
        num: Number of all graphs.
        ranks: Of each job; None takes those of the conditions.
        max_nodes: Of a graph.
        file_format: "et", "graphml" or "json".

    Raises:
        DataError: If a world size is no number.
    """
    mean = sum(statistics.attributes[0]) / max(statistics.graphs, 1)
    nodes = [min(_number(row.get("num_nodes"), mean), max_nodes) for row in rows]
    fraction = num / len(rows)
    if file_format != "et":
        size = fraction * sum(nodes) * NODE_BYTES[file_format]
        return Volume(num, 0, 0, num + 1, math.ceil(size))
    asked = [asked_ranks(row, ranks) for row in rows]
    size = fraction * sum(n * r for n, r in zip(nodes, asked, strict=True)) * NODE_BYTES["et"]
    files = math.ceil(fraction * sum(asked)) + 1
    return Volume(num, min(asked), max(asked), files, math.ceil(size))


def asked_ranks(conditions: Mapping[str, Condition], ranks: int | None = None) -> int:
    """Return the ranks of a job: ``ranks``, else the condition "world_size", else 1.

    Raises:
        DataError: If the condition is no number of ranks.
    """
    if ranks is not None:
        return ranks
    found = conditions.get("world_size", 1)
    try:
        number = float(found)
        if not 1 <= number <= 1e15:
            raise ValueError("out of bounds")
    except ValueError:
        raise DataError(
            f"A world size of {found!r:.40} is no number of ranks; ask for ranks=N."
        ) from None
    return int(number)


def _number(value: Condition | None, default: float) -> float:
    """Return a condition as a number from 1 on."""
    try:
        number = default if value is None else float(value)
    except ValueError:
        return default
    return max(number, 1.0) if math.isfinite(number) else default
