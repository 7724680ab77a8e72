"""The user's ASTRA-sim, played by a script: a run counts only when it is complete."""

import gzip
import json
import sys
from pathlib import Path

import pytest
from simulator_traces import comp, node, workload

from layerdag.cli.main import main
from layerdag.errors import ConfigError, SimulationError, UsageError
from layerdag.simulator.astra_sim import (
    AstraRequest,
    in_units,
    parse_outcome,
    reference_memory,
    run_binary,
)
from layerdag.simulator.config import RunOptions
from layerdag.simulator.run import simulate
from layerdag.traces.builder import NodeSpec
from layerdag.traces.chakra.workload import write_workload
from layerdag.traces.trace import Attribute, NodeType, Wire

JOB = workload([comp(3, 1), comp(7, 2, (3,))], [comp(3, 1)])
NODE_LINES = """
issue,sys->id=0, tick=0, node->id=3, node->name=a, node->type=4
callback,sys->id=0, tick=1000, node->id=3, node->name=a, node->type=4
issue,sys->id=0, tick=1000, node->id=7, node->name=b, node->type=4
callback,sys->id=0, tick=3000, node->id=7, node->name=b, node->type=4
issue,sys->id=1, tick=0, node->id=3, node->name=a, node->type=4
callback,sys->id=1, tick=1000, node->id=3, node->name=a, node->type=4
"""
FINISHED = """
[workload] [info] sys[1] finished, 1000 cycles, exposed communication 0 cycles.
[workload] [info] sys[0] finished, 3000 cycles, exposed communication 5 cycles.
"""
# Node lines go to log/log.log, and only with trace-enabled, as the real binary does it.
SCRIPT = """#!{python}
import json, os, sys
flags = dict(word.lstrip("-").split("=", 1) for word in sys.argv[1:])
assert os.path.exists(flags["workload-configuration"] + ".1.et")
assert json.load(open(flags["remote-memory-configuration"]))
assert open(flags["network-configuration"]).read() == "network"
assert flags["comm-group-configuration"] == "empty"
assert flags["num-queues-per-dim"] == "2"
if json.load(open(flags["system-configuration"]))["trace-enabled"]:
    os.mkdir("log")
    open("log/log.log", "w").write({nodes!r})
print({finished!r})
{rest}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the job's files; ``script`` adds the binary."""
    write_workload(JOB, tmp_path / "w")
    (tmp_path / "system.json").write_text('{"trace-enabled": 0}')
    (tmp_path / "network.yml").write_text("network")
    return tmp_path


def run_stub(folder: Path, nodes: str, finished: str, rest: str = "", *flags: str) -> int:
    """Run the CLI on a binary that logs, prints and does what is given."""
    binary = folder / "astra"
    text = SCRIPT.format(python=sys.executable, nodes=nodes, finished=finished, rest=rest)
    binary.write_text(text)
    binary.chmod(0o755)
    words = ["simulate", "--backend=astra-sim", f"--binary={binary}", "--num-queues-per-dim=2"]
    words += [f"--workload={folder / 'w'}", f"--system={folder / 'system.json'}"]
    return main([*words, f"--network={folder / 'network.yml'}", *flags])


def test_the_groups_of_a_workload_are_handed_over(folder, monkeypatch):
    grouped = workload([comp(3, 1), comp(7, 2, (3,))], [comp(3, 1)], groups={"1": (0, 1)})
    write_workload(grouped, folder / "w", overwrite=True)
    handed = 'json.load(open(flags["comm-group-configuration"])) == {{"1": [0, 1]}}'
    script = SCRIPT.replace('flags["comm-group-configuration"] == "empty"', handed)
    monkeypatch.setitem(globals(), "SCRIPT", script)
    assert run_stub(folder, NODE_LINES, FINISHED) == 0


