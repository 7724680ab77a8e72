"""Speed-ups, the Pareto front and files of a sweep's rows."""

import csv
import dataclasses
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from laws import tried
from matplotlib.figure import Figure

from layerdag.errors import UsageError
from layerdag.simulator.sweep import SweepRow, draw, pareto_front, speed_ups, write_rows


def row(
    workload: str = "w", cost: float = 1.0, makespan: int = 100, error: str = "", network: str = "n"
) -> SweepRow:
    return SweepRow(
        workload, "s", network, "reference", "unaware", cost, makespan_ns=makespan, error=error
    )


rows_of = st.lists(
    st.builds(
        row,
        workload=st.sampled_from(["a", "b"]),
        cost=st.integers(0, 4).map(float),
        makespan=st.integers(1, 5),
        error=st.sampled_from(["", "", "", "stuck"]),
    ),
    max_size=8,
)


@given(rows_of)
@tried(40)
def test_no_row_of_a_front_is_beaten_and_every_other_row_is(rows):
    front = pareto_front(rows)
    complete = [r for r in rows if not r.error]
    assert all(r in complete for r in front)

    def beats(a: SweepRow, b: SweepRow) -> bool:
        no_worse = a.cost <= b.cost and a.makespan_ns <= b.makespan_ns
        better = a.cost < b.cost or a.makespan_ns < b.makespan_ns
        return a.workload == b.workload and no_worse and better

    assert not any(beats(a, b) for a in complete for b in front)
    beaten = [r for r in complete if r not in front]
    assert all(any(beats(a, b) for a in front) for b in beaten)
    assert front == sorted(front, key=lambda r: (r.workload, r.cost, r.makespan_ns))


@given(rows_of)
@tried(25)
def test_speed_ups_are_against_the_slowest_of_the_same_workload(rows):
    complete = [r for r in rows if not r.error]
    expected = [
        (r, max(o.makespan_ns for o in complete if o.workload == r.workload) / r.makespan_ns)
        for r in complete
    ]
    assert speed_ups(rows) == expected


def test_rows_of_equal_cost_and_time_all_stay_on_the_front():
    rows = [row(network="a"), row(network="b")]
    assert pareto_front(rows) == rows


def test_rows_without_a_makespan_have_no_speed_up():
    assert speed_ups([row(makespan=0), row(makespan=50)]) == [(row(makespan=50), 1.0)]


def test_a_csv_file_has_a_column_for_everything_a_row_holds(tmp_path):
    rows = [row(), row(error="rank 0 waits, forever")]
    write_rows(rows, tmp_path / "r.csv")
    with (tmp_path / "r.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert found == [{k: str(v) for k, v in dataclasses.asdict(r).items()} for r in rows]


def test_parquet_without_its_package_names_the_remedy_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"needs the package pyarrow, .*; write \.csv instead"):
        write_rows([row()], tmp_path / "r.parquet")
    assert list(tmp_path.iterdir()) == []


class FakeParquet:
    """Stands in for pyarrow, which few machines have: it writes what it is given as text."""

    class Table:
        @staticmethod
        def from_pylist(rows: list[dict[str, object]]) -> str:
            return repr(rows)

    class parquet:  # noqa: N801
        @staticmethod
        def write_table(table: str, path) -> None:
            path.write_text(table)


def test_parquet_gets_the_same_columns(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", FakeParquet)
    write_rows([row()], tmp_path / "r.parquet")
    assert (tmp_path / "r.parquet").read_text() == repr([dataclasses.asdict(row())])


@pytest.mark.parametrize(
    ("name", "magic"), [("p.png", b"\x89PNG"), ("p.svg", b"<?xml"), ("p", b"\x89PNG")]
)
def test_pictures_have_the_format_of_their_name_and_png_without_one(tmp_path, name, magic):
    draw([row(), row(makespan=50), row(error="stuck")], tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(magic)


def test_a_picture_has_a_bar_for_each_complete_row_in_milliseconds(tmp_path, monkeypatch):
    drawn = {}

    def keep(figure: Figure, file: Path, **ignored: object) -> None:
        drawn["figure"] = figure
        file.touch()

    monkeypatch.setattr(Figure, "savefig", keep)
    rows = [row("b", makespan=3_000_000), row("a", makespan=2_000_000), row(error="stuck")]
    draw(rows, tmp_path / "p")
    (axes,) = drawn["figure"].axes
    assert [bar.get_width() for bar in axes.patches] == [2.0, 3.0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["a | s | n | reference", "b | s | n | reference"]
    assert drawn["figure"].get_figheight() == pytest.approx(1 + 0.28 * 2)
