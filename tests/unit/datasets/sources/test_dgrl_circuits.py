"""SR and TIME of the DGRL benchmark, as its own processors read them."""

import gzip
from pathlib import Path

import pytest

import layerdag as ld
from layerdag.datasets.sources import load_dgrl
from layerdag.errors import DataError

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


def test_multipliers_keep_the_parts_and_the_labels_of_nodes(sr: Path) -> None:
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
            load_dgrl(sr, **options)


def test_a_timing_graph_has_nets_cells_and_the_least_slack_of_an_endpoint(time: Path) -> None:
    data = ld.load_dataset(time)
    assert list(data.schema.edge_types) == ["net", "cell"]
    assert [len(data.graphs[part]) for part in ("train", "val", "test")] == [3, 1, 2]
    test = data.graphs["test"]
    assert [dag.conditions["label"] for dag in test] == [-4.5, -5.5]  # spm, xtea
    for dag in test:
        types = dag.edge_type_E[dag.edge_index_2E[0].argsort()]
        assert types.tolist() == [0, 1]
    hold = load_dgrl(time, label="hold")
    assert [dag.conditions["label"] for dag in hold.graphs["test"]] == [4.0, 5.0]
    with pytest.raises(DataError, match="known are setup, hold"):
        load_dgrl(time, label="slack")


def test_slacks_may_be_packed_and_of_several_corners(time: Path) -> None:
    for name in CIRCUITS:
        path = time / name / "raw" / "node-label-setup-slack.csv"
        path.unlink()
        path.with_suffix(".csv.gz").write_bytes(gzip.compress(b"0,0\n0,0\n-7,-7.25\n"))
    data = load_dgrl(time)
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
def test_tables_that_do_not_fit_are_refused(
    time: Path, tables: dict[str, list[str]], said: str
) -> None:
    write(time / "usb" / "raw", **tables)
    with pytest.raises(DataError, match=said):
        load_dgrl(time)