def test_complete_run_counts_whatever_the_exit_code(folder, capsys):
    flags = ("--json", f"--nodes={folder / 'nodes.csv'}")
    assert run_stub(folder, NODE_LINES, FINISHED, "sys.stdout.flush(); os._exit(134)", *flags) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["finish"] == {"0": 3000, "1": 1000}
    assert found["exposed_comm"] == {"0": 5, "1": 0}
    assert (found["makespan"], found["nodes"]) == (3000, 3)
    lines = (folder / "nodes.csv").read_text().splitlines()
    assert lines == [
        "sys,node_id,node_type,issue_tick,finish_tick,type,name",
        "0,3,4,0,1000,COMP,n3",
        "0,7,4,1000,3000,COMP,n7",
        "1,3,4,0,1000,COMP,n3",
    ]


def test_logs_are_kept_where_the_user_wants_them(folder, capsys):
    flags = (f"--logging-folder={folder / 'logs'}", "--logging-configuration=log.toml")
    seen = f"assert flags['logging-configuration'] == {str(Path('log.toml').resolve())!r}"
    assert run_stub(folder, NODE_LINES, FINISHED, seen, *flags) == 0
    assert (folder / "logs" / "log.log").read_text() == NODE_LINES
    assert capsys.readouterr().err == ""


def test_the_line_with_the_cause_is_told_beside_the_last_one(folder, capsys):
    cause = "[critical] a callable is removed before call Comm node should not be on CPU"
    words = f"print({cause!r}); print('[warning] Exiting')"
    assert run_stub(folder, "", "", words) == 1
    assert f"the last it printed: {cause} ... [warning] Exiting" in capsys.readouterr().err


def test_stuck_rank_is_an_error_though_the_exit_code_is_0(folder, capsys):
    only_one = FINISHED.splitlines()[1]
    assert run_stub(folder, NODE_LINES, only_one, "", "--json") == 1
    out, error = capsys.readouterr()
    assert "rank 0 printed no 'finished' line (1 of 2" in error
    assert error.count("\n") == 1
    assert out == ""


def test_runs_that_drop_a_node_crash_or_spin_are_errors(folder, capsys):
    dropped = "\n".join(line for line in NODE_LINES.splitlines() if "node->id=7" not in line)
    assert run_stub(folder, dropped, FINISHED) == 1
    assert "node 7 of rank 0 is not reported done (1 of 3" in capsys.readouterr().err
    words = "sys.stderr.write('what(): bad_cast'); sys.stderr.flush(); os.abort()"
    assert run_stub(folder, "", "", words) == 1
    assert "exit code was -6, the last it printed: what(): bad_cast" in capsys.readouterr().err
    assert run_stub(folder, "", "", "import time; time.sleep(60)", "--timeout=0.3") == 1
    assert "did not end within 0.3 s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("sys[1] finished, 9 cycles, exposed communication 0 cycles.", "rank 1 finished twice"),
        ("sys[2] finished, 9 cycles, exposed communication 0 cycles.", "has 2 ranks"),
    ],
)
def test_contradictions_are_errors(more, message):
    with pytest.raises(SimulationError, match=message):
        parse_outcome(NODE_LINES + FINISHED + more, JOB)


def test_lines_may_occur_twice():
    assert parse_outcome((NODE_LINES + FINISHED) * 2, JOB) == parse_outcome(
        NODE_LINES + FINISHED, JOB
    )


def test_what_the_binary_cannot_do_is_wrong_use(folder, capsys):
    assert run_stub(folder, NODE_LINES, FINISHED, "", "--report") == 2
    assert "--report is layerdag's own" in capsys.readouterr().err
    words = ["simulate", f"--workload={folder / 'w'}", "--system=s", "--network=n"]
    assert main([*words, "--backend=astra-sim"]) == 2
    assert main([*words, "--binary=b"]) == 2
    (folder / "astra").unlink()
    words[2:] = [f"--system={folder / 'system.json'}", f"--network={folder / 'network.yml'}"]
    assert main([*words, "--backend=astra-sim", f"--binary={folder / 'astra'}"]) == 2
    assert "cannot be run" in capsys.readouterr().err


