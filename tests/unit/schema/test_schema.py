import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from costed_jobs import costed_job
from raw_graphs import chain

from layerdag.dag.program_numbers import program_numbers
from layerdag.errors import CheckpointError, GraphError, VocabularyError
from layerdag.graph.attributed_graph import LABEL, AttributedGraph
from layerdag.kinds.flow import FLOW
from layerdag.kinds.job import JOB
from layerdag.schema.schema import GraphSchema, complete_conditions, out_of_range_conditions

GRAPHS = [
    chain(f"{family}{i}", "ab", family=family, label=scale * (1 + i / 20))
    for family, scale in (("gpt", 100.0), ("mlp", 1.0))
    for i in range(20)
]
SCHEMA = GraphSchema.fit("flow", GRAPHS)


def test_open_conditions_are_drawn_from_graphs_like_the_request_which_stays():
    rows = complete_conditions(SCHEMA, {"family": "gpt"}, range(50))
    assert {row["family"] for row in rows} == {"gpt"}
    assert all(30 < row["label"] < 250 for row in rows)
    rows = complete_conditions(SCHEMA, {"label": 1.25}, range(20))
    assert {row["label"] for row in rows} == {1.25}
    assert {row["family"] for row in rows} == {"mlp"}


def test_each_request_depends_on_its_own_seed():
    rows = complete_conditions(SCHEMA, {}, [3, 4, 5])
    assert complete_conditions(SCHEMA, {}, [5])[0] == rows[2]
    assert rows[0] != rows[1]


SECRET = 48151623421.0


def secret_run(duration: float, width: int = 8) -> AttributedGraph:
    """Return a run of a job with a number that no other job has."""
    job = costed_job(width, label=815.0)
    columns = {"flops": SECRET, "duration": duration}
    numbers = {name: np.full(job.num_nodes, value) for name, value in columns.items()}
    return replace(job, numbers={**job.numbers, **numbers})


@pytest.mark.parametrize("copies", [1, 8])
def test_runs_of_one_program_count_as_one(copies):
    jobs = [costed_job(8 * i, label=float(i)) for i in range(1, 37)]
    schema = GraphSchema.fit("trace", [*jobs, *(secret_run(1e5 + i) for i in range(copies))])
    told = json.dumps(schema.to_dict())
    assert not any(found in told for found in ("48151623421", "4815162", "48200000000", "815.0"))


def test_a_number_of_several_programs_is_kept():
    jobs = [secret_run(1e5, width=8 * i) for i in range(1, 9)]
    assert "48151623421" in json.dumps(GraphSchema.fit("trace", jobs).to_dict())


def test_programs_are_told_apart_by_what_they_are_not_by_how_they_are_listed():
    first, again, other = secret_run(1.0), secret_run(2.0), secret_run(1.0, width=16)
    turned = replace(
        again,
        categories={name: column[::-1] for name, column in again.categories.items()},
        numbers={name: column[::-1] for name, column in again.numbers.items()},
        edge_index_2E=again.num_nodes - 1 - again.edge_index_2E,
    )
    edges = {"edge_index_2E": again.edge_index_2E[:, 1:], "edge_type_E": again.edge_type_E[1:]}
    rewired = replace(again, **edges)
    found = program_numbers([first, turned, other, rewired, again])
    assert found.tolist() == [0, 0, 1, 2, 0]


def test_a_label_is_a_number_even_where_it_is_a_word():
    graphs = [chain(f"g{i}", "ab", label=word) for i, word in enumerate(("1.5", 2.0, "nan"))]
    schema = GraphSchema.fit("flow", graphs)
    assert (schema.numeric_conditions[0].name, schema.category_conditions) == (LABEL, ())
    with pytest.raises(VocabularyError, match="'label' must be a number, found 'failed'"):
        GraphSchema.fit("flow", [*graphs, chain("f", "ab", label="failed")])


def test_drawn_labels_stay_in_the_training_range():
    labels = [row["label"] for row in complete_conditions(SCHEMA, {}, range(300))]
    assert min(labels) >= 1.0
    assert max(labels) <= 195.0
    assert np.std(labels) > 10


