"""What samples add to fifty real graphs: what is seen, the labels, the page."""

from typing import Any

import numpy as np
import pytest
from benchmark_tables import few_real, gains, parts, scheduling
from table_records import record

from layerdag.schema.conditions import NumericCondition


def test_the_generator_sees_the_drawn_graphs_and_their_scale_of_labels_alone(data):
    fifty = few_real.fifty_of(data, seed=1, count=10)
    seen = [*fifty.data.graphs["train"], *fifty.data.graphs["val"]]
    assert len(seen) == len(fifty.real) == 10
    assert {id(dag) for dag in seen} == {id(dag) for dag in fifty.real}
    assert {id(dag) for dag in fifty.real} <= {id(dag) for dag in data.graphs["train"]}
    assert fifty.test == tuple(data.graphs["test"])
    scale = next(c for c in fifty.data.schema.numeric_conditions if c.name == "label")
    seen_B = parts.labels_of(fifty.data.graphs["train"])
    assert scale == NumericCondition.fit("label", seen_B.tolist())
    assert few_real.fifty_of(data, seed=2, count=10).real != fifty.real


def test_no_way_to_label_samples_needs_more_than_the_fifty(data, monkeypatch):
    monkeypatch.setattr(few_real, "JUDGED", ("boosting",))  # the other family takes seconds
    fifty = few_real.fifty_of(data, seed=0, count=20)
    source = few_real.Source("scheduled", lambda: data, {}, scheduling.makespan)
    wrong = [dag.with_conditions({"label": 7.0}) for dag in data.graphs["val"]]
    found = few_real.labelings(source, fifty, wrong, np.full(len(wrong), 3.0), 0)
    assert (found["asked for"] == 3.0).all()
    assert (found["of the posterior"] == 7.0).all()
    assert found["measured"] == pytest.approx(parts.labels_of(data.graphs["val"]))
    assert np.corrcoef(found["of surrogates"], found["measured"])[0, 1] > 0.5


def test_a_gain_has_the_error_of_test_graphs_once_and_that_of_fits_by_their_number():
    assert gains.pooled([[0.1, 0.01]]) == "**0.10** [0.08, 0.12]"
    assert gains.pooled([[0.0, 0.0], [0.2, 0.0]]) == "0.10 [-0.10, 0.30]"


def test_a_page_marks_gains_above_zero(data):
    scores = {f: dict.fromkeys(gains.SCORED, 0.5) for f in gains.JUDGED}

    def gain(value: float) -> dict[str, Any]:
        return {f: {key: [value, 0.01] for key in gains.SCORED} for f in gains.JUDGED}

    labels = {
        how: {"samples": scores, "together": scores, "gain": gain(value)}
        for how, value in (("asked for", -0.1), ("measured", 0.1))
    }
    figures = {"ceiling": scores, "alone": scores, "labels": labels}
    config = {"task": "scheduled", "part": "final", "seconds": 60.0}
    text = few_real.FewReal().page([record("few-real", "a", figures, config)])
    assert "| all real | fifty | labels asked for | labels measured |" in text
    row = "; boosted trees | 0.50 | 0.50 | -0.10 [-0.12, -0.08] | **0.10** [0.08, 0.12] |"
    assert text.count(row) == len(gains.SCORE_TITLES)
