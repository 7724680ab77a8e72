"""``layerdag simulate`` on files: outputs, summary, exit codes."""

import dataclasses
import json
from pathlib import Path

import pytest
from simulator_traces import all_reduce, comp, node, recv, workload

from layerdag.cli.main import main
from layerdag.simulator.run import NOT_MODELED
from layerdag.traces.chakra.workload import write_workload
from layerdag.traces.trace import NodeType

SYSTEM = {
    "preferred-dataset-splits": 1,
    "collective-optimization": "localBWAware",
    "all-reduce-implementation": ["ring"],
}
NETWORK = "topology: [Ring]\nnpus_count: [2]\nbandwidth: [1]\nlatency: [100]\n"


@pytest.fixture
def files(tmp_path) -> Path:
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
    flags = [f"--{name}={files / name}" for name in ("trace", "nodes")]
    assert simulate(files, *flags, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["finish"] == {"0": FINISH, "1": FINISH}
    assert result["exposed_comm"] == {"0": 2136, "1": 2136}
    assert result["makespan"] == FINISH
    lines = (files / "nodes").read_text().splitlines()
    assert lines[0] == "sys,node_id,node_type,issue_tick,finish_tick,type,name"
    assert lines[1:3] == ["0,0,4,0,1000,COMP,n0", f"0,1,7,1000,{FINISH},COMM_COLL,n1"]
    events = json.loads((files / "trace").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X" and event["pid"] == 1]
    assert [(span["name"], span["ts"], span["dur"]) for span in spans] == [
        ("n0", 0.0, 1.0),
        ("n1", 1.0, 2.136),
    ]
    assert simulate(files) == 0
    assert f"makespan {FINISH} ns" in capsys.readouterr().out


def test_names_of_the_reference_are_accepted(files, capsys):
    words = ["simulate", "--workload-configuration", str(files / "w")]
    words += ["--system-configuration", str(files / "system.json")]
    words += ["--network-configuration", str(files / "network.yml")]
    words += ["--comm-group-configuration", "empty", "--num-queues-per-dim=2", "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["makespan"] == FINISH


def test_deadlock_exits_with_one_line_and_no_output_file(files, capsys):
    write_workload(workload([comp(0, 1), recv(1, 1, 8)], [comp(0, 1)]), files / "w", overwrite=True)
    assert simulate(files, "--json", "--trace", str(files / "out.json")) == 1
    out, error = capsys.readouterr()
    assert out == ""
    assert error.count("\n") == 1
    assert "waits for rank 1" in error
    assert not (files / "out.json").exists()


def test_wrong_config_exits_with_2(files, capsys):
    (files / "system.json").write_text(json.dumps({**SYSTEM, "endpoint-dely": 1}))
    assert simulate(files) == 2
    assert "Did you mean 'endpoint-delay'" in capsys.readouterr().err


def test_missing_workload_exits_with_1(files, capsys):
    write_workload(workload([comp(0, 1)], [comp(0, 1)]), files / "v")
    for path in files.glob("w.*"):
        path.unlink()
    assert simulate(files) == 1
    assert "w" in capsys.readouterr().err


def test_measured_kernels_say_how_nodes_and_collectives_were_timed(files, capsys):
    assert simulate(files, "--compute", "measured:h100") == 0
    assert "links are not those of h100, or share messages" in capsys.readouterr().err
    (files / "network.yml").write_text(NETWORK.replace("bandwidth: [1]", "bandwidth: [450]"))
    assert simulate(files, "--compute", "measured:h100", "--json") == 0
    told = capsys.readouterr()
    found = json.loads(told.out)["kernel_times"]
    assert found["nodes"] == {"table": 0, "roofline": 0, "family": 1}
    assert found["low_s"] < found["busy_s"] < found["high_s"]
    assert "NCCL's times on h100" in told.err
    assert "2 ALL_REDUCE; not measured, so as without: none." in told.err
    assert simulate(files, "--compute", "measured:h100", "--congestion", "aware-multi") == 0
    assert "share messages; --collectives h100 takes NCCL's times" in capsys.readouterr().err
    for simulated in (["--collectives", "simulated"], ["--reference-semantics"]):
        assert simulate(files, "--compute", "measured:h100", *simulated) == 0
        told = capsys.readouterr()
        assert "kernels of rank 0: 1 by a roofline of their family; busy 0.00" in told.out
        assert "NCCL's times" not in told.err


def test_ranks_may_differ(files, capsys):
    assert simulate(files, "--slow", "1=2", "--json") == 0
    assert json.loads(capsys.readouterr().out)["compute"] == {"0": 1000, "1": 2000}
    assert simulate(files, "--noise", "2.5,0.1,7", "--json") == 0
    assert json.loads(capsys.readouterr().out)["makespan"] > FINISH
    assert simulate(files, "--slow", "1") == 2
    assert simulate(files, "--noise", "2.5") == 2
    assert "EXPONENT,SCALE,SEED" in capsys.readouterr().err


def test_communication_streams_are_a_flag_of_ours(files, capsys):
    nodes = [all_reduce(0, 2048), all_reduce(1, 2048)]
    write_workload(workload(nodes, nodes), files / "w", overwrite=True)
    for streams, expected in (("1", 2 * 2136), ("2", 2136)):
        assert simulate(files, "--comm-streams", streams, "--json") == 0
        assert json.loads(capsys.readouterr().out)["makespan"] == expected
    assert simulate(files, "--comm-streams", "0") == 2
    assert simulate(files, "--comm-streams=2", "--backend=astra-sim", "--binary=x") == 2
    assert "--comm-streams is layerdag's own" in capsys.readouterr().err


def preset(*words: str) -> list[str]:
    return ["simulate", *words, "--preset=small", "--json"]


def test_the_workload_may_stand_alone_and_may_be_a_folder(files, capsys):
    assert main(preset(str(files / "w"))) == 0
    alone = json.loads(capsys.readouterr().out)["makespan"]
    assert main(preset(str(files))) == 0
    assert json.loads(capsys.readouterr().out)["makespan"] == alone
    assert main(preset(str(files / "w"), f"--workload={files / 'w'}")) == 2
    assert "the workload is given twice" in capsys.readouterr().err
    assert main(preset()) == 2
    assert "write 'layerdag simulate PREFIX ...'" in capsys.readouterr().err


def test_flags_of_the_reference_that_do_nothing_are_accepted_with_a_note(files, capsys):
    flags = ["--logging-folder=x", "--logging-configuration=empty"]
    assert simulate(files, *flags, "--json") == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["makespan"] == FINISH
    for flag in ("logging-folder", "logging-configuration"):
        assert f"note: --{flag} has no effect" in told.err
    assert not (files / "x").exists()


def test_what_makes_figures_too_small_is_noted(files, capsys):
    nodes = [comp(0, 1), all_reduce(1, 0, (0,))]
    write_workload(workload(nodes, nodes), files / "w", overwrite=True)
    assert simulate(files, "--json") == 0
    told = capsys.readouterr()
    notes = json.loads(told.out)["notes"]
    assert "a collective of 0 bytes runs with a byte for every rank" in notes[0]
    assert "no local-mem-bw, so reductions take 0 ns" in notes[1]
    assert all(f"note: {note}" in told.err for note in notes)
    (files / "system.json").write_text(json.dumps({**SYSTEM, "local-mem-bw": 100}))
    write_workload(
        workload(*[[comp(0, 1), all_reduce(1, 8, (0,))]] * 2), files / "w", overwrite=True
    )
    assert simulate(files) == 0
    assert capsys.readouterr().err.splitlines() == [f"not modeled: {'; '.join(NOT_MODELED)}"]


def test_costs_that_a_run_does_not_use_are_noted_or_refused(files, capsys):
    nodes = [comp(0, 0, num_ops=10**9, tensor_size=8), all_reduce(1, 8, (0,))]
    write_workload(workload(nodes, nodes), files / "w", overwrite=True)
    assert simulate(files) == 0  # as the reference does it, 1 ns per node
    assert "set roofline-enabled to 1" in capsys.readouterr().err
    assert main(preset(str(files / "w"))) == 1
    assert "choose a device with --compute" in capsys.readouterr().err
    assert main([*preset(str(files / "w")), "--compute=h100"]) == 0


def test_recorded_communication_explains_why_info_tells_another_time(files, capsys):
    assert simulate(files) == 0
    assert "recorded" not in capsys.readouterr().out
    measured = dataclasses.replace(all_reduce(1, 2048, (0,)), duration_us=25)
    write_workload(workload(*[[comp(0, 1), measured]] * 2), files / "w", overwrite=True)
    assert simulate(files) == 0
    assert "trace recorded for it (0.025 ms on rank 0), and 'layerdag info' counts, is not" in (
        capsys.readouterr().out
    )
    assert main(["info", str(files / "w")]) == 0
    assert "counts 25 us of communication as it was recorded; 'layerdag simulate' takes" in (
        capsys.readouterr().out
    )


def test_the_line_on_memory_is_left_out_where_no_node_names_its_tensors(files, capsys):
    assert simulate(files, "--report") == 0
    assert "peak local memory" not in capsys.readouterr().out
    assert simulate(files, "--report", "--memory-capacity=1") == 0
    assert "peak local memory 0.000 GB on rank 0, a lower bound" in capsys.readouterr().out


def test_times_of_compute_nodes_come_from_the_model_that_is_asked_for(files, capsys):
    shapes = (None, "[[5, 9], [9, 7]]", None, None, None, None)
    product = dataclasses.replace(comp(0, 1), name="aten::mm", io=shapes)
    write_workload(workload([product], [product]), files / "w", overwrite=True)
    for model, expected in (
        ("measured:scale=3", 3000),
        ("systolic:2x3,dataflow=os", 9 * 12 - 1),
        ("systolic:2x3,clock=0.5", 2 * (15 * 10 - 1)),
    ):
        assert simulate(files, f"--compute={model}", "--json") == 0
        assert json.loads(capsys.readouterr().out)["makespan"] == expected
    assert simulate(files, "--compute=systolic:2by3") == 2
    assert "write ROWSxCOLUMNS" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--nodes=-", "--trace=-"])
def test_only_json_goes_to_standard_output(files, capsys, flag):
    assert simulate(files, flag) == 2
    assert "--nodes and --trace need a file name" in capsys.readouterr().err


def test_files_or_a_preset_are_needed(files, capsys):
    assert main(["simulate", str(files / "w"), f"--system={files / 'system.json'}"]) == 2
    assert "--system and --network are needed (or --preset small" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "told"),
    [
        ("--compute=h100", "--compute is layerdag's own"),
        ("--slow=0=2", "--slow is"),
        ("--noise=2,1,0", "--noise is"),
        ("--congestion=aware", "--congestion is"),
        ("--group-collectives=hierarchical", "--group-collectives is"),
        ("--missing-implementations=skip", "--missing-implementations is"),
        ("--comm-streams=2", "--comm-streams is"),
        ("--memory-capacity=1", "--memory-capacity is"),
    ],
)
def test_flags_of_ours_are_refused_where_another_simulator_runs(files, capsys, flag, told):
    assert simulate(files, "--backend=astra-sim", "--binary=b", flag) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    "flag", ["--slow=1", "--slow=a=2", "--slow=0=fast", "--noise=2,1", "--noise=2,1,x"]
)
def test_malformed_variations_show_the_form(files, capsys, flag):
    assert simulate(files, flag) == 2
    assert "write --slow RANK=FACTOR and --noise EXPONENT,SCALE,SEED" in capsys.readouterr().err