def test_numbers_outside_the_training_range_are_told_with_it():
    for value in (1e9, 1e-3):
        (sentence,) = out_of_range_conditions(SCHEMA, {"label": value, "family": "gpt"})
        assert f"'label' is {value:g}" in sentence
        assert "have 1.2 to 175" in sentence
    for given in ({}, {"label": 1.2}, {"label": 175.0}, {"label": 175.04}, {"family": "mlp"}):
        assert out_of_range_conditions(SCHEMA, given) == []
    assert len(out_of_range_conditions(SCHEMA, {"label": 176.0})) == 1


def test_without_a_table_open_conditions_stay_open():
    few = GraphSchema.fit("flow", [chain(f"g{i}", "ab", label=float(i)) for i in range(3)])
    assert complete_conditions(few, {"label": 1.0}, [1, 2]) == [{"label": 1.0}] * 2
    assert complete_conditions(few, {}, [1]) == [{}]


def graph(
    kinds: list[str], label: float = 1.0, name: str = "g", **changes: object
) -> AttributedGraph:
    size = len(kinds)
    plain = AttributedGraph(
        name=name,
        categories={"kind": kinds},
        numbers={"bytes": np.arange(size, dtype=float)},
        units={"bytes": "bytes"},
        edge_index_2E=np.stack([np.arange(size - 1), np.arange(1, size)]),
        edge_type_E=np.zeros(size - 1, dtype=np.int64),
        conditions={"label": label, "family": "gpt"},
    )
    return replace(plain, **changes)


def test_a_fixed_vocabulary_is_there_even_if_no_training_graph_uses_it():
    schema = GraphSchema.fit("flow", [graph(["a", "b"], vocabularies={"kind": ("z",)})])
    assert schema.encode(graph(["a", "z"])).x_NA[:, 0].tolist() == [0, 2]


def test_durations_are_measured_and_other_numbers_are_not():
    numbers = {name: np.arange(2, dtype=float) for name in ("bytes", "duration")}
    timed = GraphSchema.fit("flow", [graph(["a", "b"], numbers=numbers, units={})])
    assert [a.name for a in timed.attributes] == ["kind", "bytes", "duration"]
    assert timed.measured_columns == (2,)
    assert GraphSchema.fit("flow", [graph(["a", "b"])]).measured_columns == ()


def test_nodes_come_in_layer_order_and_decode_to_the_same_names():
    schema = GraphSchema.fit("flow", [graph(["a", "b", "c"])])
    backwards = graph(["a", "b", "c"], edge_index_2E=np.array([[2, 1], [1, 0]]))
    dag = schema.encode(backwards)
    assert dag.layers().tolist() == [0, 1, 2]
    assert schema.decode(dag).categories["kind"] == ["c", "b", "a"]
    assert schema.decode(dag).numbers["bytes"] == pytest.approx([2, 1, 0], abs=1e-5)


def test_edge_types_are_matched_by_name():
    first = graph(["a", "b"], edge_type_names=("data",))
    second = graph(["a", "b"], edge_type_names=("control",))
    schema = GraphSchema.fit("flow", [first, second])
    assert schema.edge_types == ("data", "control")
    assert schema.encode(second).edge_type_E.tolist() == [1]
    with pytest.raises(VocabularyError, match="edge of type 'sync'"):
        schema.encode(graph(["a", "b"], edge_type_names=("sync",)))


def test_graphs_with_other_attributes_are_refused():
    with pytest.raises(GraphError, match="other attributes"):
        GraphSchema.fit("flow", [graph(["a", "b"]), graph(["a", "b"], numbers={})])


def test_the_schema_survives_strict_json_with_a_condition_that_a_graph_lacks():
    rows = [graph(["a", "b"], label=float(i)) for i in range(5)]
    rows.append(graph(["a"], conditions={"family": "mlp"}))
    schema = GraphSchema.fit("flow", rows)
    text = json.dumps(schema.to_dict(), allow_nan=False)
    again = GraphSchema.from_dict(json.loads(text))
    assert json.dumps(again.to_dict()) == text
    assert again.sizes() == schema.sizes()


def test_conditions_are_standardized_and_missing_ones_are_unknown():
    schema = GraphSchema.fit("flow", [graph(["a"], label=v) for v in (1.0, 2.0, 3.0)])
    numeric_BC, category_BM = schema.encode_conditions([{"label": 2.0}, {"family": "gpt"}])
    assert numeric_BC[0].tolist() == [0.0]
    assert torch.isnan(numeric_BC[1]).all()
    assert category_BM.tolist() == [[-1], [0]]


