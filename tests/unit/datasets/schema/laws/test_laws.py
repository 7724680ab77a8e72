"""Laws in a schema: numbers relative and back, conditions completed, JSON that is not trusted."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from lawful_graphs import lawful_graph, lawful_graphs

from layerdag.datasets.schema import GraphSchema, complete_conditions
from layerdag.datasets.schema.laws import NO_LAWS, Laws, fit_laws
from layerdag.errors import CheckpointError, VocabularyError

GRAPHS = lawful_graphs()
LAWS = fit_laws(GRAPHS, 5)


def test_absolute_undoes_relative() -> None:
    for graph in GRAPHS[:20]:
        again = LAWS.absolute(LAWS.relative(graph))
        for name, value_N in graph.numbers.items():
            np.testing.assert_allclose(again.numbers[name], value_N, rtol=6e-3)


def test_without_laws_nothing_changes() -> None:
    assert not NO_LAWS
    assert NO_LAWS.relative(GRAPHS[0]) is GRAPHS[0]


def test_an_unknown_condition_counts_as_usual_and_an_unknown_word_as_any() -> None:
    graph = lawful_graph(512.0, 128.0, 4)
    known = {name: value for name, value in graph.conditions.items() if name != "width"}
    bare = replace(graph, conditions=known)
    odd = lawful_graph(512.0, 128.0, 4, family="new", split="maybe")
    for other in (bare, odd):
        found = LAWS.relative(other).numbers["flops"]
        assert np.isfinite(found[:2]).all()
        assert 0.1 < found[0] / LAWS.relative(graph).numbers["flops"][0] < 10


def test_communication_is_told_apart_by_what_makes_it() -> None:
    kinds = {kind for _, kind, _ in LAWS.laws}
    assert "c10d::all_reduce||contiguous|norm" in kinds
    assert "c10d::all_reduce||contiguous|" in kinds  # whatever makes it


def test_what_follows_is_completed_and_contradictions_are_named() -> None:
    assert LAWS.completed({"width": 512.0, "length": 64.0}, {})["tokens"] == 512 * 64
    assert LAWS.completed({"tokens": 1024.0, "length": 64.0}, {"width": ("16",)})["width"] == "16"
    assert LAWS.completed({"width": 512.0}, {}) == {"width": 512.0}
    assert LAWS.determines("tokens")
    assert not LAWS.determines("ranks")
    with pytest.raises(VocabularyError, match="tokens = width x length"):
        LAWS.completed({"width": 2.0, "length": 3.0, "tokens": 7.0}, {})


def test_drawn_conditions_are_settled_and_given_ones_stay() -> None:
    drawn = {"width": 300.0, "length": 100.0, "tokens": 5.0}
    assert LAWS.settled(drawn, {}, {})["tokens"] == 30_000
    found = LAWS.settled(drawn, {"tokens": 60_000.0}, {})
    assert found["tokens"] == 60_000
    assert float(found["width"]) * float(found["length"]) == pytest.approx(60_000)
    only = LAWS.settled(drawn, {"tokens": 600.0, "width": 300.0}, {"length": ("2", "3")})
    assert only["length"] == "2"
    stuck = LAWS.settled(drawn, {"tokens": 600.0, "width": 300.0}, {"length": ("3",)})
    assert stuck["length"] == 100.0


def test_a_schema_with_laws_codes_and_decodes_at_other_widths() -> None:
    schema = GraphSchema.fit("trace", GRAPHS, numbers="relative")
    again = GraphSchema.from_dict(json.loads(json.dumps(schema.to_dict())))
    assert again == schema
    wide = lawful_graph(8192.0, 2048.0, 8, "gpt", "yes")
    back = again.decode(again.codes(wide))
    np.testing.assert_allclose(back.numbers["flops"], wide.numbers["flops"], rtol=0.02)
    codes = {tuple(schema.codes(graph).x_NA[:, -2].tolist()) for graph in GRAPHS}
    assert len(codes) == 1  # FLOPs over their law are the same in all


def test_requests_are_completed_by_the_laws_of_the_schema() -> None:
    schema = GraphSchema.fit("trace", GRAPHS, numbers="relative")
    rows = complete_conditions(schema, {"width": 512.0, "family": "gpt"}, range(8))
    for row in rows:
        assert row["width"] == 512.0
        assert float(row["tokens"]) == pytest.approx(512 * float(row["length"]))
    with pytest.raises(VocabularyError, match="contradict"):
        complete_conditions(schema, {"width": 512.0, "length": 64.0, "tokens": 5.0}, [0])


def test_a_schema_of_absolute_numbers_has_no_laws() -> None:
    schema = GraphSchema.fit("trace", GRAPHS)
    assert not schema.laws
    assert "laws" not in schema.to_dict()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("numbers",), ["width"]),
        (("usual",), [float("nan"), 1.0, 2.0]),
        (("usual",), "abc"),
        (("laws", 0, 0), ["flops"]),
        (("laws", 0, 1), "heavy"),
        (("laws", 0, 2), [1.0]),
        (("laws", 0, 3), []),
        (("relations",), [[["a"], []]]),
        (("switches",), "split"),
    ],
)
def test_malformed_laws_are_refused(path: tuple[Any, ...], value: object) -> None:
    data = json.loads(json.dumps(GraphSchema.fit("trace", GRAPHS, numbers="relative").to_dict()))
    place = data["laws"]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(CheckpointError):
        GraphSchema.from_dict(data)


def test_laws_come_back_from_json() -> None:
    assert Laws.from_dict(json.loads(json.dumps(LAWS.to_dict()))) == LAWS
