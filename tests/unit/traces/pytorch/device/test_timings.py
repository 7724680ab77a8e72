"""Tables of measured durations: written, read, refused."""

import json

import pytest
from hypothesis import given, strategies as st
from laws import tried

from layerdag.errors import TraceError
from layerdag.traces.pytorch.device import Timings, read_durations, write_durations

ROWS = [[7, 1.5, 2.25], [9, 0, 0.0004]]


def table(tmp_path, content: object):
    path = tmp_path / "durations.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_columns_are_found_by_name_and_microseconds_become_nanoseconds(tmp_path):
    found = read_durations(table(tmp_path, {"cols": ["rf_id", "ts_us", "dur_us"], "rows": ROWS}))
    assert found.of == {7: (1500, 2250), 9: (0, 0)}
    assert found.source.endswith("durations.json")
    rows = [["x", 2.25, 7, 1.5]]
    swapped = table(tmp_path, {"cols": ["name", "dur_us", "rf_id", "ts_us"], "rows": rows})
    assert read_durations(swapped).of == {7: (1500, 2250)}


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "[" * 100_000,
        {"rows": []},
        {"cols": ["rf_id", "ts_us"], "rows": []},
        {"cols": ["rf_id", "ts_us", "dur_us"]},
        {"cols": ["rf_id", "ts_us", "dur_us"], "rows": [[1, 2]]},
        {"cols": ["rf_id", "ts_us", "dur_us"], "rows": [[[1], 2, 3]]},
        {"cols": ["rf_id", "ts_us", "dur_us"], "rows": [[1, "2", 3]]},
        {"cols": ["rf_id", "ts_us", "dur_us"], "rows": [[1, None, 3]]},
        '{"cols": ["rf_id", "ts_us", "dur_us"], "rows": [[1, 1e999, 3]]}',
        {"cols": [["rf_id"]], "rows": []},
        {"cols": 5, "rows": []},
    ],
)
def test_other_tables_are_refused_with_what_is_needed(tmp_path, content):
    with pytest.raises(TraceError, match=r"durations\.json is no table of durations .*'cols'"):
        read_durations(table(tmp_path, content))


def test_a_missing_table_is_named(tmp_path):
    with pytest.raises(TraceError, match=r"nowhere\.json"):
        read_durations(tmp_path / "nowhere.json")


@tried(30)
@given(
    st.dictionaries(
        st.integers(0, 2**40), st.tuples(st.integers(0, 2**50), st.integers(0, 2**40)), max_size=5
    )
)
def test_what_is_written_is_read_to_the_nanosecond(tmp_path_factory, of):
    path = tmp_path_factory.mktemp("timings") / "t.json"
    write_durations(Timings(of), path)
    assert read_durations(path).of == of
