"""Plain words for short names."""

import pytest

from layerdag.evaluation.metrics import DEFAULT_METRICS, Metric
from layerdag.report.sections import _words as words
from layerdag.surrogates import SCORES


def test_every_metric_and_score_has_words_without_underscores_and_colons() -> None:
    named = [metric for metric in DEFAULT_METRICS if isinstance(metric, Metric)]
    assert named
    for told in (*map(words.metric_words, named), *(words.score_words(s.name) for s in SCORES)):
        assert told[0].isupper()
        assert "_" not in told
        assert ":" not in told


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("W1 of parents of a node", "distance (Wasserstein-1) in parents of a node"),
        ("surrogate's Pearson (boosting)", "correlation of a predictor (boosted trees)"),
        (
            "surrogate's Spearman (message_passing)",
            "rank correlation of a predictor (message passing)",
        ),
        ("median ratio", "median ratio"),
    ],
)
def test_lines_of_the_summary(what: str, told: str) -> None:
    assert words.summary_words(what) == told


def test_operators_keep_their_names_and_kinds_get_words() -> None:
    assert words.value_words("op", "aten::_foreach_add_") == "aten::_foreach_add_"
    assert words.value_words("type", "COMM_COLL") == "collective"
    assert words.value_words("collective", "ALL_REDUCE") == "all-reduce"


def test_what_is_unknown_is_written_without_underscores() -> None:
    assert words.attribute_words("my_number") == "My number"
    assert words.attack_words("new_attack") == "New attack"
    assert words.family_words("deep_sets") == "Deep sets"
    assert words.condition_words("other") == "Other"