@pytest.mark.parametrize("value", [float("inf"), "fast", "1e999"])
def test_a_condition_that_is_no_finite_number_is_refused(value):
    schema = GraphSchema.fit("flow", [graph(["a"], label=v) for v in (1.0, 2.0)])
    with pytest.raises(VocabularyError, match="must be a number"):
        schema.encode_conditions([{"label": value}])


def test_an_unknown_condition_names_the_nearest():
    schema = GraphSchema.fit("flow", [graph(["a"])])
    with pytest.raises(VocabularyError, match="Did you mean 'label'"):
        schema.encode_conditions([{"lable": 1.0}])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("kind",), "novel"),
        (("numeric_conditions", 0, "std"), 0.0),
        (("numeric_conditions", 0, "quantiles"), []),
        (("numbers", 0, "bins"), [[1.0, 2.0]]),
        (("numbers", 0, "bins"), [[5.0, 4.0, 3.0, 2.0, 1.0]]),
        (("categories", 0, "values"), ["a", "a"]),
        (("categories", 0, "values"), "abc"),
        (("condition_table",), [[0.0]]),
        (("condition_table",), {}),
        (("condition_table", "cells", 0, "values"), [[7]]),
        (("condition_table", "cells", 0, "values"), [["0"]]),
        (("condition_table", "cells", 0, "values"), [[]]),
        (("condition_table", "cells", 0, "spread"), [0.0]),
        (("condition_table", "cells", 0, "mean"), [1e300]),
        (("condition_table", "cells", 0, "mean"), []),
        (("condition_table", "cells", 0, "count"), 0),
        (("condition_table", "cells", 0, "quantiles"), [[], []]),
        (("condition_table", "cells", 0, "quantiles"), [[[0.5, 1.0], [0.4, 2.0]]]),
        (("condition_table", "cells", 0, "quantiles"), [[[0.4, 2.0], [0.5, 1.0]]]),
        (("condition_table", "cells", 0, "quantiles"), [[[0.0, 1.0]]]),
        (("condition_table", "cells", 0, "quantiles"), [[[0.5, 1.0, 2.0]]]),
        (("condition_table", "correlation"), [[float("nan")]]),
        (("condition_table", "correlation"), []),
        (("edge_types",), []),
        (("numbers", 0, "name"), "kind"),
    ],
)
def test_a_damaged_schema_is_refused_in_one_sentence(path, value):
    graphs = [graph(["a", "b"], label=float(v)) for v in range(1, 9)]
    data = GraphSchema.fit("flow", graphs).to_dict()
    data = json.loads(json.dumps(data))
    target = data
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    with pytest.raises(CheckpointError, match="schema cannot be read"):
        GraphSchema.from_dict(data)


def test_entries_of_earlier_versions_are_ignored_and_unknown_ones_refused():
    schema = GraphSchema.fit("flow", [graph(["a", "b"])])
    data = json.loads(json.dumps(schema.to_dict()))
    assert GraphSchema.from_dict({**data, "costs": {"operators": {}}}) == schema
    with pytest.raises(CheckpointError, match="'prices' is no key"):
        GraphSchema.from_dict({**data, "prices": {}})


def test_a_schema_needs_a_training_graph():
    with pytest.raises(GraphError, match="no training graph to learn a schema from"):
        GraphSchema.fit("flow", [])


@pytest.mark.parametrize(("lacking", "name"), [("categories", "kind"), ("numbers", "bytes")])
def test_a_graph_that_lacks_an_attribute_is_told_all_that_are_needed(lacking, name):
    schema = GraphSchema.fit("flow", [graph(["a", "b"])])
    with pytest.raises(GraphError, match=f"attribute '{name}' is missing.* 'kind', 'bytes'"):
        schema.encode(graph(["a", "b"], **{lacking: {}}))


def test_a_trace_holds_no_number_beyond_64_bits():
    data = GraphSchema.fit("flow", [graph(["a", "b"], label=float(v)) for v in range(1, 9)])
    written = json.loads(json.dumps(data.to_dict()))
    written["kind"] = "trace"
    assert GraphSchema.from_dict(written).kind == JOB
    written["numbers"][0]["bins"][-1][-1] = float(1 << 63)
    with pytest.raises(CheckpointError, match="jobs hold no number of 9,223,372,036,854,775,808"):
        GraphSchema.from_dict(written)
    written["kind"] = "flow"
    assert GraphSchema.from_dict(written).kind == FLOW
