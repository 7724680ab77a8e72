"""All tables in one: README is what the files give, and missing runs are no rows."""

from typing import Any

import pytest
import table_records
from benchmark_tables import gains, summary, tables, tpu_tile
from documentation import ROOT

RESULTS = ROOT / "benchmarks" / "results"
DISTANCES = {"layers": 0.5, "nodes": 1.0, "edges": 2.0, "layer_size_mmd": 0.25}


def record(
    table: str, name: str, task: str, figures: dict[str, Any], learner: str = "fast",
    part: str = "final",
) -> Any:  # fmt: skip
    config = {"task": task, "part": part}
    return table_records.record(table, name, figures, config, learner=learner)


def test_readme_is_what_the_files_give():
    found = tables.records_of_all(RESULTS)
    readme = (ROOT / "README.md").read_text()
    assert summary.with_summary(readme, found) == readme
    assert len(summary.lines_of(found)) <= summary.MOST
    pages = {path.stem for path in (ROOT / "docs" / "results").glob("*.md")}
    assert {name for name, _ in summary.lines_of(found)} <= pages


def test_tables_without_runs_are_no_rows_and_unknown_ones_a_link(tmp_path):
    assert not any(tables.records_of_all(tmp_path).values())
    assert summary.lines_of({"er-dag": [], "few-real": []}) == []
    ((name, line),) = summary.lines_of({"new": [record("new", "a", "one", {})], "er-dag": []})
    assert (name, line.what) == ("new", "new: see its page")
    text = summary.summary_table({"new": [record("new", "a", "one", {})]}, "docs/results/")
    assert "[new](docs/results/new.md)" in text


def test_shares_have_their_interval_and_one_draw_beside():
    judged = {"samples": 100, "vun": 0.95, "valid": 0.95, "distances": DISTANCES}
    figures = {**judged, "variants": {"one draw": {**judged, "vun": 0.5}}}
    ((_, line),) = summary.lines_of(
        {"latent-preferential": [record("latent-preferential", "a", "rho0", figures)]}
    )
    assert line.ours == "95.0 [89, 98]; drawn once 50.0 [40, 60]"
    only_trials = record("latent-preferential", "a", "rho0", judged, learner="recurrent")
    assert summary.lines_of({"latent-preferential": [only_trials]}) == []


def fold(number: int, ratio: float) -> Any:
    """Return a fold whose samples teach what real graphs teach."""
    labels = [1.0 * i + number for i in range(9)]
    rows = dict.fromkeys((tpu_tile.REAL, tpu_tile.POSTERIOR, tpu_tile.TAUGHT), labels)
    figures = {
        "labels": labels,
        "predictions": {"boosting": rows, "message_passing": rows},
        "ratios": {"nodes": ratio, "edges": ratio},
    }
    return record("tpu-tile", f"fold{number}", "tpu_tile", figures)


def test_the_row_of_folds_says_how_many_are_made():
    made = [fold(0, 1.0), fold(1, 1.2)]
    taught, ratio = (line for _, line in summary.lines_of({"tpu-tile": made}))
    assert "(2 of 9 folds)" in taught.what
    assert taught.ours == "1.00 [1.00, 1.00]"
    assert ratio.ours == "1.10 [-0.17, 2.37]"  # Student's with one degree of freedom
    whole = [fold(number, 1.0) for number in range(9)]
    drawn = record("tpu-tile", "d", "tpu_tile", {"ratios": {"nodes": 2.0}}, part="drawn")
    taught, ratio = (line for _, line in summary.lines_of({"tpu-tile": [*whole, drawn]}))
    assert "of 9" not in taught.what
    assert ratio.ours == "1.00 [1.00, 1.00]; as `layerdag sample` draws 2.00"


def test_gains_of_both_families_stand_in_one_row():
    def gain(value: float) -> dict[str, Any]:
        return {family: {"pearson": [value, 0.01]} for family in gains.JUDGED}

    made = [
        record("few-real", name, task, {"labels": {"of surrogates": {"gain": gain(value)}}})
        for name, task, value in (("a", "jobs", 0.1), ("b", "scheduled", 0.9))
    ]
    ((_, line),) = summary.lines_of({"few-real": made})
    assert line.ours == "**0.10** [0.08, 0.12]; **0.10** [0.08, 0.12]"
    assert summary.lines_of({"few-real": made[1:]}) == []


def test_the_nearest_other_generator_stands_beside_and_no_training_graphs():
    fast = record("generators", "a", "tpu_tile", {"ratio": 1.5})
    others = [
        record("generators", name, "tpu_tile", {"ratio": ratio}, learner=name)
        for name, ratio in (("real", 1.0), ("resampler", 1.1), ("recipes", 1.3), ("dvae", 2.0))
    ]
    failed = record("generators", "b", "tpu_tile", {"ratio": None}, learner="markov")
    ((_, alone),) = summary.lines_of({"generators": [fast]})
    ((_, beside),) = summary.lines_of({"generators": [fast, *others, failed]})
    assert (alone.ours, alone.other) == ("1.50", "")
    assert (beside.ours, beside.other) == ("1.50", "the nearest of 2 others: recipes 1.30")
    assert summary.lines_of({"generators": others}) == []


def test_latencies_of_all_families_come_before_those_of_one_split():
    def scored(group: str, share: float) -> Any:
        shares = {"within_10": [share, share - 0.1, share]}
        figures = {"scores": {"id": {"mean": shares}}}
        config = {"group": group, "label": "cortex"}
        return table_records.record("predictors", group, figures, config, learner="boosting")

    split, everything = scored("cg", 0.9), scored("all", 0.8)
    ((_, one),) = summary.lines_of({"predictors": [split]})
    ((_, both),) = summary.lines_of({"predictors": [split, everything]})
    assert (one.ours, both.ours) == ("90.0 [80, 90]", "80.0 [70, 80]")
    assert "GraphSAGE 60.0" in both.other
    assert summary.lines_of({"predictors": [scored("amp", 0.5)]}) == []


def test_readme_without_its_marks_is_refused():
    with pytest.raises(ValueError, match=r"README\.md: expected the lines"):
        summary.with_summary("no marks", {})
    text = f"a\n{summary.BEGIN}\nold\n{summary.END}\nb\n"
    new = summary.with_summary(text, {})
    assert new.startswith("a\n")
    assert new.endswith("\nb\n")
    assert "old" not in new
    assert summary.with_summary(new, {}) == new
