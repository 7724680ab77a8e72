"""Graphs for surrogates: folders of samples, targets, and attributes that must not be seen."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from layerdag._runtime import inside, read_parsed
from layerdag.datasets.files import read_graph
from layerdag.datasets.samples import SampleRun, is_run, iter_samples
from layerdag.datasets.schema import GraphSchema
from layerdag.errors import DataError, UsageError
from layerdag.graph import DAG, Condition
from layerdag.surrogates.tstr import Labeled


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """Return the manifest of a folder that ``layerdag sample`` wrote.

    Of samples in parts it is what all have in common, without the key "samples".

    Raises:
        DataError: If it is missing or no JSON object.
    """
    if is_run(folder):
        return dict(SampleRun.read(folder).request)
    manifest = Path(folder) / "manifest.json"
    if not manifest.is_file():
        raise DataError(
            f"{manifest}: there is no such file; give a folder that 'layerdag sample' wrote."
        )
    try:
        content = json.loads(read_parsed(manifest))
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{manifest}: is no manifest of samples ({error!r}); sample again."
        ) from None
    if not isinstance(content, dict):
        raise DataError(f"{manifest}: is no manifest of samples; sample again.")
    return content


@dataclass(frozen=True)
class SampleFile:
    """One entry of a manifest of samples.

    Attributes:
        path: File of the graph, or prefix of the traces.
        conditions: What it was sampled for.
    """

    path: Path
    conditions: Mapping[str, Condition]


def sample_files(folder: str | Path) -> tuple[SampleFile, ...]:
    """Return where the samples that ``layerdag sample`` wrote lie, with their conditions.

    Raises:
        DataError: If the manifest is missing or damaged.
    """
    folder = Path(folder)
    content = read_manifest(folder)
    try:
        entries = content["samples"]
        asked = [(str(e["name"]), dict(e["conditions"]), e.get("file")) for e in entries]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"{folder / 'manifest.json'}: is no manifest of samples ({error!r}); sample again."
        ) from None
    return tuple(
        SampleFile(inside(folder, file if isinstance(file, str) else f"{name}/{name}"), conditions)
        for name, conditions, file in asked
    )


@dataclass(frozen=True)
class SampleStream:
    """Samples on the disk, as often as they are gone through; one is held at a time.

    Attributes:
        folder: Of samples, a file or folder each or in parts; or one part.
        schema: What the codes mean.
        count: Number of samples.
    """

    folder: Path
    schema: GraphSchema
    count: int

    def __len__(self) -> int:
        """Return the number of samples."""
        return self.count

    def __iter__(self) -> Iterator[DAG]:
        """Yield the samples in order, with the conditions that were noted.

        Raises:
            DataError: If a sample is missing or damaged.
        """
        if self.folder.is_file() or is_run(self.folder):
            for sample in iter_samples(self.folder):
                yield self.schema.encode(sample.graph).with_conditions(sample.conditions)
            return
        for file in sample_files(self.folder):
            yield self.schema.encode(read_graph(file.path)).with_conditions(file.conditions)


def stream_samples(folder: str | Path, schema: GraphSchema) -> SampleStream:
    """Return what ``layerdag sample`` wrote as a stream.

    Args:
        folder: Of samples, a file or folder each or in parts; or one part.
        schema: What the codes are to mean.

    Raises:
        DataError: If the manifest is missing or damaged, or there is no whole part.
    """
    folder = Path(folder)
    if folder.is_file():
        count = sum(1 for _ in iter_samples(folder))
    elif is_run(folder):
        count = sum(len(part.samples) for part in SampleRun.read(folder).parts_at(folder))
    else:
        count = len(sample_files(folder))
    return SampleStream(folder, schema, count)


def read_samples(folder: str | Path, schema: GraphSchema) -> tuple[DAG, ...]:
    """Read what ``layerdag sample`` wrote, with the conditions that it noted.

    Args:
        folder: Of samples, a file or folder each or in parts; or one part.
        schema: What the codes are to mean.

    Raises:
        DataError: If the manifest or a sample is missing or damaged.
    """
    return tuple(SampleStream(Path(folder), schema, 0))


def labeled(
    dags: Sequence[DAG], schema: GraphSchema, target: str, hidden: Sequence[str]
) -> Labeled:
    """Return graphs with the condition ``target`` as their number, some attributes hidden.

    Raises:
        DataError: If no graph carries the target.
        UsageError: If a hidden attribute is not in the schema.
    """
    known: list[Condition | None] = [dag.conditions.get(target) for dag in dags]
    kept = [
        (dag, float(y)) for dag, y in zip(dags, known, strict=True) if isinstance(y, int | float)
    ]
    if not kept:
        raise unlabeled(target)
    shown = hide([dag for dag, _ in kept], schema, hidden)
    return Labeled(tuple(shown), np.array([y for _, y in kept]))


def unlabeled(target: str) -> DataError:
    """Return the error that no graph has a target."""
    return DataError(
        f"No graph has a number '{target}'; name another condition with --target, or a label file "
        "with --labels."
    )


def targets(dags: Sequence[DAG], target: str) -> np.ndarray:
    """Return the condition ``target`` of each graph, float64 (B,); NaN where it is no number."""
    values = [dag.conditions.get(target) for dag in dags]
    return np.array([y if isinstance(y, int | float) else np.nan for y in values], dtype=float)


def hide(dags: Sequence[DAG], schema: GraphSchema, hidden: Sequence[str]) -> list[DAG]:
    """Return the graphs with the named attributes set to code 0 everywhere.

    A surrogate of the step time must not see measured durations: their sum nearly is the target.

    Raises:
        UsageError: If an attribute is not in the schema.
    """
    names = [attribute.name for attribute in schema.attributes]
    for name in hidden:
        if name not in names:
            raise UsageError(
                f"There is no attribute '{name}' to exclude; known: {', '.join(names)}."
            )
    columns = [names.index(name) for name in hidden]
    result = []
    for dag in dags:
        x_NA, u_NA = dag.x_NA.clone(), dag.u_NA.clone()
        x_NA[:, columns] = 0
        u_NA[:, columns] = 0.0
        result.append(dag.with_columns(x_NA, u_NA))
    return result
