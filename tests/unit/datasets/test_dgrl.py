"""SR and TIME of the DGRL benchmark, as its own processors read them."""

import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
from dgrl_files import write_family

import layerdag as ld
from layerdag.datasets.dgrl import Sizes, load_dgrl, read_networks, read_table
from layerdag.datasets.settings import DgrlConfig
from layerdag.errors import DataError
from layerdag.schema.attributes import CategoryAttribute, NumericAttribute

CIRCUITS = ("blabla", "usb", "picorv32a", "zipdiv", "spm", "xtea")


def write(folder: Path, **tables: list[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        (folder / f"{name.replace('_', '-')}.csv").write_text("\n".join(rows) + "\n")
    return folder


def multiplier(folder: Path, ands: int = 1) -> Path:
    """Two inputs, a chain of AND gates behind them, and one output."""
    return write(
        folder,
        num_node_list=[str(3 + ands)],
        num_edge_list=[str(2 + ands)],
        edge=["0,2", "1,2", *(f"{2 + k},{3 + k}" for k in range(ands))],
        node_feat=["1,0,0", "1,0,0", *["0,1,0"] * ands, "1,0,0"],
        node_label_shared=["0", "0", *["2"] * ands, "0"],
        node_label_root=["0", "0", *["1"] * ands, "0"],
    )


@pytest.fixture
def sr(tmp_path: Path) -> Path:
    for ands, part in enumerate(("train", "valid", "test/32", "test_mapped/32"), start=1):
        multiplier(tmp_path / part, ands)
    return tmp_path


@pytest.fixture
def time(tmp_path: Path) -> Path:
    """Circuits of three pins: a net, and a cell that is listed twice."""
    for number, name in enumerate(CIRCUITS):
        pin = ",".join([f"0.{number + 1}"] * 8)
        write(
            tmp_path / name / "raw",
            num_node_list=["3"],
            num_edge_list=["3"],
            edge=["0,1", "1,2", "1,2"],
            edge_feat=["0,1" + ",0" * 10, "1,0" + ",0" * 10, "1,0" + ",0" * 10],
            node_feat=[f"1,1,{pin}", f"0,0,{pin}", f"0,1,{pin}"],
            is_timing_endpt=["0", "0", "1"],
            node_label_setup_slack=["-9", "-8", f"-{number}.5"],
            node_label_hold_slack=["1", "1", f"{number}"],
        )
    return tmp_path


def test_multipliers_keep_the_parts_and_the_labels_of_nodes(sr):
    data = ld.load_dataset(sr)
    assert {part: len(dags) for part, dags in data.graphs.items()} == {
        "train": 1,
        "val": 1,
        "test": 2,
    }
    names = [attribute.name for attribute in data.schema.attributes]
    assert names == ["feature_0", "feature_1", "feature_2", "shared", "root"]
    (train,) = data.graphs["train"]
    assert train.num_nodes == 4
    assert train.num_edges == 3
    assert "label" not in train.conditions
    for options in ({"label": "root"}, {"num_graphs": 1}):
        with pytest.raises(DataError, match=r"leave '(label|num_graphs)' out"):
            load_dgrl(DgrlConfig(folder=sr, **options))


def test_a_timing_graph_has_nets_cells_and_the_least_slack_of_an_endpoint(time):
    data = ld.load_dataset(time)
    assert list(data.schema.edge_types) == ["net", "cell"]
    assert [len(data.graphs[part]) for part in ("train", "val", "test")] == [3, 1, 2]
    test = data.graphs["test"]
    assert [dag.conditions["label"] for dag in test] == [-4.5, -5.5]  # spm, xtea
    for dag in test:
        types = dag.edge_type_E[dag.edge_index_2E[0].argsort()]
        assert types.tolist() == [0, 1]
    hold = load_dgrl(DgrlConfig(folder=time, label="hold"))
    assert [dag.conditions["label"] for dag in hold.graphs["test"]] == [4.0, 5.0]
    with pytest.raises(DataError, match="known are setup, hold"):
        load_dgrl(DgrlConfig(folder=time, label="slack"))


def test_slacks_may_be_packed_and_of_several_corners(time):
    for name in CIRCUITS:
        path = time / name / "raw" / "node-label-setup-slack.csv"
        path.unlink()
        path.with_suffix(".csv.gz").write_bytes(gzip.compress(b"0,0\n0,0\n-7,-7.25\n"))
    data = load_dgrl(DgrlConfig(folder=time))
    labels = {dag.conditions["label"] for dags in data.graphs.values() for dag in dags}
    assert labels == {-7.25}


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"edge": ["0,1", "1,3", "1,2"]}, "names node 3"),
        ({"edge_feat": ["0,0", "1,0", "1,0"]}, "of a cell or of a net"),
        ({"node_feat": ["1,1"] * 3}, "has 2 columns, but TIME has 10"),
        ({"is_timing_endpt": ["0"]}, "holds 1 rows for 3 nodes"),
        ({"num_node_list": ["2", "1"]}, "speak of 2"),
    ],
)
def test_tables_that_do_not_fit_are_refused(time, tables, said):
    write(time / "usb" / "raw", **tables)
    with pytest.raises(DataError, match=said):
        load_dgrl(DgrlConfig(folder=time))


