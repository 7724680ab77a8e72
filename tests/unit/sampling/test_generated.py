from pathlib import Path

import numpy as np
import pytest
from tiny_checkpoints import chain_checkpoint, costed_checkpoint, job_checkpoint

from layerdag.errors import DataError, UsageError
from layerdag.sampling import pretrained_checkpoint, sample


def test_samples_come_into_memory_in_every_form(tmp_path: Path) -> None:
    first, second = sample(job_checkpoint(tmp_path), num=2, seed=3, max_nodes=10)
    assert (first.name, first.seed, second.seed) == ("sample-00000", 3, 4)
    assert first.graph.num_nodes == first.dag.num_nodes
    assert first.graph is first.graph
    assert first.workload().num_ranks >= 1
    assert first.workload(ranks=4).num_ranks >= 4
    shown = repr(first)
    assert shown.startswith(
        f"GeneratedGraph('sample-00000', seed=3, DAG(nodes={first.dag.num_nodes}"
    )
    assert "tensor" not in shown


def test_a_sample_depends_on_its_seed_alone_and_on_no_file(tmp_path: Path) -> None:
    checkpoint = chain_checkpoint(tmp_path)
    (alone,) = sample(checkpoint, num=1, seed=5, conditions={"label": 2.0}, max_nodes=8)
    many = sample(
        tmp_path / "model", num=3, seed=4, conditions={"label": 2.0}, batch_size=2, max_nodes=8
    )
    assert many[1].dag.x_NA.tolist() == alone.dag.x_NA.tolist()
    assert alone.dag.conditions["label"] == 2.0
    with pytest.raises(DataError):
        alone.workload()


def test_numbers_of_a_job_are_those_of_its_files_and_of_its_seed_alone(tmp_path: Path) -> None:
    checkpoint = costed_checkpoint(tmp_path)
    (alone,) = sample(checkpoint, num=1, seed=5, max_nodes=20)
    many = sample(checkpoint, num=2, seed=4, max_nodes=20)
    for name, value_N in alone.numbers.items():
        np.testing.assert_array_equal(value_N, alone.graph.numbers[name])
        np.testing.assert_array_equal(value_N, many[1].numbers[name])
    assert {"flops", "bytes", "comm_bytes"} <= set(alone.numbers)
    moved_N = alone.graph.numbers["bytes"]
    assert not (moved_N[np.isfinite(moved_N)] % 4).any()


def test_settings_out_of_bounds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'num' must be at least 1"):
        sample(chain_checkpoint(tmp_path), num=0)


def test_the_package_holds_a_checkpoint() -> None:
    assert (pretrained_checkpoint() / "weights.safetensors").is_file()
