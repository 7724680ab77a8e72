"""What a training run shows of its model at each validation."""

from pathlib import Path

import pytest
from raw_graphs import chain
from tiny_checkpoints import chain_checkpoint

from layerdag.cli.output import Watch
from layerdag.datasets import GraphDataset
from layerdag.models import SampleRequest, SampleResult

GRAPHS = [chain(f"g{i}", "abcab"[: 2 + i % 4], label=1.0 + i) for i in range(8)]


def test_a_look_at_the_model_changes_neither_its_mode_nor_what_it_shows_next(
    tmp_path: Path,
) -> None:
    model = chain_checkpoint(tmp_path).model
    data = GraphDataset.build("chains", "flow", {"train": GRAPHS})
    watch = Watch(data, tmp_path / "pictures", 1)
    model.train()
    first, again = watch(model, 3), watch(model, 4)
    assert model.training
    assert first.pictures["samples"] == tmp_path / "pictures" / "samples-000003.png"
    assert first.pictures["samples"].read_bytes().startswith(b"\x89PNG")
    timed = "samples/graphs_per_s"
    assert set(first.values) == {
        "samples/valid_share", timed, "samples/mean_nodes", "samples/truncated_share",
    }  # fmt: skip
    # Seeds are fixed, so the same weights show the same graphs; only the speed differs.
    assert {k: v for k, v in first.values.items() if k != timed} == {
        k: v for k, v in again.values.items() if k != timed
    }
    assert first.values[timed] > 0
    assert 0 <= first.values["samples/valid_share"] <= 1


def test_a_model_that_never_ends_a_graph_is_stopped_at_twice_the_largest_training_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = GraphDataset.build("chains", "flow", {"train": GRAPHS})
    largest = max(dag.num_nodes for dag in data.graphs["train"])

    model = chain_checkpoint(tmp_path).model
    draw = model.sample
    limits = []

    def observed(request: SampleRequest) -> SampleResult:
        limits.append(request.max_nodes)
        return draw(request)

    monkeypatch.setattr(model, "sample", observed)
    Watch(data, tmp_path / "pictures", 1)(model, 0)
    assert limits == [2 * largest]
