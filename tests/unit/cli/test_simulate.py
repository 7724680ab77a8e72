"""``layerdag simulate`` on files: outputs, summary, exit codes."""

import json
from pathlib import Path

import pytest
from simulator_traces import all_reduce, comp, recv, workload

from layerdag.cli.main import main
from layerdag.traces.workload import write_workload

SYSTEM = {
    "preferred-dataset-splits": 1,
    "collective-optimization": "localBWAware",
    "all-reduce-implementation": ["ring"],
}
NETWORK = "topology: [Ring]\nnpus_count: [2]\nbandwidth: [1]\nlatency: [100]\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return a folder with a two-rank workload (1 us of compute, an all-reduce) and configs."""
    nodes = [comp(0, 1), all_reduce(1, 2048, (0,))]
    write_workload(workload(nodes, nodes), tmp_path / "w")
    (tmp_path / "system.json").write_text(json.dumps(SYSTEM))
    (tmp_path / "network.yml").write_text(NETWORK)
    return tmp_path


def simulate(folder: Path, *flags: str) -> int:
    return main(
        [
            "simulate",
            "--workload",
            str(folder / "w"),
            "--system",
            str(folder / "system.json"),
            "--network",
            str(folder / "network.yml"),
            *flags,
        ]
    )


# T = floor(100 + 1024 / 1.073741824) = 1053; 3 E + 2 T = 2136 after 1000 ns of compute.
FINISH = 1000 + 2136


def test_all_outputs_are_written(files, capsys):
    flags = [f"--{name}={files / name}" for name in ("json", "trace", "nodes")]
    assert simulate(files, *flags) == 0
    result = json.loads((files / "json").read_text())
    assert result["finish"] == {"0": FINISH, "1": FINISH}
    assert result["exposed_comm"] == {"0": 2136, "1": 2136}
    assert result["makespan"] == FINISH
    lines = (files / "nodes").read_text().splitlines()
    assert lines[0] == "sys,node_id,node_type,issue_tick,finish_tick"
    assert lines[1:3] == ["0,0,4,0,1000", f"0,1,7,1000,{FINISH}"]
    events = json.loads((files / "trace").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X" and event["pid"] == 1]
    assert [(span["name"], span["ts"], span["dur"]) for span in spans] == [
        ("n0", 0.0, 1.0),
        ("n1", 1.0, 2.136),
    ]
    assert f"makespan {FINISH} ns" in capsys.readouterr().out


def test_json_to_standard_output_is_nothing_but_json(files, capsys):
    assert simulate(files, "--json", "-") == 0
    assert json.loads(capsys.readouterr().out)["makespan"] == FINISH


def test_names_of_the_reference_are_accepted(files, capsys):
    words = ["simulate", "--workload-configuration", str(files / "w")]
    words += ["--system-configuration", str(files / "system.json")]
    words += ["--network-configuration", str(files / "network.yml")]
    words += ["--comm-group-configuration", "empty", "--num-queues-per-dim=2", "--json=-"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["makespan"] == FINISH


def test_deadlock_exits_with_one_line_and_no_output_file(files, capsys):
    write_workload(workload([comp(0, 1), recv(1, 1, 8)], [comp(0, 1)]), files / "w")
    assert simulate(files, "--json", str(files / "out.json")) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "waits for rank 1" in error
    assert not (files / "out.json").exists()


def test_wrong_config_exits_with_2(files, capsys):
    (files / "system.json").write_text(json.dumps({**SYSTEM, "endpoint-dely": 1}))
    assert simulate(files) == 2
    assert "did you mean 'endpoint-delay'" in capsys.readouterr().err


def test_missing_workload_exits_with_1(files, capsys):
    write_workload(workload([comp(0, 1)], [comp(0, 1)]), files / "v")
    for path in files.glob("w.*"):
        path.unlink()
    assert simulate(files) == 1
    assert "w" in capsys.readouterr().err


def test_preset_needs_no_configuration_files(files, capsys):
    words = ["simulate", f"--workload={files / 'w'}", "--preset=small", "--report", "--what-if"]
    assert main([*words, "--json=-"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert sum(result["breakdown"]["0"].values()) == result["finish"]["0"]
    assert [node["node"] for node in result["critical_path"]] == [0, 1]
    assert result["what_if"][0]["makespan_ns"] == result["makespan"]
    assert main(words) == 0
    assert "critical path: 2 nodes" in capsys.readouterr().out


def test_preset_and_files_exclude_each_other(files, capsys):
    assert simulate(files, "--preset", "small") == 2
    assert main(["simulate", "--workload", str(files / "w")]) == 2
    assert "--preset" in capsys.readouterr().err


def test_compute_model_is_chosen_by_name(files, capsys):
    assert simulate(files, "--compute", "measured", "--json=-") == 0
    assert json.loads(capsys.readouterr().out)["makespan"] == FINISH
    assert simulate(files, "--compute", "h100") == 1
    assert "neither num_ops nor tensor_size" in capsys.readouterr().err
    assert simulate(files, "--compute", "h10") == 2
    assert "did you mean 'h100'" in capsys.readouterr().err


def test_ranks_may_differ(files, capsys):
    assert simulate(files, "--slow", "1=2", "--json=-") == 0
    assert json.loads(capsys.readouterr().out)["compute"] == {"0": 1000, "1": 2000}
    assert simulate(files, "--noise", "2.5,0.1,7", "--json=-") == 0
    assert json.loads(capsys.readouterr().out)["makespan"] > FINISH
    assert simulate(files, "--slow", "1") == 2
    assert simulate(files, "--noise", "2.5") == 2
    assert "EXPONENT,SCALE,SEED" in capsys.readouterr().err


def test_a_switch_reduces_where_the_system_file_says_so(files, capsys):
    system = {**SYSTEM, "all-reduce-implementation": ["inNetwork"]}
    (files / "system.json").write_text(json.dumps(system))
    assert simulate(files, "--json=-") == 2
    assert "dimension 0, which is a Ring" in capsys.readouterr().err
    (files / "network.yml").write_text(NETWORK.replace("Ring", "Switch"))
    # 1000 ns of compute, E, floor(2 x 100 + 2048 / 1.073741824) = 2107, E.
    assert simulate(files, "--json=-") == 0
    assert json.loads(capsys.readouterr().out)["makespan"] == 1000 + 10 + 2107 + 10


def test_communication_streams_are_a_flag_of_ours(files, capsys):
    nodes = [all_reduce(0, 2048), all_reduce(1, 2048)]
    write_workload(workload(nodes, nodes), files / "w")
    for streams, expected in (("1", 2 * 2136), ("2", 2136)):
        assert simulate(files, "--comm-streams", streams, "--json=-") == 0
        assert json.loads(capsys.readouterr().out)["makespan"] == expected
    assert simulate(files, "--comm-streams", "0") == 2
    assert simulate(files, "--comm-streams=2", "--backend=astra-sim", "--binary=x") == 2
    assert "--comm-streams is layerdag's own" in capsys.readouterr().err
