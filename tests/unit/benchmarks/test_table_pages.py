"""Pages of tables from records made by hand, and the order in which runs are made."""

from collections.abc import Sequence
from typing import Any

import table_records
from benchmark_tables import base, label_quintile, learners, page, runs

from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.latent_preferential import load_latent_preferential
from layerdag.datasets.settings import LatentPreferentialConfig

DISTANCES = {"layers": 0.5, "nodes": 1.0, "edges": 2.0, "layer_size_mmd": 0.25}


def judged(vun: float) -> dict[str, Any]:
    return {"samples": 100, "valid": 0.5, "vun": vun, "distances": DISTANCES}


def record(learner: str, seed: int, vun: float, **changes: Any) -> runs.Record:
    config = {"task": "one", "part": "final", "seconds": 30.0, **changes}
    figures = {**judged(vun), "parameters": 1234, "steps": 70}
    name = f"{learner}-{seed}"
    return table_records.record("a", name, figures, config, learner=learner, seed=seed)


WORDS = page.Words("A title", "What it is.", {}, "Theirs.", {"one": {"fast": "77"}})


def test_a_page_has_means_over_seeds_and_what_papers_say():
    made = [record("fast", 0, 0.4), record("fast", 1, 0.6)]
    text = page.page_of_tasks("a", made, {"fast": "`fast`", "other": "not made"}, WORDS)
    assert "# A title" in text
    assert (
        "| `fast` | 50.0 [43, 57] | 50.0 [43, 57] | 77 | 0.50 | 1.00 | 2.00 | 0.250 | 1,234 | 2 |"
        in text
    )
    assert "Not made yet: not made." in text
    assert "each fit 30 processor seconds (2 shared x86_64 cores" in text
    assert "No setting was tuned" in text


def test_trials_are_counted_and_not_reported():
    made = [record("fast", 0, 0.4)]
    trials = [record("fast", 0, 1.0, part="trial", seconds=9.0) for _ in range(3)]
    text = page.page_of_tasks("a", [*made, *trials], {"fast": "`fast`"}, WORDS)
    assert "at most 3 by the V.U.N. of short fits (9 s)" in text
    assert "| `fast` | 50.0 [40, 60] | 40.0 [31, 50] |" in text
    assert "100.0 [96, 100]" not in text


def test_further_tasks_are_columns():
    made = [record("fast", 0, 0.4), record("fast", 0, 0.2, task="two"), record("rnn", 0, 0.4)]
    words = page.Words("", "", {"two": "task two"}, "", {"two": {"fast": "55"}})
    text = page.page_of_tasks("a", made, {"fast": "`fast`", "rnn": "RNN"}, words)
    assert "| V.U.N., % | published, % | V.U.N., task two | published, % | W1 of layers |" in text
    assert "| `fast` | 50.0 [40, 60] | 40.0 [31, 50] |  | 20.0 [13, 29] | 55 | 0.50 |" in text
    assert "| RNN | 50.0 [40, 60] | 40.0 [31, 50] |  |  |  | 0.50 |" in text


def test_variants_are_rows_of_their_own():
    one = record("fast", 0, 0.4)
    one.figures["variants"] = {"one draw": judged(0.1)}
    found = page.rows_of([one], "one")
    assert found["fast"].count("vun") == (40, 100)
    assert found["fast, one draw"].count("vun") == (10, 100)
    assert page.rows_of([one], "another") == {}


def test_correlations_are_means_over_fits_with_the_spread_of_both_kinds():
    made = []
    for seed, pearson in enumerate((0.2, 0.6)):
        one = record("fast", seed, 0.0)
        one.figures["rows"] = {"samples": {"graphs": 9, "pearson": pearson, "sd": 0.1}}
        made.append(one)
    text = label_quintile._pearson_table({"a task": made, "without": made[:1]})
    assert "| a surrogate fitted to | a task | without |" in text
    assert "| samples | 0.40 [-0.19, 0.99] (9) | 0.20 [0.00, 0.40] (9) |" in text
    assert "| fits | 2 | 1 |" in text


class Counting:
    """A learner whose fits are counted; the second of its settings is the best."""

    def __init__(self) -> None:
        self.fits: list[tuple[int, int]] = []

    def __call__(self, data: GraphDataset, seconds: float, seed: int, *, keep: int) -> Any:
        self.fits.append((seed, keep))
        self.dags, self.keep, self.parameters, self.steps = data.graphs["val"], keep, 1, 1
        return self

    def sample(self, num: int, seed: int) -> list[Any]:
        """Return a few validation graphs, and otherwise none."""
        return [self.dags[i] if i < self.keep else None for i in range(num)]


def test_the_chosen_setting_is_that_of_every_final_fit(tmp_path):
    fit = Counting()
    learner = learners.Learner("counting", "", fit, ({"keep": 1}, {"keep": 3}, {"keep": 2}))
    tasks = [base.Task(name, load, lambda dag: True, others) for name in ("one", "two")]
    options = base.Options(0.0, 0.0, seeds=2, samples=4)
    store = runs.Store("a", tmp_path)
    made = list(base.make_runs(store, tasks, [learner], options))
    finals = [one for one in made if one.run.config.get("part") == "final"]
    assert [one.run.config["settings"] for one in finals] == [{"keep": 3}] * 3
    assert {one.run.seed for one in finals if one.run.config["task"] == "one"} == {0, 1}
    assert base.TUNING_SEED not in {one.run.seed for one in finals}
    fits = len(fit.fits)
    again = list(base.make_runs(store, tasks, [learner], options))
    assert len(fit.fits) == fits == 6
    assert [one.figures for one in again] == [one.figures for one in made]


def load(train: int | None) -> GraphDataset:
    return load_latent_preferential(LatentPreferentialConfig(num_train=3, num_val=4, num_test=3))


def others(count: int) -> Sequence[Any]:
    return load(None).graphs["test"]


def test_a_step_takes_the_median_time_after_the_first():
    clock = learners._Clock()
    clock.times = [1.0, 3.0, 5.0, 7.0, 9.0, 11.0]
    assert clock.of_a_step() == 2.0


def test_each_graph_occurs_in_several_orders_inside_its_layers():
    data = learners.with_random_orders(load(None), 3, seed=0)
    assert len(data.graphs["train"]) == 9
    for dag, copy in zip(load(None).graphs["train"], data.graphs["train"], strict=False):
        assert copy.check().layer_N.tolist() == sorted(dag.layer_N.tolist())
