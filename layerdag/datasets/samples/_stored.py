"""One sample that was read, from whatever it was written as."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from layerdag._runtime import require_parsable
from layerdag.codec import AttributedGraph, job_graph, rank_classes, unfold_sampled
from layerdag.datasets.files import decode_graphml, decode_json
from layerdag.errors import DataError, UsageError
from layerdag.graph import Condition
from layerdag.traces import Workload, decode_workload

NAME = re.compile(r"sample-\d{5,9}")


@dataclass(frozen=True, eq=False)
class StoredSample:
    """A sample as it was read.

    Attributes:
        name: "sample-" and its number.
        seed: It was sampled with.
        conditions: Requested ones, by name; the label is predicted with ``labels=predicted``.
        entry: All that is noted of it: nodes, edges, whether it is truncated, ranks, repairs.
        source: File and name, for messages.
        files: Content of its files by name; empty in a table.
        row: The graph, from a table.
    """

    name: str
    seed: int
    conditions: Mapping[str, Condition]
    entry: Mapping[str, Any]
    source: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    row: AttributedGraph | None = None

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise DataError(f"{self.source}: {self.name!r:.100} is no name of a sample.")

    @classmethod
    def of(cls, meta: bytes, source: str, files: Mapping[str, bytes]) -> "StoredSample":
        """Return a sample with its entry as JSON.

        Raises:
            DataError: If the entry is none.
        """
        require_parsable(meta, source)
        try:
            entry = json.loads(meta)
            conditions = {
                str(name): value if isinstance(value, str) else float(value)
                for name, value in dict(entry["conditions"]).items()
                if isinstance(value, int | float | str) and not isinstance(value, bool)
            }
            return cls(str(entry["name"]), int(entry["seed"]), conditions, entry, source, files)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise DataError(f"{source}: has no readable entry ({error!r:.200}).") from None

    @property
    def is_job(self) -> bool:
        """Whether it is a job, which has traces."""
        if self.row is not None:
            return self.entry.get("ranks") is not None
        return any(name.endswith(".et") for name in self.files)

    @cached_property
    def graph(self) -> AttributedGraph:
        """The graph in names and numbers.

        Raises:
            DataError: If a file is damaged, or the ranks of a job contradict each other.
        """
        if self.row is not None:
            return self.row
        if self.is_job:
            workload = self.workload()
            return job_graph(self.name, rank_classes(workload), workload.groups, {})
        for name, content in self.files.items():
            at = f"{self.source}/{name}"
            require_parsable(content, at)
            if name.endswith(".graphml"):
                return decode_graphml(content, at)
            if name.endswith(".json"):
                return decode_json(content, at)
        raise DataError(f"{self.source}: holds no trace and no graph.")

    def workload(self) -> Workload:
        """Return the traces of a job.

        Raises:
            DataError: If it is no job, or a file is damaged.
        """
        if not self.is_job:
            raise DataError(f"{self.source}: is a graph, not a job; take its 'graph'.")
        if self.row is None:
            return decode_workload(self.files, self.source)
        try:
            return unfold_sampled(self.row, int(self.entry["ranks"])).workload
        except UsageError as error:
            raise DataError(f"{self.source}: {error}") from None

    def __repr__(self) -> str:
        """Return name, seed and size."""
        return f"StoredSample({self.name!r}, seed={self.seed}, nodes={self.entry.get('nodes')})"
