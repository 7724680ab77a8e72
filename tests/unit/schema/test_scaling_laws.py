"""Laws that training graphs follow are found; what few show is not."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from lawful_graphs import lawful_graph, lawful_graphs

from layerdag.errors import CheckpointError, DataError, VocabularyError
from layerdag.schema.scaling_laws import (
    NO_LAWS,
    Relation,
    ScalingLaws,
    find_relations,
    fit_laws,
    log_of,
)
from layerdag.schema.schema import GraphSchema, complete_conditions


def test_graphs_that_follow_laws_have_relative_numbers_of_one():
    graphs = lawful_graphs()
    laws = fit_laws(graphs, 5)
    for graph in graphs:
        found = laws.relative(graph)
        np.testing.assert_allclose(found.numbers["flops"], [1, 1, np.nan], rtol=1e-3)
        np.testing.assert_allclose(found.numbers["comm_bytes"], [np.nan, np.nan, 1], rtol=1e-3)


def test_laws_hold_at_widths_that_no_training_graph_has():
    laws = fit_laws(lawful_graphs(), 5)
    wide = lawful_graph(16384.0, 4096.0, 64, "llama", "yes")
    np.testing.assert_allclose(laws.relative(wide).numbers["flops"][:2], 1, rtol=0.01)
    np.testing.assert_allclose(laws.absolute(laws.relative(wide)).numbers["flops"][0],
                               wide.numbers["flops"][0], rtol=0.01)  # fmt: skip


def test_conditions_have_the_parts_that_their_words_say():
    laws = fit_laws(lawful_graphs(), 5)
    assert set(laws.numbers) < {"width", "length", "ranks", "tokens"}
    assert len(laws.numbers) == 3  # the fourth is a product of two others
    assert laws.switches == ("split",)
    assert laws.factors == ("family",)
    assert [str(relation) for relation in laws.relations] == ["tokens = width x length"]


def test_exponents_are_those_of_the_laws():
    laws = fit_laws(lawful_graphs(), 5)
    law = laws.laws["flops", "mm||none|", "no"]
    power = dict(zip(laws.numbers, law.exponents, strict=True))
    assert power == pytest.approx({"width": 2.0, "length": 1.0, "ranks": -1.0}, abs=1e-4)
    assert law.factors[0]["llama"] == pytest.approx(np.log(3), abs=1e-4)


def test_what_few_graphs_show_has_no_law_of_its_own():
    graphs = lawful_graphs()
    laws = fit_laws(graphs, len(graphs))
    assert {state for _, _, state in laws.laws} == {"*"}  # no split of the graphs is large enough


def test_the_order_of_the_graphs_decides_nothing():
    graphs = lawful_graphs()
    one, other = fit_laws(graphs, 5), fit_laws(graphs[::-1], 5)
    assert one.laws.keys() == other.laws.keys()
    for key, law in one.laws.items():
        assert law.exponents == pytest.approx(other.laws[key].exponents, abs=1e-4)


def test_numbers_that_go_with_nothing_are_refused():
    with pytest.raises(DataError, match="numbers=absolute"):
        fit_laws([lawful_graph(256.0, 64.0, 2)], 1)


GRAPHS = lawful_graphs()
LAWS = fit_laws(GRAPHS, 5)


def test_absolute_undoes_relative_and_without_laws_nothing_changes():
    for graph in GRAPHS[:20]:
        again = LAWS.absolute(LAWS.relative(graph))
        for name, value_N in graph.numbers.items():
            np.testing.assert_allclose(again.numbers[name], value_N, rtol=6e-3)
    assert not NO_LAWS
    assert NO_LAWS.relative(GRAPHS[0]) is GRAPHS[0]


def test_an_unknown_condition_counts_as_usual_and_an_unknown_word_as_any():
    graph = lawful_graph(512.0, 128.0, 4)
    known = {name: value for name, value in graph.conditions.items() if name != "width"}
    bare = replace(graph, conditions=known)
    odd = lawful_graph(512.0, 128.0, 4, family="new", split="maybe")
    for other in (bare, odd):
        found = LAWS.relative(other).numbers["flops"]
        assert np.isfinite(found[:2]).all()
        assert 0.1 < found[0] / LAWS.relative(graph).numbers["flops"][0] < 10


def test_communication_is_told_apart_by_what_makes_it():
    kinds = {kind for _, kind, _ in LAWS.laws}
    assert "c10d::all_reduce||contiguous|norm" in kinds
    assert "c10d::all_reduce||contiguous|" in kinds  # whatever makes it


def test_what_follows_is_completed_and_contradictions_are_named():
    assert LAWS.completed({"width": 512.0, "length": 64.0}, {})["tokens"] == 512 * 64
    assert LAWS.completed({"tokens": 1024.0, "length": 64.0}, {"width": ("16",)})["width"] == "16"
    assert LAWS.completed({"width": 512.0}, {}) == {"width": 512.0}
    assert LAWS.determines("tokens")
    assert not LAWS.determines("ranks")
    with pytest.raises(VocabularyError, match="tokens = width x length"):
        LAWS.completed({"width": 2.0, "length": 3.0, "tokens": 7.0}, {})


def test_drawn_conditions_are_settled_and_given_ones_stay():
    drawn = {"width": 300.0, "length": 100.0, "tokens": 5.0}
    assert LAWS.evaluated(drawn, {}, {})["tokens"] == 30_000
    found = LAWS.evaluated(drawn, {"tokens": 60_000.0}, {})
    assert found["tokens"] == 60_000
    assert float(found["width"]) * float(found["length"]) == pytest.approx(60_000)
    only = LAWS.evaluated(drawn, {"tokens": 600.0, "width": 300.0}, {"length": ("2", "3")})
    assert only["length"] == "2"
    stuck = LAWS.evaluated(drawn, {"tokens": 600.0, "width": 300.0}, {"length": ("3",)})
    assert stuck["length"] == 100.0


def test_a_schema_with_laws_codes_and_decodes_at_other_widths():
    schema = GraphSchema.fit("trace", GRAPHS, numbers="relative")
    again = GraphSchema.from_dict(json.loads(json.dumps(schema.to_dict())))
    assert again == schema
    wide = lawful_graph(8192.0, 2048.0, 8, "gpt", "yes")
    back = again.decode(again.codes(wide))
    np.testing.assert_allclose(back.numbers["flops"], wide.numbers["flops"], rtol=0.02)
    codes = {tuple(schema.codes(graph).x_NA[:, -2].tolist()) for graph in GRAPHS}
    assert len(codes) == 1  # FLOPs over their law are the same in all


def test_requests_are_completed_by_the_laws_of_the_schema():
    schema = GraphSchema.fit("trace", GRAPHS, numbers="relative")
    rows = complete_conditions(schema, {"width": 512.0, "family": "gpt"}, range(8))
    for row in rows:
        assert row["width"] == 512.0
        assert float(row["tokens"]) == pytest.approx(512 * float(row["length"]))
    with pytest.raises(VocabularyError, match="contradict"):
        complete_conditions(schema, {"width": 512.0, "length": 64.0, "tokens": 5.0}, [0])


def test_a_schema_of_absolute_numbers_has_no_laws():
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
def test_malformed_laws_are_refused(path, value):
    data = json.loads(json.dumps(GraphSchema.fit("trace", GRAPHS, numbers="relative").to_dict()))
    place = data["laws"]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(CheckpointError):
        GraphSchema.from_dict(data)


def test_laws_come_back_from_json():
    assert ScalingLaws.from_dict(json.loads(json.dumps(LAWS.to_dict()))) == LAWS


RANKS = Relation(("world",), ("tensor", "data"))


def test_products_are_found_and_no_sums_of_others():
    rng = np.random.default_rng(0)
    tensor, data, layers, stages = rng.integers(1, 9, (4, 50))
    columns = {
        "tensor": tensor, "data": data, "world": tensor * data, "same": tensor,
        "layers": layers * stages, "stages": stages, "each": layers,
    }  # fmt: skip
    found = find_relations([*columns], np.log(np.stack([*columns.values()], axis=1)))
    assert {str(relation) for relation in found} == {
        "tensor = same", "world = tensor x data", "world = data x same", "layers = stages x each",
    }  # fmt: skip


def test_what_fails_once_is_no_relation():
    log_GC = np.log(np.array([[2.0, 3.0, 6.0], [2.0, 5.0, 10.0], [3.0, 5.0, 14.0]]))
    assert find_relations(["a", "b", "c"], log_GC) == ()


@pytest.mark.parametrize(("name", "known", "expected"), [
    ("world", {"tensor": "4", "data": 8.0}, 32.0),
    ("data", {"world": "32", "tensor": 4.0}, 8.0),
    ("data", {"world": 10.0, "tensor": 4.0}, 2.5),
    ("data", {"world": 10.0}, None),
    ("data", {"world": 10.0, "tensor": "many"}, None),
])  # fmt: skip
def test_one_condition_follows_from_the_others(name, known, expected):
    assert RANKS.solved(name, known) == pytest.approx(expected)


def test_relations_hold_fail_or_cannot_be_told():
    assert RANKS.holds({"world": 8.0, "tensor": "2", "data": 4.0}) is True
    assert RANKS.holds({"world": 9.0, "tensor": "2", "data": 4.0}) is False
    assert RANKS.holds({"tensor": "2", "data": 4.0}) is None
    assert RANKS.holds({"world": 8.0, "tensor": "2"}) is None


def test_only_positive_numbers_have_logarithms():
    assert log_of("8") == pytest.approx(math.log(8))
    assert all(math.isnan(log_of(value)) for value in (None, "x", 0.0, -1.0, math.inf, "nan"))
