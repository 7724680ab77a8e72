"""A corpus as a folder that data=folder reads."""

import csv
import json
from pathlib import Path

import pytest
from small_spaces import small_space

from layerdag.datasets import load_dataset
from layerdag.datasets.files import read_json
from layerdag.errors import UsageError
from layerdag.workloads.corpus import write_corpus


def _bytes(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.*")}


def test_a_corpus_is_read_as_a_data_set_with_its_parts(tmp_path: Path) -> None:
    made = write_corpus(tmp_path / "llm", 20, space=small_space())
    assert made["parts"] == {"train": 16, "val": 2, "test": 2}
    rows = [*csv.DictReader((tmp_path / "llm" / "labels.csv").read_text().splitlines())]
    assert rows[0].keys() == {"name", "split", "label"}
    assert json.loads((tmp_path / "llm" / "corpus.json").read_text())["seed"] == 0
    data = load_dataset(tmp_path / "llm")
    assert not data.renamed
    sizes = [len(data.graphs[part]) for part in ("train", "val", "test")]
    assert sum(sizes) + len(data.left_out) == 20
    assert sizes[0] == 16
    assert data.schema.kind == "trace"
    assert data.schema.rolls_blocks
    words = {c.name: c.values for c in data.schema.category_conditions}
    assert set(words) >= {"family", "tensor", "pipeline", "data", "zero", "world_size"}
    numbers = {c.name for c in data.schema.numeric_conditions}
    assert numbers >= {"layers", "hidden", "sequence", "batch", "repeats", "label"}
    label = {row["name"]: float(row["label"]) for row in rows}
    for name, dag in zip(data.names["train"], data.graphs["train"], strict=True):
        assert dag.conditions["label"] == label[name]


def test_the_same_seed_gives_the_same_bytes_and_more_points_begin_with_the_fewer(
    tmp_path: Path,
) -> None:
    for name, num in (("a", 5), ("b", 5), ("c", 6)):
        write_corpus(tmp_path / name, num, 3, space=small_space())
    assert _bytes(tmp_path / "a") == _bytes(tmp_path / "b")
    more = _bytes(tmp_path / "c")
    assert all(more[k] == v for k, v in _bytes(tmp_path / "a").items() if k.endswith(".gz"))


def test_points_of_the_test_part_alone_have_the_layers_of_that_part(tmp_path: Path) -> None:
    folder = tmp_path / "deeper"
    write_corpus(folder, 10, space=small_space(test_layers=32))
    rows = [*csv.DictReader((folder / "labels.csv").read_text().splitlines())]
    layers = [read_json(folder / f"{row['name']}.json.gz").conditions["layers"] for row in rows]
    deep = [number == 32 for number in layers]
    assert deep == [row["split"] == "test" for row in rows]
    assert sum(deep) == 1


def test_only_a_corpus_is_replaced_and_only_if_that_is_wanted(tmp_path: Path) -> None:
    space = small_space()
    write_corpus(tmp_path / "llm", 1, space=space)
    with pytest.raises(UsageError, match="holds a corpus of training steps already"):
        write_corpus(tmp_path / "llm", 1, space=space)
    write_corpus(tmp_path / "llm", 2, space=space, overwrite=True)
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match=r"thesis\.tex"):
        write_corpus(other, 1, space=space, overwrite=True)
    (tmp_path / "llm" / "corpus.json").write_text("{}")
    with pytest.raises(UsageError, match="not of a corpus"):
        write_corpus(tmp_path / "llm", 1, space=space, overwrite=True)