def test_what_if_and_report_stand_in_json_and_on_the_terminal(files, capsys):
    assert simulate(files, "--what-if", "--report") == 0
    printed = capsys.readouterr().out
    assert simulate(files, "--what-if", "--report", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    # dim 0's latency is paid twice: 2 x 10 ns of the makespan.
    changes = {entry["change"]: entry for entry in document["what_if"]}
    assert changes["dim 0 latency -10 %"]["makespan_ns"] == FINISH - 20
    assert f"{FINISH - 20:>15} ns" in printed
    assert document["breakdown"]["1"] == {"compute": 1000, "dim 0": 2136, "idle": 0}
    assert [node["node"] for node in document["critical_path"]] == [0, 1]
    assert document["critical_path"][1]["began_after"] == "dependency"
    assert document["critical_path_by_name"] == {"n1": 2136, "n0": 1000}
    assert f"{2136:>15} ns {2136 / FINISH:>7.1%}  n1" in printed
    assert "critical path: 2 nodes, by kind" in printed
    assert document["critical_path_by_kind"] == {"all_reduce (dim 0)": 2136, "n0": 1000}


def test_a_preset_takes_a_memory_file_and_options(files, capsys):
    (files / "memory.json").write_text(
        '{"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 5, "remote-mem-bw": 2}'
    )
    load = [node(0, NodeType.MEM_LOAD, tensor_size=20), comp(1, 1, (0,))]
    write_workload(workload(load, load), files / "m")
    words = ["simulate", str(files / "m"), "--preset=small", "--json"]
    assert main([*words, f"--memory={files / 'memory.json'}"]) == 0
    assert json.loads(capsys.readouterr().out)["makespan"] == 15 + 1000
    assert main(words) == 1
    assert "NO_MEMORY_EXPANSION" in capsys.readouterr().err


def test_only_so_many_ranks_stand_on_the_terminal(tmp_path, capsys):
    ranks = [[comp(0, 1 + rank // 2)] for rank in range(40)]
    write_workload(workload(*ranks), tmp_path / "w")
    assert main(["simulate", str(tmp_path / "w"), "--preset=small"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "4 kinds of ranks more; --json writes them all" in lines
    rows = [line.split() for line in lines if line.endswith("0.0%")]
    assert [row[0] for row in rows] == [f"{2 * pair}-{2 * pair + 1}" for pair in range(16)]


def test_groups_may_be_left_out(files, capsys):
    nodes = [comp(0, 1), all_reduce(1, 2048, (0,), pg_name="7")]
    write_workload(workload(nodes, nodes, groups={"7": (0, 1)}), files / "g")
    words = ["simulate", str(files / "g"), "--preset=small", "--json"]
    assert main(words) == 0
    capsys.readouterr()
    assert main([*words, "--comm-group=empty"]) == 1
    assert "is in communicator group '7', which the group file does not hold" in (
        capsys.readouterr().err
    )


def test_measured_collectives_and_the_host_are_asked_for(files, capsys):
    def finish(*flags: str) -> int:
        assert simulate(files, *flags, "--json") == 0
        return json.loads(capsys.readouterr().out)["makespan"]

    fitted, hosted = finish("--collectives", "h100"), finish("--host", "model")
    assert fitted > FINISH > 1000
    assert hosted > 2 * 4725 + FINISH


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--collectives", "h10"], "no collectives were measured on 'h10'"),
        (["--collectives", "h100", "--reference-semantics"], "leave --collectives out"),
        (["--host", "guessed"], "write model, measured, none"),
        (["--host", "measured:fast"], "write measured:0.5 or measured:step=0.0123"),
        (["--host", "measured:step="], "write measured:0.5 or measured:step=0.0123"),
        (["--host", "measured"], "no call of the host tells when it started"),
    ],
)
def test_wrong_hosts_and_collectives_are_one_sentence(files, capsys, flags, message):
    assert simulate(files, *flags) == 2
    assert message in capsys.readouterr().err
