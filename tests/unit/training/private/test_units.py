from pathlib import Path

import numpy as np
import pytest
from private_jobs import PrivateJobs

from layerdag.errors import DataError
from layerdag.training.private import Units, read_owners


def test_graphs_of_an_owner_are_one_unit(mine: PrivateJobs):
    graphs = mine.data.batch("train")
    owners = ["a", "b"] * (graphs.num_graphs // 2)
    units = Units.of(graphs, owners)
    assert units.count == 2
    sizes = graphs.node_ptr.diff().numpy()
    assert units.nodes_U.tolist() == [sizes[::2].sum(), sizes[1::2].sum()]


def test_batches_hold_the_chosen_units_and_no_other(mine: PrivateJobs):
    units = Units.of(mine.data.batch("train"), ["a", "b", "c"] * 4)
    seen = [unit for _, unit_G in units.batches(np.array([True, False, True])) for unit in unit_G]
    assert sorted(map(int, seen)) == [0] * 4 + [2] * 4
    assert list(units.batches(np.zeros(3, bool))) == []


def test_owners_come_from_a_table(tmp_path: Path):
    file = tmp_path / "owners.csv"
    file.write_text("graph,owner,team\nx,ann,1\ny,bob,1\n")
    assert read_owners(file, ["y", "x"]) == ["bob", "ann"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graph,owner\nx,ann\n", r"does not say who owns y \(1 graphs in all\)"),
        ("name,owner\nx,ann\n", r"has the columns name, owner; needed are graph and owner"),
        ("", r"has the columns none"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path: Path, text: str, message: str):
    file = tmp_path / "owners.csv"
    file.write_text(text)
    with pytest.raises(DataError, match=message):
        read_owners(file, ["x", "y"])


def test_a_missing_table_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match="cannot be read as CSV"):
        read_owners(tmp_path / "none.csv", ["x"])
