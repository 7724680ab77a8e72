"""Batches of drawn samples on disk: they come back, whole or not at all."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from raw_graphs import chain

from layerdag.api.publication.drawing._batches import read_batch, write_batch
from layerdag.datasets import GraphDataset
from layerdag.sampling import GeneratedGraph

DATA = GraphDataset.build(
    "toy", "flow", {"train": [chain(f"g{i}", "abab"[: 2 + i], label=float(i)) for i in range(3)]}
)


def samples() -> list[GeneratedGraph]:
    return [
        GeneratedGraph(f"drawn-{40 + i}", 40 + i, dag, i == 1, DATA.schema)
        for i, dag in enumerate(DATA.graphs["train"])
    ]


def back(path: Path, batch: Sequence[GeneratedGraph]) -> list[GeneratedGraph]:
    write_batch(path, batch)
    return read_batch(path, DATA.schema)


def test_samples_come_back_with_seed_name_conditions_and_codes(tmp_path: Path) -> None:
    for one, again in zip(samples(), back(tmp_path / "b.npz", samples()), strict=True):
        assert (again.seed, again.name, again.truncated) == (one.seed, one.name, one.truncated)
        assert again.dag.conditions == one.dag.conditions
        assert torch.equal(again.dag.x_NA, one.dag.x_NA)
        assert torch.equal(again.dag.edge_type_E, one.dag.edge_type_E)
        assert torch.equal(again.dag.layer_N, one.dag.layer_N)
        assert again.schema is DATA.schema


def test_names_are_those_of_the_seeds_whatever_they_were(tmp_path: Path) -> None:
    named = [replace(sample, name="another") for sample in samples()]
    assert [s.name for s in back(tmp_path / "b.npz", named)] == ["drawn-40", "drawn-41", "drawn-42"]


def test_numbers_come_back_for_the_samples_that_have_them(tmp_path: Path) -> None:
    first, *others = samples()
    own = replace(first, numbers={"kind": np.array([1.5, np.nan])})
    found = back(tmp_path / "b.npz", [own, *others])
    np.testing.assert_array_equal(found[0].numbers["kind"], [1.5, np.nan])
    assert [dict(sample.numbers) for sample in found[1:]] == [{}, {}]


def test_an_empty_batch_is_a_batch(tmp_path: Path) -> None:
    assert back(tmp_path / "b.npz", []) == []


def test_a_batch_takes_the_place_of_an_older_one_and_leaves_no_draft(tmp_path: Path) -> None:
    back(tmp_path / "b.npz", samples())
    assert len(back(tmp_path / "b.npz", samples()[:1])) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["b.npz"]


@pytest.mark.parametrize("keep", [0, 10, 0.5, 0.99])
def test_a_file_that_was_cut_off_is_noticed(tmp_path: Path, keep: float) -> None:
    path = tmp_path / "b.npz"
    write_batch(path, samples())
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data)) if keep < 1 else int(keep)])
    with pytest.raises((ValueError, KeyError, OSError, EOFError)):
        read_batch(path, DATA.schema)


@pytest.mark.parametrize("missing", ["notes", "x0", "e2"])
def test_an_array_that_is_missing_is_noticed(tmp_path: Path, missing: str) -> None:
    path = tmp_path / "b.npz"
    write_batch(path, samples())
    with np.load(path) as held:
        arrays = {name: held[name] for name in held.files if name != missing}
    np.savez_compressed(path, **arrays)
    with pytest.raises(KeyError, match=missing):
        read_batch(path, DATA.schema)


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "b.npz"
    np.savez(path, notes=np.array([{"seed": 1}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        read_batch(path, DATA.schema)


def test_notes_are_plain_json(tmp_path: Path) -> None:
    write_batch(tmp_path / "b.npz", samples())
    with np.load(tmp_path / "b.npz") as held:
        notes = json.loads(held["notes"].tobytes())
    assert notes[1] == {"seed": 41, "truncated": True, "conditions": {"label": 1.0}}
