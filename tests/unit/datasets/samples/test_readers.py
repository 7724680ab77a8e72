"""What reads folders of samples reads samples in parts, too."""

import importlib.util
from pathlib import Path

import pytest
import torch
from sample_parts import TEN, written
from tiny_checkpoints import chain_checkpoint, job_checkpoint

from layerdag.datasets import load_dataset
from layerdag.errors import DataError
from layerdag.sampling import checkpoint_schema, write_samples
from layerdag.surrogates import read_manifest, read_samples
from layerdag.training import LoadedCheckpoint

FORMATS = ["tar", "parquet"] if importlib.util.find_spec("pyarrow") else ["tar"]


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> LoadedCheckpoint:
    return chain_checkpoint(tmp_path_factory.mktemp("flow"))


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> LoadedCheckpoint:
    return job_checkpoint(tmp_path_factory.mktemp("trace"))


@pytest.mark.parametrize("kind", ["flow", "trace"])
@pytest.mark.parametrize("file_format", FORMATS)
def test_a_data_set_is_that_of_a_folder_of_each(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, file_format: str
) -> None:
    checkpoint = request.getfixturevalue(kind)
    write_samples(checkpoint, TEN, tmp_path / "each")
    parts = written(checkpoint, tmp_path / "parts", file_format)
    one, other = load_dataset(tmp_path / "each"), load_dataset(parts)
    assert one.schema.sizes().attributes == other.schema.sizes().attributes
    assert {k: len(v) for k, v in one.graphs.items()} == {
        k: len(v) for k, v in other.graphs.items()
    }
    if file_format == "tar":
        assert one.fingerprint == other.fingerprint


@pytest.mark.parametrize("file_format", FORMATS)
def test_samples_for_surrogates_have_the_conditions_that_were_noted(
    flow: LoadedCheckpoint, tmp_path: Path, file_format: str
) -> None:
    schema = checkpoint_schema(flow)
    write_samples(flow, TEN, tmp_path / "each")
    parts = written(flow, tmp_path / "parts", file_format)
    found = zip(read_samples(tmp_path / "each", schema), read_samples(parts, schema), strict=True)
    for one, other in found:
        assert torch.equal(one.x_NA, other.x_NA)
        assert torch.equal(one.edge_index_2E, other.edge_index_2E)
        assert one.conditions == other.conditions


def test_the_manifest_of_parts_is_what_they_share(flow: LoadedCheckpoint, tmp_path: Path) -> None:
    write_samples(flow, TEN, tmp_path / "each")
    each = read_manifest(tmp_path / "each")
    shared = read_manifest(written(flow, tmp_path / "parts"))
    names = ("checkpoint_sha256", "split", "data", "model", "best_of", "temperature")
    assert {n: shared[n] for n in names} == {n: each[n] for n in names}


def test_a_damaged_part_stops_the_reader(flow: LoadedCheckpoint, tmp_path: Path) -> None:
    parts = written(flow, tmp_path / "parts")
    content = (parts / "part-000000.tar").read_bytes()
    (parts / "part-000000.tar").write_bytes(content[:-1] + b"x")
    with pytest.raises(DataError, match="has another checksum"):
        load_dataset(parts)
