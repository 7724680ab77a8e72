"""Batches of drawn samples on disk, so that a stopped run does not draw them again."""

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from layerdag._runtime import atomic_path
from layerdag.datasets.schema import GraphSchema
from layerdag.graph import DAG
from layerdag.sampling import GeneratedGraph


def write_batch(file: Path, batch: Sequence[GeneratedGraph]) -> None:
    """Write a batch as arrays and JSON, whole or not at all."""
    arrays: dict[str, np.ndarray] = {}
    for i, sample in enumerate(batch):
        dag = sample.dag
        parts = {"x": dag.x_NA, "u": dag.u_NA, "e": dag.edge_index_2E, "t": dag.edge_type_E}
        arrays |= {f"{name}{i}": part.numpy() for name, part in parts.items()}
        arrays |= {f"{name}:{i}": values for name, values in sample.numbers.items()}
    notes = [
        {"seed": s.seed, "truncated": bool(s.truncated), "conditions": dict(s.dag.conditions)}
        for s in batch
    ]
    arrays["notes"] = np.frombuffer(json.dumps(notes).encode(), dtype=np.uint8)
    with atomic_path(file) as draft, draft.open("wb") as stream:
        np.savez_compressed(stream, allow_pickle=False, **arrays)


def read_batch(file: Path, schema: GraphSchema) -> list[GeneratedGraph]:
    """Read a batch; raises ValueError or KeyError if the file is damaged."""
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as held:
            notes = json.loads(held["notes"].tobytes())
            return [_sample_of(held, i, note, schema) for i, note in enumerate(notes)]
    except zipfile.BadZipFile as error:
        raise ValueError(str(error)) from error


def _sample_of(
    held: Mapping[str, np.ndarray], i: int, note: Mapping[str, object], schema: GraphSchema
) -> GeneratedGraph:
    x_NA, u_NA, edges, types = (torch.from_numpy(held[f"{name}{i}"]) for name in "xuet")
    conditions = note["conditions"]
    assert isinstance(conditions, dict)
    dag = DAG.build(x_NA, edges, edge_type_E=types, u_NA=u_NA, conditions=conditions)
    seed = int(str(note["seed"]))
    known = [a.name for a in schema.attributes if f"{a.name}:{i}" in held]
    numbers = {name: held[f"{name}:{i}"] for name in known}
    return GeneratedGraph(f"drawn-{seed}", seed, dag, bool(note["truncated"]), schema, numbers)