def request_of(folder: Path, **more: object) -> AstraRequest:
    """Return a request for the job of ``folder``."""
    given = {
        "binary": str(folder / "astra"),
        "prefix": str(folder / "w"),
        "system": str(folder / "system.json"),
        "network": str(folder / "network.yml"),
        "memory": None,
        "options": RunOptions(queues_per_dimension=3, injection_scale=0.5, rendezvous=True),
        "timeout_s": 20.0,
    }
    return AstraRequest(**{**given, **more})


def echo(folder: Path, rest: str = "") -> Path:
    """Write a binary that keeps its command line and finishes the job; return where it does."""
    seen = folder / "seen.json"
    folder.joinpath("astra").write_text(
        f"#!{sys.executable}\n"
        "import json, sys\n"
        "flags = dict(word.lstrip('-').split('=', 1) for word in sys.argv[1:])\n"
        f"json.dump(flags, open({str(seen)!r}, 'w'))\n"
        f"print({NODE_LINES + FINISHED!r})\n{rest}\n"
    )
    folder.joinpath("astra").chmod(0o755)
    return seen


def test_options_of_a_run_become_flags_of_the_binary(folder):
    seen = echo(folder)
    outcome = run_binary(JOB, request_of(folder, memory=str(folder / "m.json"), logging="empty"))
    flags = json.loads(seen.read_text())
    assert outcome.finish_ns == (3000, 1000)
    assert flags["num-queues-per-dim"] == "3"
    assert flags["injection-scale"] == "0.5"
    assert flags["rendezvous-protocol"] == "true"
    assert flags["remote-memory-configuration"] == str((folder / "m.json").resolve())
    assert flags["network-configuration"] == str((folder / "network.yml").resolve())
    assert flags["comm-group-configuration"] == "empty"
    # "empty" is a word of the binary, not a file of ours.
    assert flags["logging-configuration"] == "empty"


def test_without_a_logging_configuration_none_is_named(folder):
    seen = echo(folder)
    run_binary(JOB, request_of(folder))
    assert "logging-configuration" not in json.loads(seen.read_text())


def test_compressed_traces_are_handed_over_uncompressed(folder):
    for path in folder.glob("w.*.et"):
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
    sizes = [path.stat().st_size for path in sorted(folder.glob("w.*.et"))]
    for path in folder.glob("w.*.et"):
        path.unlink()
    told = folder / "sizes.json"
    echo(
        folder,
        "import os\n"
        "names = [flags['workload-configuration'] + f'.{rank}.et' for rank in (0, 1)]\n"
        f"json.dump([os.path.getsize(name) for name in names], open({str(told)!r}, 'w'))",
    )
    assert run_binary(JOB, request_of(folder)).finish_ns == (3000, 1000)
    assert json.loads(told.read_text()) == sizes


def test_a_job_of_one_rank_is_refused_before_the_binary_runs(folder):
    with pytest.raises(SimulationError, match=r"is a job of one rank; .* Leave --backend out"):
        run_binary(workload([comp(0, 1)]), request_of(folder))


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "cannot be read as JSON"), ("[1]", "holds no mapping of keys to values")],
)
def test_a_system_file_that_cannot_be_copied_is_named(folder, text, words):
    echo(folder)
    (folder / "system.json").write_text(text)
    with pytest.raises(ConfigError) as caught:
        run_binary(JOB, request_of(folder))
    assert str(caught.value).startswith(f"{folder / 'system.json'}: ")
    assert words in str(caught.value)


def test_logs_that_cannot_be_kept_are_wrong_use(folder):
    echo(folder, "open('a.log', 'w').write('x')")
    (folder / "file").write_text("")
    with pytest.raises(UsageError, match=r"file.*: logs cannot be written there"):
        run_binary(JOB, request_of(folder, log_folder=str(folder / "file")))


def test_a_silent_binary_is_quoted_as_having_printed_nothing(folder):
    (folder / "astra").write_text(f"#!{sys.executable}\n")
    (folder / "astra").chmod(0o755)
    with pytest.raises(SimulationError, match=r"exit code was 0, the last it printed: nothing"):
        run_binary(JOB, request_of(folder))