@pytest.fixture
def amp(tmp_path: Path) -> Path:
    """Twelve amplifiers of three parts; the first was not simulated."""
    rows = [f"{b},{int(b > 0)},{b}.5,1,2,3" for b in range(12)]
    return write(
        tmp_path,
        num_node_list=["3"] * 12,
        num_edge_list=["2"] * 12,
        edge=["0,1", "1,2"] * 12,
        node_feat=[row for b in range(12) for row in (f"8,0,{b}", "2,6,58", "9,1,102")],
        perform101=[",valid,gain,pm,bw,fom", *rows],
    )


def test_an_amplifier_has_sub_circuits_and_a_gain(amp):
    data = ld.load_dataset(amp)
    graphs = [dag for part in data.graphs.values() for dag in part]
    assert len(graphs) == 12
    assert [a.name for a in data.schema.attributes] == ["subcircuit", "position", "value"]
    assert sorted(g.conditions["label"] for g in graphs if "label" in g.conditions) == [
        b + 0.5 for b in range(1, 12)
    ]


def test_another_figure_can_be_the_label(amp):
    data = load_dgrl(DgrlConfig(folder=amp, label="bw", num_graphs=10))
    assert {g.conditions.get("label") for g in data.graphs["train"]} <= {2.0, None}
    with pytest.raises(DataError, match="no label 'cortex'; known are gain, pm, bw, fom"):
        load_dgrl(DgrlConfig(folder=amp, label="cortex"))


def test_tables_of_amplifiers_that_do_not_fit_are_refused(amp):
    write(amp, node_feat=["1,2"] * 36)
    with pytest.raises(DataError, match="has 2 columns, but AMP has 3"):
        load_dgrl(DgrlConfig(folder=amp))
    write(amp, node_feat=["1,2,3"] * 35)
    with pytest.raises(DataError, match="but hold 35 and 24"):
        load_dgrl(DgrlConfig(folder=amp))
    write(amp, node_feat=["1,2,3"] * 36, edge=["0,7", "1,2"] * 12)
    with pytest.raises(DataError, match="names node 7"):
        load_dgrl(DgrlConfig(folder=amp))
    write(amp, perform101=["valid,pm", "1,2"])
    with pytest.raises(DataError, match=r"among them 'gain'.* Found are valid, pm"):
        load_dgrl(DgrlConfig(folder=amp))


def test_hls_graphs_lose_the_edges_that_go_back(tmp_path):
    folder = write(
        tmp_path,
        num_node_list=["2"] * 12,
        num_edge_list=["2"] * 12,
        edge=["0,1", "1,0"] * 12,
        edge_feat=["1,0", "2,1"] * 12,
        node_feat=[row for b in range(12) for row in (f"0,32,1,{b % 2},0,-1", "1,8,2,5,1,3")],
        graph_label=[f"{b}.25" for b in range(12)],
    )
    data = ld.load_dataset(folder)
    assert all(dag.num_edges == 1 for part in data.graphs.values() for dag in part)
    assert data.schema.attributes[0].name == "opcode"
    with pytest.raises(DataError, match="HLS has one label"):
        load_dgrl(DgrlConfig(folder=folder, label="x"))
    write(folder, edge_feat=["1"] * 24)
    with pytest.raises(DataError, match="edge-feat holds 24 rows of 1"):
        load_dgrl(DgrlConfig(folder=folder))


def test_amp_as_published(shared_data):
    data = load_dgrl(DgrlConfig(folder=shared_data / "flowgraphs" / "dgrl_amp", num_graphs=300))
    assert sum(map(len, data.graphs.values())) == 300


@pytest.fixture
def family(tmp_path: Path) -> Path:
    write_family(tmp_path)
    return tmp_path


def test_columns_of_one_value_are_left_out_and_few_values_are_words(family):
    data = load_dgrl(DgrlConfig(folder=family))
    kinds = {attribute.name: type(attribute) for attribute in data.schema.attributes}
    assert next(iter(kinds)) == "op"
    assert kinds["kernel_out"] is CategoryAttribute
    assert kinds["output_channels"] is NumericAttribute
    assert "input_batch" not in kinds
    assert [len(data.names[split]) for split in ("train", "val", "test")] == [24, 3, 3]


def test_a_network_that_was_not_measured_has_no_label(family):
    data = load_dgrl(DgrlConfig(folder=family))
    graphs = [dag for split in data.graphs.values() for dag in split]
    assert sum("label" not in dag.conditions for dag in graphs) == 1
    assert all(dag.conditions["num_layers"] == 3.0 for dag in graphs)


def test_the_first_graphs_can_be_taken_alone(family):
    data = load_dgrl(DgrlConfig(folder=family, num_graphs=2))
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
        load_dgrl(DgrlConfig(folder=family))


