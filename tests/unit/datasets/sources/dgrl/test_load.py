import gzip
from pathlib import Path

import pytest
from dgrl_files import write_family

from layerdag.datasets.schema import CategoryAttribute
from layerdag.datasets.schema._numeric import NumericAttribute
from layerdag.datasets.sources import load_dgrl
from layerdag.datasets.sources.dgrl import read_networks
from layerdag.errors import DataError


@pytest.fixture
def family(tmp_path: Path) -> Path:
    write_family(tmp_path)
    return tmp_path


def test_columns_of_one_value_are_left_out_and_few_values_are_words(family):
    data = load_dgrl(family)
    kinds = {attribute.name: type(attribute) for attribute in data.schema.attributes}
    assert next(iter(kinds)) == "op"
    assert kinds["kernel_out"] is CategoryAttribute
    assert kinds["output_channels"] is NumericAttribute
    assert "input_batch" not in kinds
    assert [len(data.names[split]) for split in ("train", "val", "test")] == [24, 3, 3]


def test_a_network_that_was_not_measured_has_no_label(family):
    data = load_dgrl(family)
    graphs = [dag for split in data.graphs.values() for dag in split]
    assert sum("label" not in dag.conditions for dag in graphs) == 1
    assert all(dag.conditions["num_layers"] == 3.0 for dag in graphs)


def test_the_first_graphs_can_be_taken_alone(family):
    data = load_dgrl(family, num_graphs=2)
    assert sum(map(len, data.names.values())) + len(data.left_out) == 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("num-node-list", "3\n" * 9, "speak of 9, 30 and 30 graphs"),
        ("edge", "0,1\n", "but hold 90 and 1"),
        ("node-feat", "Conv2D,1\n" * 90, "cannot be read"),
        ("label-cortex", "x\n" * 30, "no number"),
    ],
)
def test_damaged_files_are_refused(family, name, content, message):
    (family / f"{name}.csv.gz").write_bytes(gzip.compress(content.encode()))
    with pytest.raises(DataError, match=message):
        load_dgrl(family)


def test_a_missing_file_and_an_unknown_label_are_refused(family, tmp_path):
    with pytest.raises(DataError, match="There is no label 'gpu'"):
        load_dgrl(family, label="gpu")
    with pytest.raises(DataError, match=r"has no label-vpu\.csv"):
        load_dgrl(family, label="vpu")


@pytest.mark.slow
def test_na_edge_has_the_attributes_of_the_paper(shared_data):
    data = load_dgrl(shared_data / "flowgraphs" / "dgrl_cg" / "nasbench201s")
    assert data.schema.sizes().attributes == (9, 2, 5, 4, 5, 4, 4, 5, 4, 3, 3, 5, 4, 5)
    graphs = [dag for split in data.graphs.values() for dag in split]
    assert len(graphs) == 2000
    assert max(dag.num_nodes for dag in graphs) == 339


@pytest.mark.parametrize("count", [0, -1])
def test_no_graph_at_all_is_refused(family, count):
    with pytest.raises(DataError, match=f"'num_graphs' must be at least 1, found {count}"):
        load_dgrl(family, num_graphs=count)


def test_repeated_edges_count_once_and_files_may_be_plain(family):
    packed = family / "edge.csv.gz"
    rows = gzip.decompress(packed.read_bytes()).decode().splitlines()
    packed.unlink()
    (family / "edge.csv").write_text("\n".join(["0,1", "0,1", *rows[2:]]))
    data = load_dgrl(family, num_graphs=30)
    edges = {
        name: dag.edge_index_2E.shape[1]
        for split in ("train", "val", "test")
        for name, dag in zip(data.names[split], data.graphs[split], strict=True)
    }
    assert edges.pop(f"{family.name}/0") == 1
    assert set(edges.values()) == {2}


def test_networks_as_they_come_have_every_column_as_a_number_and_each_label(family):
    (family / "label-630gpu.csv.gz").write_bytes((family / "label-cortex.csv.gz").read_bytes())
    graphs = read_networks(family, ("cortex", "630gpu"), 5)
    assert [graph.name for graph in graphs] == [f"{family.name}/{b}" for b in range(5)]
    assert all(set(graph.categories) == {"op"} and len(graph.numbers) == 16 for graph in graphs)
    assert all(
        graph.conditions["cortex"] == graph.conditions["630gpu"]
        for graph in graphs
        if "cortex" in graph.conditions
    )
    assert any("cortex" in graph.conditions for graph in graphs)
    with pytest.raises(DataError, match="name at least one label"):
        read_networks(family, ())
