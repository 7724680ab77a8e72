"""A corpus as a folder that ``data=folder`` reads: a graph a point, its label and its part."""

import csv
import gzip
import io
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from layerdag._runtime import FolderKind, atomic_folder, strangers, track
from layerdag._version import __version__
from layerdag.codec import AttributedGraph
from layerdag.datasets.files import encode_json
from layerdag.datasets.schema import LABEL
from layerdag.workloads.corpus._graph import has_its_layers, labelled, point_graph
from layerdag.workloads.corpus._points import CorpusPoint, draw_points
from layerdag.workloads.corpus._space import CorpusSpace, Machine

MANIFEST, LABELS, GRAPHS = "corpus.json", "labels.csv", "graphs"
_FORMAT = "layerdag-llm-corpus"


def write_corpus(
    out: str | Path, num: int, seed: int = 0, *, space: CorpusSpace | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Write ``num`` points as labelled graphs, and return what the manifest says.

    ``graphs/point-00000.json.gz`` and so on are graphs of whole jobs with their conditions,
    ``labels.csv`` has the part of each (eight of ten train, then val, then test) and the simulated
    time of a step in seconds. No point is in two parts. About a second for each point.

    Args:
        out: The folder.
        num: How many points.
        seed: The same seed, number and space give the same bytes.
        space: What is drawn from.
        overwrite: Whether a corpus there may be replaced.

    Raises:
        UsageError: If the space has too few points, or ``out`` holds something else.
        ConfigError: If a model of the space is unknown.
    """
    space = space or CorpusSpace()
    rows: list[dict[str, object]] = []
    labels: list[float] = []
    with atomic_folder(out, CORPUS, overwrite=overwrite) as draft:
        (draft / GRAPHS).mkdir()
        for i, graph in enumerate(track(_graphs(space, num, seed), "points", num)):
            data = gzip.compress(encode_json(graph), mtime=0)
            (draft / GRAPHS / f"{graph.name}.json.gz").write_bytes(data)
            labels.append(float(graph.conditions[LABEL]))
            name = f"{GRAPHS}/{graph.name}"
            rows.append({"name": name, "split": _part(i), LABEL: labels[-1]})
        manifest = {
            "format": _FORMAT, "layerdag": __version__, "num": num, "seed": seed,
            "parts": dict(Counter(str(row["split"]) for row in rows)),
            "label_s": {"least": min(labels), "most": max(labels)}, "space": asdict(space),
        }  # fmt: skip
        (draft / LABELS).write_text(_csv(rows))
        (draft / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


def _graphs(space: CorpusSpace, num: int, seed: int) -> Iterator[AttributedGraph]:
    """Yield labelled graphs of points whose layers roll up, in the order of their drawing."""
    points = draw_points(space, seed)
    test_points = points
    if space.test_layers:
        deeper = replace(space, layers=space.test_layers, test_layers=())
        test_points = draw_points(deeper, seed, "test points of a corpus")
    for i in range(num):
        yield _next_graph(test_points if _part(i) == "test" else points, i, space.machine)


def _next_graph(points: Iterator[CorpusPoint], index: int, machine: Machine) -> AttributedGraph:
    """Return the labelled graph of the next point whose layers roll up."""
    for point in points:
        graph = point_graph(point, f"point-{index:05d}")
        if has_its_layers(graph, point):
            return labelled(graph, point, machine)
    raise AssertionError("draw_points ends by an error")


def _part(index: int) -> str:
    return {8: "val", 9: "test"}.get(index % 10, "train")


def _csv(rows: list[dict[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, ["name", "split", LABEL], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _doubt_corpus(folder: Path) -> str:
    """Return why a folder is not provably a corpus that ``write_corpus`` wrote, or ""."""
    strange = strangers(folder, (MANIFEST, LABELS, GRAPHS).__contains__)
    if strange:
        return strange
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError, RecursionError):
        return f"has no readable {MANIFEST}"
    proved = isinstance(manifest, dict) and manifest.get("format") == _FORMAT
    return "" if proved else f"has a {MANIFEST} that is not of a corpus"


CORPUS = FolderKind("a corpus of training steps", _doubt_corpus)
