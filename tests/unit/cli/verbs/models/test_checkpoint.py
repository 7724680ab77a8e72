"""``layerdag checkpoint upgrade``, ``neighbors`` and ``costs``."""

from dataclasses import replace
from pathlib import Path

import pytest
from costed_jobs import costed_jobs
from raw_graphs import chain
from tiny_checkpoints import chain_checkpoint, costed_checkpoint

from layerdag import sampling, training
from layerdag.cli import main
from layerdag.cli.settings import RealData
from layerdag.datasets import GraphDataset
from layerdag.training import LoadedCheckpoint, load_checkpoint
from layerdag.training._checkpoint import CheckpointContents


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedCheckpoint:
    """Return a checkpoint that is read as one of format 2; what conversion does is tested there."""
    loaded = chain_checkpoint(tmp_path)
    config = {"data": {"name": "folder", "folder": "/home/me/secret"}, "seed": 3}
    read = replace(loaded, run_config=config)
    monkeypatch.setattr(sampling, "read_old_checkpoint", lambda path: read, raising=False)

    def upgraded(old: LoadedCheckpoint, config: dict, data: object) -> CheckpointContents:
        assert data is None
        return CheckpointContents(
            old.spec, old.model.state_dict(), dict(old.schema), config, old.meta
        )

    monkeypatch.setattr(sampling, "upgraded", upgraded, raising=False)
    return read


def test_the_new_checkpoint_loads_and_names_no_path(
    old: LoadedCheckpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["checkpoint", "upgrade", "old", str(tmp_path / "new")]) == 0
    told = capsys.readouterr().out
    assert f"{tmp_path / 'new'}: format 4, weights unchanged" in told
    assert "with --data, what fewer than 5 graphs show is left out, too" in told
    assert load_checkpoint(tmp_path / "new").run_config == {"data": {"name": "folder"}, "seed": 3}


def test_a_checkpoint_that_stands_there_is_replaced_only_when_told(
    old: LoadedCheckpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["checkpoint", "upgrade", "old", str(tmp_path / "new")]
    assert main(words) == 0
    assert main(words) == 2
    assert "new" in capsys.readouterr().err
    assert main([*words, "--overwrite"]) == 0


def test_a_folder_without_a_checkpoint_is_told(tmp_path: Path, capsys) -> None:
    assert main(["checkpoint", "upgrade", str(tmp_path), str(tmp_path / "new")]) == 1
    assert str(tmp_path) in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_neighbors_of_the_training_graphs_are_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chain_checkpoint(tmp_path)
    graphs = [chain(f"g{i}", "abcab"[: 2 + i % 4], label=1.0 + i) for i in range(8)]
    data = GraphDataset.build("chains", "flow", {"train": graphs})
    monkeypatch.setattr(RealData, "beside_weights", lambda self, checkpoint: data)
    words = ["checkpoint", "neighbors", str(tmp_path / "model"), str(tmp_path / "new")]
    assert main([*words, "--data", "given"]) == 0
    # Parents: none of a, a of b, b of c. Children: b of a, c of b. Fewer graphs show the rest.
    assert "weights unchanged; 3 sets of parents and 2 of children" in capsys.readouterr().out
    assert load_checkpoint(tmp_path / "new").model.neighbors.any_listed
    assert not load_checkpoint(tmp_path / "model").model.neighbors.any_listed


def test_neighbors_need_the_data(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["checkpoint", "neighbors", str(tmp_path), str(tmp_path / "new")])


def test_costs_of_the_training_jobs_are_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = costed_checkpoint(tmp_path)
    bare = {name: part for name, part in before.schema.items() if name != "costs"}
    jobs = costed_jobs([8, 16] * 10)
    data = GraphDataset.build("jobs", "trace", {"train": jobs}, num_bins=2)
    monkeypatch.setattr(RealData, "beside_weights", lambda self, checkpoint: data)
    monkeypatch.setattr(training, "load_checkpoint", lambda path: replace(before, schema=bare))
    words = ["checkpoint", "costs", "old", str(tmp_path / "new"), "--data", "given"]
    assert main(words) == 0
    # Four operators on two widths; of the four kinds of dependencies, two change by the width.
    assert "weights unchanged; 8 costs of operators and 6 changes" in capsys.readouterr().out
    monkeypatch.undo()
    assert load_checkpoint(tmp_path / "new").schema == before.schema
