"""Recorded cases as command lines."""

import json

import pytest
from benchmark_cases import flags_of


@pytest.mark.parametrize("has_comm", [True, False])
def test_a_case_gives_its_own_flags_and_its_groups_where_it_has_any(tmp_path, has_comm):
    case = {"backend": "aware", "args": ["--chunks=4"], "has_comm": has_comm}
    (tmp_path / "case.json").write_text(json.dumps(case))
    flags = flags_of(tmp_path, tmp_path / "out")
    assert flags[0] == "simulate"
    assert {"--congestion=aware", "--chunks=4"} <= set(flags)
    assert (f"--comm-group={tmp_path / 'comm_group.json'}" in flags) is has_comm
    assert flags[-1] == f"--nodes={tmp_path / 'out' / 'nodes.csv'}"
