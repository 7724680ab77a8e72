"""Surrogates beside published ones: the benchmark's splits, the scores, the runs, the page."""

import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
from benchmark_tables import (
    base,
    predictors,
    predictors_data,
    predictors_page,
    predictors_scores,
    runs,
)
from dgrl_files import write_family
from table_records import record


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder of the families that the benchmark's split names, 30 graphs each."""
    for name in (*predictors_data.KNOWN, *predictors_data.UNKNOWN):
        (tmp_path / name).mkdir()
        write_family(tmp_path / name)
        for label in ("630gpu", "640gpu"):
            rows = [str(2.0 * (b + 1)) for b in range(30)]
            (tmp_path / name / f"label-{label}.csv.gz").write_bytes(
                gzip.compress("\n".join(rows).encode())
            )
    return tmp_path


def test_the_split_is_that_of_the_benchmark(root):
    problem = predictors_data.dgrl_split(root, 1000)
    assert len(problem.train) == 5 * 27
    sizes = {part.name: (part.kind, len(part.dags)) for part in problem.parts}
    assert sizes == {
        **dict.fromkeys(predictors_data.KNOWN, ("id", 1)),
        **dict.fromkeys(predictors_data.UNKNOWN, ("ood", 3)),
    }
    # The last graph was not measured on the CPU; the first 27 of each family are for training.
    assert {dag.conditions.get("cortex") for dag in problem.parts[0].dags} == {None}
    _, label_B = problem.known("640gpu")
    assert label_B.max() == 54.0
    assert len(predictors_data.dgrl_split(root, 4).train) == 5 * 4


def test_a_family_that_is_left_out_is_tested_and_not_learned(root):
    problem = predictors_data.without_family(root, "resnets", train=5, test=7)
    assert len(problem.train) == 7 * 5
    assert [(part.name, part.kind, len(part.dags)) for part in problem.parts] == [
        ("resnets", "ood", 7)
    ]
    every = predictors_data.every_family(root, 5, 3)
    assert len(every.train) == 8 * 5
    assert [len(part.dags) for part in every.parts] == [3] * 8


def test_amplifiers_are_drawn_as_the_benchmark_draws_them(tmp_path):
    """Stages alternate; the draw is of a list with the seed 123, three stages first."""
    count = 40
    tables = {
        "num-node-list": ["2"] * count,
        "num-edge-list": ["1"] * count,
        "edge": ["0,1"] * count,
        "node-feat": [f"{i},{i % 3},{b + i}" for b in range(count) for i in range(2)],
        "perform101": [",valid,gain,pm,bw,fom", *(f"{b},1,{b + 1},2,3,4" for b in range(count))],
    }
    for name, rows in tables.items():
        (tmp_path / f"{name}.csv.xz").write_bytes(lzma.compress("\n".join(rows).encode()))
    (tmp_path / "amp-stage.csv").write_text("\n".join("32"[b % 2] for b in range(count)))
    problem = predictors_data.amplifiers(tmp_path, None)
    three = list(range(0, count, 2))
    np.random.RandomState(123).shuffle(three)
    _, gain_B = problem.known("gain")
    assert gain_B.tolist() == [b + 1 for b in three[:18]]
    tests = {part.name: part for part in problem.parts}
    assert [dag.conditions["gain"] - 1 for dag in tests["three stages"].dags] == three[19:]
    assert len(tests["two stages"].dags) == 20
    assert {dag.conditions["bw"] for dag in problem.train} == {3.0}
    assert len(predictors_data.amplifiers(tmp_path, 5).train) == 5


def test_scores_by_hand():
    target_B = np.array([1.0, 2.0, 4.0])
    found = predictors_scores.scored(
        {
            "near": ("id", target_B, target_B * 1.04),
            "far": ("id", target_B, target_B + 2),
            "other": ("ood", target_B, target_B * 0.93),
        }
    )
    assert found["id"]["near"]["within_5"][0] == found["id"]["near"]["within_10"][0] == 1.0
    assert found["id"]["far"]["rmse"] == [2.0, 2.0, 2.0]
    assert found["id"]["far"]["r2"][0] == pytest.approx(1 - 4 / np.var(target_B), rel=1e-3)
    assert found["id"]["mean"]["within_10"][0] == 0.5
    assert found["ood"]["other"]["within_5"][0] == 0.0
    assert found["ood"]["other"]["within_10"][0] == 1.0
    assert "mean" not in found["ood"]


def test_runs_are_made_once_and_the_page_has_them(root, tmp_path, monkeypatch):
    monkeypatch.setattr(predictors, "SURROGATES", ("boosting",))
    store = runs.Store("predictors", tmp_path / "runs")
    table = predictors.Predictors(root)
    options = base.Options(only="cg-640gpu")
    made = [one.run.name for one in table.make(store, options)]
    assert made == ["cg-640gpu-boosting"]
    written = {path: path.stat().st_mtime_ns for path in store.folder.iterdir()}
    assert len(list(table.make(store, options))) == 1
    assert {path: path.stat().st_mtime_ns for path in store.folder.iterdir()} == written
    text = table.page(store.records())
    assert "|  | `boosting`, RMSE | `boosting`, within 5 % | `boosting`, within 10 % |" in text
    assert "| Adreno 640 GPU, in distribution | " in text
    assert "Cortex-A76" not in text
    assert "Not made yet: `message_passing`" in text


def test_a_page_says_what_is_published_within_a_tenth():
    scores = {"id": {"mean": {"within_10": [0.953, 0.94, 0.96]}}}
    config = {"group": "all", "label": "cortex", "task": "all"}
    made = record("predictors", "boosting", {"scores": scores}, config, learner="boosting")
    text = predictors_page.tenth_table([made])
    assert "| Cortex-A76 CPU | 95.3 [94, 96] | 60.0 | 99.0 |" in text


def test_without_data_the_table_says_what_it_needs():
    with pytest.raises(SystemExit, match="--dgrl FOLDER"):
        next(predictors.Predictors().make(None, base.Options()))
