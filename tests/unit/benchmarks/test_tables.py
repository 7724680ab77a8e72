"""Tables of the literature: figures worked out by hand, runs made once, pages from files."""

import json

import numpy as np
import pytest
import torch
from benchmark_tables import (
    base,
    er_dag,
    figures,
    label_quintile,
    page,
    parts,
    quintile,
    runs,
    scheduling,
    tables,
)
from documentation import ROOT
from table_records import chain

from layerdag.dag.dag import DAG

RESULTS = ROOT / "benchmarks" / "results"
PAGES = ROOT / "docs" / "results"


def test_a_share_has_wilsons_interval():
    low, high = figures.wilson(95, 100)
    assert (low, high) == pytest.approx((0.8882, 0.9785), abs=1e-4)
    assert figures.wilson(0, 0) == (0.0, 1.0)
    assert figures.wilson(5, 5)[1] == 1.0


def test_what_is_valid_unique_and_novel_is_counted_once():
    samples = [chain(3), chain(3), chain(2), chain(5), None]
    found = figures.validity([chain(2)], samples, lambda dag: dag.num_nodes < 5)
    assert found["samples"] == 5
    assert (found["valid"], found["unique"], found["novel"]) == (0.6, 0.6, 0.6)
    assert found["vun"] == 0.2  # the first path of three nodes alone


def test_distances_are_zero_for_the_same_graphs_and_layer_sizes_are_histograms():
    real = [chain(n) for n in (3, 4, 5)]
    assert set(figures.distances(real, real).values()) == {0.0}
    longer = figures.distances(real, [chain(n) for n in (5, 6, 7)])
    assert (longer["layers"], longer["nodes"], longer["edges"]) == (2, 2, 2)
    wide = DAG.build(torch.zeros(3, 1, dtype=torch.int64), torch.tensor([[0, 0], [1, 2]]))
    assert figures.layer_size_mmd([chain(3), chain(4)], [chain(9)]) == pytest.approx(0, abs=1e-9)
    assert figures.layer_size_mmd([chain(3), chain(4)], [wide]) > 0.1


def test_a_run_is_made_once_and_again_if_it_is_another(tmp_path):
    store, made = runs.Store("a", tmp_path), []

    def compute(run: runs.Run) -> dict[str, object]:
        made.append(run.config["width"])
        return {"figure": 1.5}

    for width in (1, 1, 2):
        store.made(runs.Run("one", "fast", 0, {"width": width, "nested": {"a": (1, 2)}}), compute)
    assert made == [1, 2]
    (record,) = store.records()
    assert record.figures == {"figure": 1.5}
    assert record.hardware["threads"] >= 1
    assert record.seconds >= 0


def test_the_trial_with_the_best_share_is_chosen():
    def record(trial: int, vun: float) -> runs.Record:
        run = runs.Run(f"t{trial}", "fast", 0, {"trial": trial})
        return runs.Record("a", run, {"vun": vun}, 0, 0)

    assert base.best_trial([record(0, 0.3), record(1, 0.5), record(2, 0.4)]) == 1
    assert base.best_trial([]) == 0


def test_random_dags_are_as_dense_as_they_should_be():
    data = er_dag.load(20)
    dags = data.graphs["train"]
    assert all(20 <= dag.num_nodes <= 79 for dag in dags)
    density = [2 * dag.num_edges / dag.num_nodes / (dag.num_nodes - 1) for dag in dags]
    assert np.mean(density) == pytest.approx(0.6, abs=0.02)
    assert np.mean([er_dag.is_valid(dag) for dag in dags]) > 0.9


def test_a_sparse_or_single_graph_is_no_dense_random_dag():
    assert not er_dag.is_valid(chain(30))
    assert not er_dag.is_valid(chain(1))


@pytest.mark.parametrize("which", list(quintile.BOUNDS))
def test_the_quintile_is_seen_by_no_training_and_no_validation(which):
    data = scheduling.scheduled(40)
    found = quintile.cut(data, which=which)
    kept = [*found.data.graphs["train"], *found.data.graphs["val"]]
    outside, inside = parts.labels_of(kept), parts.labels_of(found.held_out)
    assert not ((outside >= inside.min()) & (outside <= inside.max())).any()
    assert len(kept) + len(found.held_out) == sum(map(len, data.graphs.values()))
    assert (outside.max() > inside.max()) == (which == "fourth")
    assert abs(len(found.halves[0]) - len(found.halves[1])) <= 1
    scale = next(c for c in found.data.schema.numeric_conditions if c.name == "label")
    assert scale.quantiles[-1] <= outside.max()


def test_what_was_asked_for_one_half_predicts_the_other():
    """Labels of the wrong half teach nothing here: each half has its own constant."""
    found = quintile.cut(scheduling.scheduled(60))
    taught = [(half, parts.labels_of(half)) for half in found.halves]
    right = label_quintile.crossed(found, taught, 0)
    assert right["graphs"] == len(found.held_out)
    constant = [(half, np.full(len(half), 1.0 + i)) for i, half in enumerate(found.halves)]
    predicted = np.concatenate([np.full(len(half), 2.0 - i) for i, half in enumerate(found.halves)])
    assert label_quintile.crossed(found, constant, 0) == label_quintile.scored(
        found, predicted, len(found.held_out)
    )


def test_a_line_through_logarithms_goes_on_beyond_its_graphs():
    short = [chain(n).with_conditions({"label": 3.0 * n}) for n in range(3, 12)]
    teacher = quintile.LinearTeacher(short, kinds=2, ridge=1e-6)
    assert teacher.predict([chain(30)])[0] == pytest.approx(90, rel=0.15)


def test_sizes_that_are_asked_for_follow_from_the_label():
    found = quintile.cut(scheduling.scheduled(40))
    rows = label_quintile.requests(found, sizes=True)
    assert len(rows) == label_quintile.COPIES * len(found.halves[0])
    largest = max(dag.num_nodes for dag in found.data.graphs["train"])
    assert max(row["num_nodes"] for row in rows) > 0.8 * largest
    assert set(label_quintile.requests(found, sizes=False)[0]) == {"label"}


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in PAGES.glob("*.md") if path.stem != "index")
)
def test_the_page_is_what_the_files_give(name):
    records = runs.Store(name, RESULTS).records()
    assert records
    written = (PAGES / f"{name}.md").read_text()
    made = tables.table_named(name)
    assert written == page.filled(made.page(records))
    for file, text in tables.pictures_of(made, records).items():
        assert (ROOT / "docs" / "images" / file).read_text() == text
        assert f"(../images/{file})" in written


def test_every_run_names_its_table_seed_time_and_machine():
    lines = [
        (path, line) for path in RESULTS.glob("*.jsonl") for line in path.read_text().splitlines()
    ]
    assert lines
    for path, line in lines:
        found = json.loads(line)
        assert found["table"] == path.stem
        assert isinstance(found["run"]["seed"], int)
        assert found["seconds"] > 0
        assert {"cores", "threads", "torch"} <= set(found["hardware"])


def test_numbers_have_no_leading_zero_and_shares_their_interval():
    assert (page.number(0.5), page.number(1.25), page.number(-0.5)) == ("0.50", "1.25", "-0.50")
    assert page.share(95, 100) == "95.0 [89, 98]"
