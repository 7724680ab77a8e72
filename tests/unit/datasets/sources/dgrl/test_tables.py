"""Tables of a DGRL family: CSV as it is packed, sizes that must agree, edges once each."""

import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried

from layerdag.datasets.sources.dgrl._tables import Sizes, distinct_edges, read_table
from layerdag.errors import DataError

PACKED = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}


def family(folder: Path, nodes: str = "3\n2\n", edges: str = "2\n1\n") -> Path:
    (folder / "num-node-list.csv").write_text(nodes)
    (folder / "num-edge-list.csv").write_text(edges)
    return folder


@pytest.mark.parametrize("ending", PACKED)
def test_a_table_is_read_however_it_is_packed(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"edge.csv{ending}").write_bytes(PACKED[ending](b"0,1\n1,2\n"))
    assert read_table(tmp_path, "edge", np.int64).tolist() == [[0, 1], [1, 2]]


def test_a_single_column_is_a_matrix_and_rows_can_be_few(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1\n2\n3\n")
    assert read_table(tmp_path, "x", np.float64).shape == (3, 1)
    assert read_table(tmp_path, "x", np.float64, max_rows=2).tolist() == [[1.0], [2.0]]


def test_a_table_that_is_missing_is_named_with_its_endings(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no edge\.csv, \.csv\.gz or \.csv\.xz; download"):
        read_table(tmp_path, "edge", np.int64)


@pytest.mark.parametrize("content", [b"1,2\n3\n", b"a,b\n", b"1.5\n", b"\xff\n", b"9" * 30 + b"\n"])
def test_cells_of_another_kind_are_refused_with_the_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "edge.csv").write_bytes(content)
    with pytest.raises(DataError, match=r"edge\.csv: cannot be read \(.*\); download it again"):
        read_table(tmp_path, "edge", np.int64)


def test_sizes_are_those_of_the_first_graphs(tmp_path: Path) -> None:
    family(tmp_path)
    every, first = Sizes.of(tmp_path, None), Sizes.of(tmp_path, 1)
    assert (every.nodes_B.tolist(), every.edges_B.tolist()) == ([3, 2], [2, 1])
    assert (first.nodes_B.tolist(), first.edges_B.tolist()) == ([3], [2])


@pytest.mark.parametrize("count", [0, -2])
def test_a_number_of_graphs_below_one_is_refused(tmp_path: Path, count: int) -> None:
    with pytest.raises(DataError, match=f"'num_graphs' must be at least 1, found {count}"):
        Sizes.of(family(tmp_path), count)


@pytest.mark.parametrize(("nodes", "edges"), [("3\n-2\n", "2\n1\n"), ("3\n2\n", "-1\n1\n")])
def test_negative_sizes_are_refused(tmp_path: Path, nodes: str, edges: str) -> None:
    with pytest.raises(DataError, match="a number of nodes or edges is negative"):
        Sizes.of(family(tmp_path, nodes, edges), None)


def test_tables_that_agree_are_taken(tmp_path: Path) -> None:
    Sizes.of(family(tmp_path), None).require(tmp_path, labels=2, nodes=5, edges=3)


@pytest.mark.parametrize(
    ("labels", "nodes", "edges"),
    [(3, 5, 3), (2, 4, 3), (2, 5, 4)],
    ids=["labels", "nodes", "edges"],
)
def test_tables_that_disagree_are_told_with_all_figures(
    tmp_path: Path, labels: int, nodes: int, edges: int
) -> None:
    sizes = Sizes.of(family(tmp_path), None)
    told = (
        f"speak of 2, 2 and {labels} graphs with 5 nodes and 3 edges, but hold {nodes} and {edges}"
    )
    with pytest.raises(DataError, match=told):
        sizes.require(tmp_path, labels, nodes, edges)


def test_lists_of_different_lengths_are_refused(tmp_path: Path) -> None:
    sizes = Sizes.of(family(tmp_path, edges="3\n"), None)
    with pytest.raises(DataError, match="speak of 2, 1 and 2 graphs"):
        sizes.require(tmp_path, labels=2, nodes=5, edges=3)


@tried(30)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=20))
def test_edges_are_kept_once_in_order(pairs: list[tuple[int, int]]) -> None:
    edges_2E = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    assert list(map(tuple, distinct_edges(edges_2E).T.tolist())) == sorted(set(pairs))
