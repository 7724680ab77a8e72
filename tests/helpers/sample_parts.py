"""Small samples in parts, made by untrained models."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import torch

from layerdag.dag.dag import DAG
from layerdag.sampling.parts import PartSettings, write_parts
from layerdag.sampling.settings import GenerationSettings
from layerdag.training.checkpoint import LoadedCheckpoint

TEN = GenerationSettings(num=10, seed=7, best_of=1, max_nodes=8, batch_size=4)


def written(
    checkpoint: LoadedCheckpoint,
    out: Path,
    file_format: str = "tar",
    settings: GenerationSettings = TEN,
    **parts,
) -> Path:
    """Write samples in parts of four and return their folder."""
    how = PartSettings(**{"file_format": file_format, "part_size": 4, **parts})
    write_parts(checkpoint, settings, out, how)
    return out


def contents(folder: Path) -> dict[str, str]:
    """Return a hash of every file below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(f.relative_to(folder)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def stopping_after(count: int, stop: BaseException) -> Callable[[], None]:
    """Return a callback that raises on its ``count``-th call."""
    calls: list[int] = []

    def on_each() -> None:
        calls.append(0)
        if len(calls) == count:
            raise stop

    return on_each


def path_of(nodes: int) -> DAG:
    """Return a path of nodes of one kind."""
    edges_2E = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
    return DAG.build(torch.zeros((nodes, 1), dtype=torch.int64), edges_2E)