def test_a_missing_file_and_an_unknown_label_are_refused(family, tmp_path):
    with pytest.raises(DataError, match="There is no label 'gpu'"):
        load_dgrl(DgrlConfig(folder=family, label="gpu"))
    with pytest.raises(DataError, match=r"has no label-vpu\.csv"):
        load_dgrl(DgrlConfig(folder=family, label="vpu"))


@pytest.mark.slow
def test_na_edge_has_the_attributes_of_the_paper(shared_data):
    data = load_dgrl(DgrlConfig(folder=shared_data / "flowgraphs" / "dgrl_cg" / "nasbench201s"))
    assert data.schema.sizes().attributes == (9, 2, 5, 4, 5, 4, 4, 5, 4, 3, 3, 5, 4, 5)
    graphs = [dag for split in data.graphs.values() for dag in split]
    assert len(graphs) == 2000
    assert max(dag.num_nodes for dag in graphs) == 339


def test_repeated_edges_count_once_and_files_may_be_plain(family):
    packed = family / "edge.csv.gz"
    rows = gzip.decompress(packed.read_bytes()).decode().splitlines()
    packed.unlink()
    (family / "edge.csv").write_text("\n".join(["0,1", "0,1", *rows[2:]]))
    data = load_dgrl(DgrlConfig(folder=family, num_graphs=30))
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


PACKED = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}


def family_tables(folder: Path, nodes: str = "3\n2\n", edges: str = "2\n1\n") -> Path:
    return write(folder, num_node_list=nodes.split(), num_edge_list=edges.split())


@pytest.mark.parametrize("ending", PACKED)
def test_a_table_is_read_however_it_is_packed(tmp_path, ending):
    (tmp_path / f"edge.csv{ending}").write_bytes(PACKED[ending](b"0,1\n1,2\n"))
    assert read_table(tmp_path, "edge", np.int64).tolist() == [[0, 1], [1, 2]]


def test_a_single_column_is_a_matrix_and_rows_can_be_few(tmp_path):
    (tmp_path / "x.csv").write_text("1\n2\n3\n")
    assert read_table(tmp_path, "x", np.float64).shape == (3, 1)
    assert read_table(tmp_path, "x", np.float64, max_rows=2).tolist() == [[1.0], [2.0]]


def test_a_table_that_is_missing_is_named_with_its_endings(tmp_path):
    with pytest.raises(DataError, match=r"has no edge\.csv, \.csv\.gz or \.csv\.xz; download"):
        read_table(tmp_path, "edge", np.int64)


@pytest.mark.parametrize("content", [b"1,2\n3\n", b"a,b\n", b"1.5\n", b"\xff\n", b"9" * 30 + b"\n"])
def test_cells_of_another_kind_are_refused_with_the_file(tmp_path, content):
    (tmp_path / "edge.csv").write_bytes(content)
    with pytest.raises(DataError, match=r"edge\.csv: cannot be read \(.*\); download it again"):
        read_table(tmp_path, "edge", np.int64)


def test_sizes_are_those_of_the_first_graphs(tmp_path):
    family_tables(tmp_path)
    every, first = Sizes.from_folder(tmp_path, None), Sizes.from_folder(tmp_path, 1)
    assert (every.nodes_B.tolist(), every.edges_B.tolist()) == ([3, 2], [2, 1])
    assert (first.nodes_B.tolist(), first.edges_B.tolist()) == ([3], [2])


@pytest.mark.parametrize("count", [0, -2])
def test_a_number_of_graphs_below_one_is_refused(tmp_path, count):
    with pytest.raises(DataError, match=f"'num_graphs' must be at least 1, found {count}"):
        Sizes.from_folder(family_tables(tmp_path), count)


@pytest.mark.parametrize(("nodes", "edges"), [("3\n-2\n", "2\n1\n"), ("3\n2\n", "-1\n1\n")])
def test_negative_sizes_are_refused(tmp_path, nodes, edges):
    with pytest.raises(DataError, match="a number of nodes or edges is negative"):
        Sizes.from_folder(family_tables(tmp_path, nodes, edges), None)


@pytest.mark.parametrize(
    ("labels", "nodes", "edges"),
    [(3, 5, 3), (2, 4, 3), (2, 5, 4)],
    ids=["labels", "nodes", "edges"],
)
def test_tables_that_disagree_are_told_with_all_figures(tmp_path, labels, nodes, edges):
    sizes = Sizes.from_folder(family_tables(tmp_path), None)
    told = (
        f"speak of 2, 2 and {labels} graphs with 5 nodes and 3 edges, but hold {nodes} and {edges}"
    )
    with pytest.raises(DataError, match=told):
        sizes.require(tmp_path, labels, nodes, edges)


def test_lists_of_different_lengths_are_refused(tmp_path):
    sizes = Sizes.from_folder(family_tables(tmp_path, edges="3\n"), None)
    with pytest.raises(DataError, match="speak of 2, 1 and 2 graphs"):
        sizes.require(tmp_path, labels=2, nodes=5, edges=3)
