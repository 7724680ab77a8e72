"""What a surrogate is given to learn from."""

import dataclasses

import pytest
from random_jobs import random_job

from layerdag.api.stages import _transfer
from layerdag.datasets import GraphDataset
from layerdag.graph import DAG
from layerdag.sampling import GeneratedGraph
from layerdag.surrogates import Labeled, TransferReport


@pytest.fixture(scope="module")
def data() -> GraphDataset:
    jobs = [random_job(seed, 2, layers=4) for seed in range(6)]
    return GraphDataset.build("jobs", "trace", {"train": jobs[:4], "test": jobs[4:]}, num_bins=2)


def test_surrogates_see_no_duration(data: GraphDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Labeled] = []
    nothing = TransferReport((), (), 0, ())

    def called(*parts: object, **_: object) -> TransferReport:
        seen.extend(parts[:3])
        return nothing

    monkeypatch.setattr(_transfer, "transfer", called)
    labeled = {
        split: tuple(_with_label(dag, float(i)) for i, dag in enumerate(dags))
        for split, dags in data.graphs.items()
    }
    with_labels = GraphDataset("jobs", data.schema, labeled, data.names)
    samples = [GeneratedGraph("s", 0, _with_label(data.graphs["test"][0], 7.0), False, data.schema)]
    _transfer.transferred(with_labels, samples)
    column = [a.name for a in data.schema.attributes].index("duration")
    real, synthetic, test = seen
    assert [part.target_B.tolist() for part in seen] == [[0, 1, 2, 3], [7], [0, 1]]
    for part in (real, synthetic, test):
        assert all((dag.x_NA[:, column] == 0).all() for dag in part.dags)
    # Only that column is hidden, and the data set itself keeps it.
    assert (data.graphs["train"][0].x_NA[:, column] != 0).any()
    kept = [i for i in range(len(data.schema.attributes)) if i != column]
    assert (real.dags[0].x_NA[:, kept] == data.graphs["train"][0].x_NA[:, kept]).all()


def _with_label(dag: DAG, label: float) -> DAG:
    return dataclasses.replace(dag, conditions={**dag.conditions, "label": label})
