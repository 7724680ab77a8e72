import numpy as np
import pytest
from raw_graphs import chain

from layerdag.datasets.schema import GraphSchema, complete_conditions, outside_training
from layerdag.errors import VocabularyError

GRAPHS = [
    chain(f"{family}{i}", "ab", family=family, label=scale * (1 + i / 20))
    for family, scale in (("gpt", 100.0), ("mlp", 1.0))
    for i in range(20)
]
SCHEMA = GraphSchema.fit("flow", GRAPHS)


def test_open_conditions_are_drawn_from_graphs_like_the_request():
    rows = complete_conditions(SCHEMA, {"family": "gpt"}, range(50))
    assert {row["family"] for row in rows} == {"gpt"}
    assert all(30 < row["label"] < 250 for row in rows)


def test_a_given_number_stays_as_it_is_and_decides_the_rest():
    rows = complete_conditions(SCHEMA, {"label": 1.25}, range(20))
    assert {row["label"] for row in rows} == {1.25}
    assert {row["family"] for row in rows} == {"mlp"}


def test_each_request_depends_on_its_own_seed():
    rows = complete_conditions(SCHEMA, {}, [3, 4, 5])
    assert complete_conditions(SCHEMA, {}, [5])[0] == rows[2]
    assert rows[0] != rows[1]


def test_drawn_labels_stay_in_the_training_range():
    labels = [row["label"] for row in complete_conditions(SCHEMA, {}, range(300))]
    assert min(labels) >= 1.0
    assert max(labels) <= 195.0
    assert np.std(labels) > 10


def test_an_unknown_category_is_refused():
    with pytest.raises(VocabularyError, match="Did you mean 'gpt'"):
        complete_conditions(SCHEMA, {"family": "gpt2"}, [0])


def test_a_number_outside_the_training_range_is_told_with_the_range():
    for value in (1e9, 1e-3):
        (sentence,) = outside_training(SCHEMA, {"label": value, "family": "gpt"})
        assert f"'label' is {value:g}" in sentence
        assert "have 1.2 to 175" in sentence


def test_every_number_of_the_training_range_is_taken_without_a_word():
    for given in ({}, {"label": 1.2}, {"label": 175.0}, {"label": 175.04}, {"family": "mlp"}):
        assert outside_training(SCHEMA, given) == []
    assert len(outside_training(SCHEMA, {"label": 176.0})) == 1


def test_a_number_that_is_none_is_refused():
    with pytest.raises(VocabularyError, match="must be a positive number"):
        outside_training(SCHEMA, {"label": "long"})


def test_without_a_table_open_conditions_stay_open():
    few = GraphSchema.fit("flow", [chain(f"g{i}", "ab", label=float(i)) for i in range(3)])
    assert complete_conditions(few, {"label": 1.0}, [1, 2]) == [{"label": 1.0}] * 2
    assert complete_conditions(few, {}, [1]) == [{}]


def test_without_a_given_number_there_is_nothing_to_warn_of():
    few = GraphSchema.fit("flow", [chain(f"g{i}", "ab", label=float(i)) for i in range(3)])
    assert outside_training(few, {}) == []
    low, high = few.numeric_conditions[0].draw_range()
    [told] = outside_training(few, {"label": high + 1})
    assert told.startswith(f"'label' is {high + 1:g}, but most graphs that the model learned from")
    assert f"have {low:g} to {high:g}" in told
