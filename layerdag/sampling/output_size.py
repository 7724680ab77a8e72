"""Formats of samples, and how large their files will be."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from layerdag.dag.statistics import GraphStatistics
from layerdag.errors import UsageError
from layerdag.graph.attributed_graph import Condition
from layerdag.kinds.graph_kind import GraphKind
from layerdag.plan import read_recorded
from layerdag.programs.targets import Targets
from layerdag.runtime.reading import (
    NODE_BYTES,
    format_size,
    require_few_bytes,
    require_few_ranks,
)
from layerdag.sampling.generated import requested_ranks
from layerdag.sampling.settings import GenerationSettings
from layerdag.sampling.step_derivation import plan_generator
from layerdag.schema.schema import complete_conditions
from layerdag.schema.size_tables import FAMILY
from layerdag.training.checkpoint import LoadedCheckpoint, checkpoint_schema

FORMATS = ("auto", "et", "program", "graphml", "json")
_LOOKED_AT = 1000
"""Graphs whose conditions are used to estimate the total size."""


@dataclass(frozen=True)
class OutputSize:
    """What is about to be written, or was: graphs, their ranks, files and bytes, about.

    Ranks are 0 for graphs that are no jobs.
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
        unit = "rank" if self.most_ranks == 1 else "ranks"
        many = "" if self.graphs == 1 else "s"
        what = f"{self.graphs:,} job{many} of {ranks} {unit}" if self.most_ranks else (
            f"{self.graphs:,} graph{many}"
        )  # fmt: skip
        return f"{what}: about {self.files:,} files and {format_size(self.bytes)}"


def expected_output_size(
    rows: Sequence[Mapping[str, Condition]],
    statistics: GraphStatistics,
    *,
    num: int,
    ranks: int | None,
    max_nodes: int,
    file_format: str,
) -> OutputSize:
    """Return about what sampling of ``num`` graphs writes, by the conditions of some of them.

    Conditions that do not tell the number of nodes count as the mean of the training graphs. The
    format "step" is that of programs with the traces of their step. Raises DataError if a world
    size is no number.
    """
    mean = sum(statistics.attributes[0]) / max(statistics.graphs, 1)
    nodes = [min(_number(row.get("num_nodes"), mean), max_nodes) for row in rows]
    fraction = num / len(rows)
    if file_format not in ("et", "step"):
        size = fraction * sum(nodes) * NODE_BYTES[file_format]
        return OutputSize(num, 0, 0, num + 1, math.ceil(size))
    asked = [requested_ranks(row, ranks) for row in rows]
    size = (
        fraction * sum(n * r for n, r in zip(nodes, asked, strict=True)) * NODE_BYTES[file_format]
    )
    files = math.ceil(fraction * sum(asked)) + 1
    if file_format == "step":
        size, files = size + fraction * sum(nodes) * NODE_BYTES["program"], files + num
    return OutputSize(num, min(asked), max(asked), files, math.ceil(size))


def _number(value: Condition | None, default: float) -> float:
    try:
        number = default if value is None else float(value)
    except ValueError:
        return default
    return max(number, 1.0) if math.isfinite(number) else default


def volume_of(
    checkpoint: LoadedCheckpoint, settings: GenerationSettings, file_format: str = "auto"
) -> OutputSize:
    """Return about what ``write_samples`` writes; conditions of the first graphs speak for all.

    Raises:
        UsageError: If the format is unknown or does not fit, the model cannot do what is asked
            for, or it is more than the limits allow.
        CheckpointError: If schema and model of the checkpoint do not belong together.
        VocabularyError: If a wanted condition is unknown to the schema.
    """
    volume = estimated_volume(checkpoint, settings, file_format)
    require_allowed(volume, settings)
    return volume


def require_allowed(volume: OutputSize, settings: GenerationSettings) -> None:
    """Raise UsageError if more is to be written than the limits allow."""
    require_few_ranks(volume.most_ranks, settings.limits, "A job")
    require_few_bytes(volume.bytes, settings.limits, volume.describe())


def estimated_volume(
    checkpoint: LoadedCheckpoint, settings: GenerationSettings, file_format: str
) -> OutputSize:
    """Return what ``volume_of`` does, whatever the limits allow."""
    schema = checkpoint_schema(checkpoint)
    settings = settings.resolved(checkpoint.model, schema)
    seeds = [settings.seed + i for i in range(min(settings.num, _LOOKED_AT))]
    statistics = checkpoint.spec.statistics
    rows = complete_conditions(schema, settings.conditions, seeds)
    resolved = resolved_format(file_format, schema.kind, settings.ranks, settings.targets)
    if schema.kind.has_steps and resolved == "et":
        plans = [schema.plans.draw(str(r.get(FAMILY)), plan_generator(s))
                 for r, s in zip(rows, seeds, strict=True)]  # fmt: skip
        rows = [{**row, "world_size": p.ranks} for row, p in zip(rows, plans, strict=True)]
        resolved = "step"
    ranks = settings.ranks
    if not ranks and settings.targets is not None and settings.targets.plan:
        ranks = read_recorded(settings.targets.plan).plan.ranks
    return expected_output_size(
        rows,
        statistics,
        num=settings.num,
        ranks=ranks,
        max_nodes=settings.max_nodes,
        file_format=resolved,
    )


def resolved_format(
    file_format: str, kind: GraphKind, ranks: int | None, targets: Targets | None = None
) -> str:
    """Return the format to write, after checking that it fits what is sampled and asked for."""
    planned = targets is not None and bool(
        targets.plan or (targets.compute is not None and targets.step_time is None)
    )
    if file_format == "auto" and planned:
        file_format = "et"
    if planned and file_format != "et":
        raise UsageError(
            f"A plan and 'compute' are of a step's traces, and format={file_format} holds none; "
            "leave them out, or ask for format=et."
        )
    if file_format not in FORMATS:
        raise UsageError(f"There is no format '{file_format}'; known: {', '.join(FORMATS)}.")
    if file_format == "auto":
        file_format = kind.formats[0]
    if ranks is not None and file_format != "et":
        raise UsageError(
            f"'ranks' is the number of trace files per job, and format={file_format} writes one "
            "graph; leave ranks out, or ask for format=et."
        )
    if file_format in kind.formats:
        return file_format
    if file_format == "program":
        raise UsageError("This checkpoint samples no programs; leave format=auto.")
    raise UsageError(
        f"This checkpoint samples {kind.plural}, which are no execution traces; "
        "ask for format=graphml or format=json."
    )
