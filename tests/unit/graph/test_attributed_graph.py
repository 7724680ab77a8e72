"""Laws of the front door: what is written comes back, and what is refused says why."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
from random_jobs import random_job
from raw_graphs import chain
from small_workloads import collective, compute, job

import layerdag as ld
from layerdag.errors import DataError, GraphError, UsageError
from layerdag.graph.attributed_graph import AttributedGraph, read_labels, size_conditions
from layerdag.sampling.generated import GeneratedGraph
from layerdag.traces.chakra.files import encode_trace

TWO_RANKS = job(*[(compute(1), collective(2, 1))] * 2)


@given(st.integers(0, 2**32 - 1), st.sampled_from([".json", ".graphml"]))
@tried(10)
def test_graphs_come_back_from_either_format(tmp_path_factory, seed, suffix):
    graph = random_job(seed % 1000, 2, layers=3)
    path = tmp_path_factory.mktemp("law") / f"g{suffix}"
    ld.write(graph, path)
    back = ld.read(path)
    assert isinstance(back, AttributedGraph)
    order = np.lexsort(graph.edge_index_2E)
    again = np.lexsort(back.edge_index_2E)
    np.testing.assert_array_equal(back.edge_index_2E[:, again], graph.edge_index_2E[:, order])
    assert back.conditions["world_size"] in ("2", 2.0)
    np.testing.assert_allclose(back.numbers["duration"], graph.numbers["duration"])
    assert [back.edge_type_names[code] for code in back.edge_type_E[again]] == [
        graph.edge_type_names[code] for code in graph.edge_type_E[order]
    ]
    # Digits are numbers for GraphML, whose readers guess; other words stay words.
    assert list(back.categories["op"]) == list(graph.categories["op"])


GRAPH_ENDINGS = r"a graph is written as \.graphml, \.dot, \.json, \.wf\.json or \.program\.json"


@pytest.mark.parametrize("suffix", ["", ".json"])
def test_workloads_come_back_byte_by_byte(tmp_path, suffix):
    ld.write(TWO_RANKS, tmp_path / f"job{suffix}")
    back = ld.read(tmp_path / f"job{suffix}")
    assert isinstance(back, ld.Workload)
    assert [encode_trace(t) for t in back.traces] == [encode_trace(t) for t in TWO_RANKS.traces]
    assert back.groups == TWO_RANKS.groups


@pytest.mark.parametrize(
    ("thing", "name", "words"),
    [
        (TWO_RANKS, "x.et", r"2 ranks need a file each; name the prefix .*x, or a \.json file"),
        (TWO_RANKS, "x.graphml", "2 ranks need a file each"),
        (TWO_RANKS.traces[0], "x.json", r"a trace is written as \.et; name such a file"),
        (TWO_RANKS.traces[0], "x", r"a trace is written as \.et"),
        (chain("g", "ab"), "x", GRAPH_ENDINGS),
        (chain("g", "ab"), "x.et", GRAPH_ENDINGS),
    ],
)
def test_suffixes_that_do_not_fit_are_refused_and_nothing_is_written(tmp_path, thing, name, words):
    with pytest.raises(UsageError, match=words):
        ld.write(thing, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_sample_of_a_flow_graph_is_no_job(tmp_path):
    data = ld.GraphDataset.build("chains", "flow", {"train": [chain("g", "abc"), chain("h", "ab")]})
    sample = GeneratedGraph("s", 0, data.graphs["train"][0], False, data.schema)
    ld.write(sample, tmp_path / "s.json")
    assert ld.read(tmp_path / "s.json").categories["kind"] == ["a", "b", "c"]
    with pytest.raises(DataError):
        ld.write(sample, tmp_path / "s")


@pytest.mark.parametrize("name", ["gone", "gone.et", "gone.json", "gone.graphml"])
def test_what_is_not_there_is_told_by_name(tmp_path, name):
    for call in (ld.read, ld.validate):
        with pytest.raises(DataError, match="gone"):
            call(tmp_path / name)


def test_findings_of_several_things_are_those_of_each_in_order():
    broken = job((compute(1, 7),))
    cyclic = chain("loop", "ab")
    cyclic.edge_index_2E[:] = [[0], [0]]
    each: list[Callable[[], tuple[ld.Finding, ...]]] = [
        lambda: ld.validate(broken),
        lambda: ld.validate(cyclic),
    ]
    assert ld.validate([broken, cyclic]) == each[0]() + each[1]()
    assert ld.validate([]) == ()
    assert ld.validate(TWO_RANKS) == ()


@pytest.mark.parametrize("part", ["train", "val"])
def test_an_empty_part_is_named_before_anything_is_written(tmp_path, part):
    graphs = [chain(f"g{i}", "ab" * (i + 1), label=float(i)) for i in range(6)]
    data = ld.GraphDataset.build("toy", "flow", {"train": graphs, "val": graphs[:2]})
    emptied = ld.GraphDataset.of_splits(
        "toy", data.schema, {**data.graphs, part: ()}, {**data.names, part: ()}
    )
    with pytest.raises(GraphError, match=f"toy: the {part} part is empty|no graph"):
        ld.train(emptied, out=tmp_path / "run", width=32, depth=1)
    assert not (tmp_path / "run" / "best").exists()


def sound() -> AttributedGraph:
    return AttributedGraph(
        name="g",
        categories={"op": ["a", "b", "c"]},
        numbers={"cost": np.array([1.0, 2.0, np.nan])},
        edge_index_2E=np.array([[0, 1], [1, 2]]),
        edge_type_E=np.zeros(2, dtype=np.int64),
    )


NO_EDGES = {"edge_index_2E": np.zeros((2, 0), np.int64), "edge_type_E": np.zeros(0, np.int64)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"categories": {}, "numbers": {}}, "g: there is no node, or no node attribute"),
        ({"categories": {"op": []}}, "g: there is no node"),
        ({"numbers": {"cost": np.zeros(2)}}, "g: attribute 'cost' has 2 values for 3 nodes"),
        (
            {"categories": {"op": ["a", "b", "c"], "kind": ["x"]}},
            "g: attribute 'kind' has 1 values for 3 nodes",
        ),
        ({"edge_type_E": np.zeros(3, np.int64)}, "g: there are 3 edge types for 2 edges"),
        ({"edge_index_2E": np.array([[0, 1], [1, 3]])}, "g: an edge names node 3, but nodes are 0"),
        ({"edge_index_2E": np.array([[0, -1], [1, 2]])}, "g: an edge names node -1, but nodes are"),
        ({"edge_index_2E": np.array([[0, 0], [1, 1]])}, "g: an edge occurs twice; keep one"),
    ],
)
def test_the_first_fault_is_named(changes, message):
    with pytest.raises(GraphError, match=message):
        replace(sound(), **changes).checked()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        NO_EDGES,
        {"categories": {}},
        {"numbers": {}},
        {"edge_index_2E": np.array([[0, 1], [1, 0]])},  # a cycle is found when encoding
    ],
)
def test_a_sound_graph_is_returned_as_it_is(changes):
    graph = replace(sound(), **changes)
    assert graph.checked() is graph
    assert graph.num_nodes == 3


def test_sizes_are_conditions():
    assert size_conditions(np.array([0, 1, 1, 4])) == {"num_nodes": 4.0, "num_layers": 5.0}
    assert size_conditions(np.zeros(0, np.int64)) == {"num_nodes": 0.0, "num_layers": 0.0}


def write(tmp_path, text: str, name: str = "labels.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_columns_of_labels_are_numbers_categories_or_the_split(tmp_path):
    labels = read_labels(write(tmp_path, "name,label,device\na,1.5,cpu\nb,,gpu\n"))
    assert labels.conditions == {"a": {"label": 1.5, "device": "cpu"}, "b": {"device": "gpu"}}
    assert labels.splits == {}
    labels = read_labels(write(tmp_path, "name,label,split\na,1,train\nb,2,test\n"))
    assert labels.splits == {"a": "train", "b": "test"}
    assert labels.conditions["b"] == {"label": 2.0}
    text = "\ufeffname,label,device\na,1.5,\nb, ,3\nc,2,cpu\n"
    labels = read_labels(write(tmp_path, text))
    assert labels.conditions["a"] == {"label": 1.5}
    assert labels.conditions["b"] == {"device": "3"}
    assert labels.conditions["c"] == {"label": 2.0, "device": "cpu"}


def test_json_may_hold_values_or_objects(tmp_path):
    text = json.dumps({"a": 2, "b": {"label": 3.5, "device": "cpu"}})
    labels = read_labels(write(tmp_path, text, "labels.json"))
    assert labels.conditions == {"a": {"label": 2.0}, "b": {"label": 3.5, "device": "cpu"}}


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("a,1\nb,2\n", "l.csv", "the first line must name the columns"),
        ("name,label\na,1\na,2\n", "l.csv", "'a' occurs twice"),
        ("name,label\na,1,9\n", "l.csv", "line 2 has not as many cells"),
        ("name,split\na,dev\n", "l.csv", "is of split 'dev'"),
        ("{", "l.json", "is no JSON"),
        ("[1]", "l.json", "must hold an object"),
        ('{"a": [1]}', "l.json", "no number and no string"),
    ],
)
def test_a_malformed_file_is_refused(tmp_path, text, name, message):
    with pytest.raises(DataError, match=message):
        read_labels(write(tmp_path, text, name))


def test_label_files_that_are_missing_or_no_text_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"none\.csv: there is no such file"):
        read_labels(tmp_path / "none.csv")
    (tmp_path / "l.csv").write_bytes(b"name,label\n\xff\xfe,1\n")
    with pytest.raises(DataError, match=r"l\.csv: is no text in UTF-8"):
        read_labels(tmp_path / "l.csv")


def test_a_graph_in_a_folder_of_its_own_name_may_be_called_like_it(tmp_path):
    labels = read_labels(
        write(tmp_path, "name,label,split\na,1,train\nb/c,2,test\n")
    ).with_folders()
    assert labels.conditions["a/a"] == labels.conditions["a"] == {"label": 1.0}
    assert labels.splits["b/c/c"] == "test"
    own = read_labels(write(tmp_path, "name,label\na,1\na/a,2\n")).with_folders()
    assert own.conditions["a/a"] == {"label": 2.0}


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("l.csv", "name,label,label\na,1,2\n", "the column 'label' stands twice"),
        ("l.csv", "name,label\na,fast\nb,slow\n", "the column 'label' has no number"),
        ("l.csv", f"name,label\na,{'1' * 140_000}\n", "line 2: is no CSV"),
        ("l.csv", "name," + ",".join(f"c{i}" for i in range(300)) + "\na" + ",1" * 300 + "\n",
         "has 300 columns"),
        ("l.json", '{"a": 1, "a": 2}', "'a' stands twice"),
    ],
)  # fmt: skip
def test_label_files_that_contradict_themselves_are_refused(tmp_path, name, text, told):
    (tmp_path / name).write_text(text, newline="")
    with pytest.raises(DataError, match=told):
        read_labels(tmp_path / name)


def test_values_that_are_no_numbers_are_unknown_labels_and_told(tmp_path):
    (tmp_path / "l.csv").write_text("name,label,family\na,1,x\nb,nan,7\nc,-inf,x\nd,1e999,x\n")
    labels = read_labels(tmp_path / "l.csv")
    assert labels.conditions["a"] == {"label": 1.0, "family": "x"}
    assert labels.conditions["b"] == {"family": "7"}
    assert [(note.word, note.place[-6:]) for note in labels.notes] == [
        ("nan", "line 3"), ("-inf", "line 4"), ("1e999", "line 5"),
    ]  # fmt: skip
    (tmp_path / "l.json").write_text('{"a": 1, "b": true, "c": NaN}')
    found = read_labels(tmp_path / "l.json")
    assert found.conditions == {"a": {"label": 1.0}, "b": {}, "c": {}}
    assert [note.word for note in found.notes] == ["true", "nan"]


def test_a_cell_in_quotes_may_hold_a_line_break(tmp_path):
    (tmp_path / "l.csv").write_text('name,family\n"a\nb",x\rc,y\u2028z\n', newline="")
    assert set(read_labels(tmp_path / "l.csv").conditions) == {"a\nb", "c"}