def test_the_summary_has_the_keys_of_our_own():
    found = parse_outcome(NODE_LINES + FINISHED, JOB)
    assert found.summary() == {
        "backend": "astra-sim",
        "makespan": 3000,
        "finish": {"0": 3000, "1": 1000},
        "exposed_comm": {"0": 5, "1": 0},
        "ranks": 2,
        "nodes": 3,
        "unit": "ns",
    }
    assert found.ticks[0, 7] == (1000, 3000)


def test_negative_exposed_communication_is_read():
    negative = FINISHED.replace("communication 5", "communication -5")
    assert parse_outcome(NODE_LINES + negative, JOB).exposed_comm_ns == (-5, 0)


_TEXTS = Wire.STRING + 1


def using(id: int, inputs: tuple[str, ...], outputs: tuple[str, ...] | None, *deps: int):
    """Return a node of 1 us; without outputs the attribute has no value, as STAGE writes it."""
    written = (
        Attribute("outputs", _TEXTS, outputs) if outputs else Attribute("outputs", Wire.UNSET, None)
    )
    read = Attribute("inputs", _TEXTS, inputs) if inputs else Attribute("inputs", Wire.UNSET, None)
    return NodeSpec(
        id, f"n{id}", NodeType.COMP, data_deps=deps, duration_us=1, attributes=(read, written)
    )


NODES = [
    using(0, ("weight", "100"), ("a", "10")),
    using(1, ("a", "10", "none", "0"), ("b", "40"), 0),
    using(2, ("b", "40", "weight", "100"), None, 1),
]


def test_a_tensor_is_held_from_its_writer_to_its_last_reader():
    found = reference_memory(simulate(workload(NODES), compute="measured"), 0)
    # The weight is there from the start; "a" ends with node 1, "b" and the weight with node 2.
    assert found.usage == {0: 110, 1000: 150, 2000: 140, 3000: 0}
    assert found.peak == 150
    events = list(found.events())
    reads = [e for e in events if e.get("cat") == "tensorRead"]
    assert [(e["name"], e["ph"], e["ts"]) for e in reads[:4]] == [
        ("weight", "B", 0.0), ("weight", "E", 1.0), ("weight", "B", 2.0), ("weight", "E", 3.0),
    ]  # fmt: skip
    counted = [e["args"]["Memory_MB"] * 2**20 for e in events if e["ph"] == "C"]
    assert counted == list(found.usage.values())


def test_a_node_without_its_tensors_is_one_sentence():
    result = simulate(workload([*NODES, node(3, NodeType.COMP, (2,), 1)]), compute="measured")
    with pytest.raises(SimulationError, match="node 3 has no attribute 'inputs', which track-loc"):
        reference_memory(result, 0)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0.00 B"), (1536, "1.50 KB"), (151_980_000, "144.94 MB")]
)
def test_peaks_are_told_in_the_units_of_the_reference(size, text):
    assert in_units(size) == text


def test_the_command_writes_a_file_for_each_rank_and_the_report(tmp_path, capsys):
    write_workload(workload(NODES, NODES), tmp_path / "w")
    system = {
        "preferred-dataset-splits": 1, "collective-optimization": "baseline",
        "track-local-mem": 1, "local-mem-trace-filename": str(tmp_path / "memory"),
    }  # fmt: skip
    (tmp_path / "s.json").write_text(json.dumps(system))
    (tmp_path / "n.yml").write_text(
        "topology: [Ring]\nnpus_count: [2]\nbandwidth: [50]\nlatency: [5]\n"
    )
    words = ["simulate", str(tmp_path / "w"), "--system", str(tmp_path / "s.json")]
    words += ["--network", str(tmp_path / "n.yml")]
    assert main([*words, "--report", "--memory-capacity", "1"]) == 0
    assert "peak memory usage: 150.00 B" in capsys.readouterr().out
    written = json.loads((tmp_path / "memory.1.json").read_text())
    assert {event["pid"] % 10 for event in written["traceEvents"]} == {1}
    (tmp_path / "memory.0.json").write_text("mine")
    assert main(words) == 2
    assert "holds no memory trace and is not replaced" in capsys.readouterr().err
