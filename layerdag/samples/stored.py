"""One sample as it was read: its entry, and its files or its row of a table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from layerdag.codec.folding import job_graph, rank_classes
from layerdag.codec.unfolding import unfold_sampled
from layerdag.errors import DataError, UsageError
from layerdag.graph.attributed_graph import AttributedGraph, Condition, decode_json
from layerdag.graph.formats import program_json
from layerdag.graph.formats.graphml import decode_graphml
from layerdag.runtime.json_shape import parse_json, plain_reason, require_shape
from layerdag.runtime.reading import require_parsable
from layerdag.traces.chakra.workload import decode_workload
from layerdag.traces.trace import Workload


@dataclass(frozen=True, eq=False)
class StoredSample:
    """A sample as it was read.

    The seed is None if a manifest does not state it. ``conditions`` are the requested ones, or with
    ``labels=predicted`` the predicted label; ``entry`` is all else that is noted: nodes, edges,
    truncated, ranks, repairs. ``source`` is file and name, for messages. A sample has ``files``,
    their content by name, or, from a table, a ``row``.
    """

    name: str
    seed: int | None
    conditions: Mapping[str, Condition]
    entry: Mapping[str, Any]
    source: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    row: AttributedGraph | None = None

    @classmethod
    def from_files(cls, meta: bytes, source: str, files: Mapping[str, bytes]) -> "StoredSample":
        """Return a sample with its entry as JSON. Raises DataError if the entry is none."""
        require_parsable(meta, source)
        try:
            entry = parse_json(meta)
            require_shape(entry, {"name": str, "seed?": int, "conditions": dict})
            conditions = {
                name: value if isinstance(value, str) else float(value)
                for name, value in entry["conditions"].items()
                if isinstance(value, int | float | str) and not isinstance(value, bool)
            }
            return cls(entry["name"], entry.get("seed"), conditions, entry, source, files)
        except (ValueError, OverflowError, RecursionError) as error:
            raise DataError(
                f"{source}: has no readable entry of a sample ({plain_reason(error)}); sample "
                "again, or get the file from its source again."
            ) from None

    @property
    def is_job(self) -> bool:
        """Whether it is a job, which has traces."""
        if self.row is not None:
            return self.entry.get("ranks") is not None
        return any(name.endswith(".et") for name in self.files)

    @cached_property
    def graph(self) -> AttributedGraph:
        """The graph in names and numbers.

        Raises DataError if a file is damaged, or the ranks of a job contradict each other.
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
            if name.endswith(program_json.SUFFIX):
                return program_json.program_graph(parse_json(content), at)
            if name.endswith(".json"):
                return decode_json(content, at)
        raise DataError(f"{self.source}: holds no trace and no graph.")

    @property
    def program_graph(self) -> AttributedGraph | None:
        """The graph of the program behind a derived job; None for other samples.

        Raises DataError if its file is damaged.
        """
        file = f"{self.name}{program_json.SUFFIX}"
        if file not in self.files:
            return None
        at = f"{self.source}/{file}"
        require_parsable(self.files[file], at)
        return program_json.program_graph(parse_json(self.files[file]), at)

    def workload(self) -> Workload:
        """Return the traces of a job. Raises DataError if it is no job, or a file is damaged."""
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
