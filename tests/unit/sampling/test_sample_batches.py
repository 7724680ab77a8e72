"""Samples as a function from numbers to rows, and under a local Ray."""

import sys
from pathlib import Path

import numpy as np
import pytest
from sample_parts import TEN, written

from layerdag.errors import UsageError
from layerdag.samples.reader import part_samples
from layerdag.sampling.parts import SampleBatches
from layerdag.training.checkpoint import LoadedCheckpoint

pytest.importorskip("pyarrow", reason="needs pyarrow")


@pytest.fixture(scope="module")
def rows(trace: LoadedCheckpoint, tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """Return the rows of ten samples as parts hold them."""
    from pyarrow import parquet

    out = written(trace, tmp_path_factory.mktemp("parts") / "s", "parquet", part_size=10)
    return parquet.read_table(out / "part-000000.parquet").to_pylist()


def row_of(mapped, number: int) -> dict:
    return mapped({"id": np.array([number])}).to_pylist()[0]


def test_rows_are_those_of_a_table_of_parts_in_the_order_asked_for(trace, rows):
    mapped = SampleBatches(trace.path, TEN)
    numbers = [3, 4, 9, 0, 3]
    table = mapped({"id": np.array(numbers)})
    # Text compares NaN as equal.
    assert str(table.to_pylist()) == str([rows[number] for number in numbers])
    assert str(row_of(mapped, 5)) == str(rows[5])


def test_no_number_makes_a_table_of_no_row(trace):
    table = SampleBatches(trace.path, TEN)({"id": np.zeros(0, np.int64)})
    assert table.num_rows == 0
    assert table.schema.names[:2] == ["name", "seed"]


def test_graphs_that_are_no_jobs_have_no_ranks(flow):
    row = row_of(SampleBatches(flow.path, TEN), 2)
    assert (row["name"], row["seed"], row["ranks"]) == ("sample-00002", 9, None)


@pytest.mark.parametrize(
    ("batch", "said"),
    [({}, "needs the column 'id'"), ({"x": [1]}, "found x"), ({"id": [2, -1]}, "found -1")],
)
def test_other_batches_are_one_sentence(trace, batch, said):
    mapped = SampleBatches(trace.path, TEN)
    with pytest.raises(UsageError, match=said):
        mapped({name: np.array(values) for name, values in batch.items()})


def test_without_pyarrow_the_extra_is_named(trace, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match="needs the package pyarrow"):
        SampleBatches(trace.path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_local_ray_writes_the_same_rows(trace, rows, tmp_path):
    ray = pytest.importorskip("ray", reason="needs Ray: pip install 'layerdag[ray]'")
    pytest.importorskip("ray.data", reason="needs Ray Data: pip install 'layerdag[ray]'")
    helpers = str(Path(__file__).parents[3] / "helpers")
    ray.init(
        address="local", num_cpus=2, include_dashboard=False, log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": helpers}},
    )  # fmt: skip
    try:
        made = ray.data.range(10).map_batches(
            SampleBatches,
            fn_constructor_kwargs={"checkpoint": str(trace.path), "settings": TEN},
            batch_size=4,
            concurrency=1,
        )
        made.write_parquet(str(tmp_path / "table"))
    finally:
        ray.shutdown()
    samples = [s for file in (tmp_path / "table").glob("*.parquet") for s in part_samples(file)]
    assert sorted(sample.seed for sample in samples) == [row["seed"] for row in rows]
    for sample in samples:
        row = rows[sample.seed - TEN.seed]
        assert sample.name == row["name"]
        assert sample.graph.categories["op"] == [node["op"] for node in row["nodes"]]
        assert sample.workload().num_ranks == row["ranks"]
