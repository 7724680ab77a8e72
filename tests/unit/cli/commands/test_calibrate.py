"""``layerdag calibrate`` and what ``layerdag simulate --machine`` makes of it."""

import json
from pathlib import Path

import pytest
from simulator_traces import all_reduce, comp, workload

from layerdag.cli.main import main
from layerdag.simulator.calibration import read_machine
from layerdag.traces.chakra.workload import write_workload

COSTS = {"num_ops": 10**12, "tensor_size": 10**9, "dtype": "bfloat16"}
LINK = ("--link", "1000,450")


@pytest.fixture
def measured(tmp_path) -> Path:
    """Return a folder with a job of one and of two ranks, and their times in runs.csv."""
    nodes = [comp(0, 0, **COSTS)]
    write_workload(workload(nodes), tmp_path / "alone")
    nodes = [*nodes, all_reduce(1, 10**8, (0,))]
    write_workload(workload(nodes, nodes), tmp_path / "pair")
    (tmp_path / "runs.csv").write_text("workload,seconds\nalone,0.002022\nalone,0.0021\n")
    return tmp_path


def calibrate(folder: Path, *flags: str) -> int:
    out = str(folder / "machine.json")
    return main(["calibrate", str(folder / "runs.csv"), "--out", out, *flags])


def test_one_run_on_a_device_predicts_another(measured, capsys):
    # 1e12 operations at 989e12 per second take 1.011 ms, half as fast 2.022 ms.
    assert calibrate(measured, "--device", "h100", *LINK) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("1 measured run\n")
    assert "efficiency  0.500 of h100; the same as --compute h100:efficiency=0.500" in printed
    assert "link        1,000 ns, 450.000 GB/s" in printed
    assert "error       not known" in printed
    machine = str(measured / "machine.json")
    words = ["simulate", str(measured / "pair"), "--machine", machine]
    assert main(words) == 0
    assert "too few measured runs for an interval" in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["prediction"]
    # The all-reduce adds 2 (1000 ns + 5e7 B / 450 B per ns) and 3 endpoint delays.
    assert found["step_s"] == pytest.approx(0.002022 + 2 * (1e-6 + 5e7 / 450e9), rel=1e-3)
    assert found["ranks_per_core"] == 1


def test_the_interval_and_shared_cores_are_told(measured, capsys):
    assert calibrate(measured, "--device", "h100", "--cores", "1", *LINK) == 0
    path = measured / "machine.json"
    document = json.loads(path.read_text())
    document["together"] = {
        "runs": 20, "low": 0.5, "middle": 1.0, "high": 2.0, "most_ranks": 1, "error": 0.2,
    }  # fmt: skip
    path.write_text(json.dumps(document))
    capsys.readouterr()
    words = ["simulate", str(measured / "pair"), "--machine", str(path)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "ranks take turns, 2 on a core" in printed
    assert "like four in five of 20 measured ones" in printed
    assert "on more ranks than were measured (1)" in printed
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["prediction"]
    assert found["high_s"] == pytest.approx(4 * found["low_s"])


def test_a_machine_of_the_corpus_is_written(tmp_path, capsys):
    out = str(tmp_path / "machine.json")
    flags = ["--families", "dlrm", "--ranks", "1", "--out", out]
    assert main(["calibrate", "data", *flags]) == 0
    printed = capsys.readouterr().out
    assert "84 measured runs" in printed
    assert "one rank    error" in printed
    machine = read_machine(out)
    assert machine.link is None
    assert machine.alone is not None
    assert machine.alone.runs == 84


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--device", "h1000"), "there is no device 'h1000'. Did you mean 'h100'"),
        (("--link", "fast"), "--link is 'fast'"),
        (("--ranks", "one"), "--ranks is 'one'"),
        ((), "measured runs of one rank: 1"),
    ],
)
def test_wrong_use_is_refused(flags, message, measured, capsys):
    assert calibrate(measured, *flags) == 2
    assert message in capsys.readouterr().err
    assert not (measured / "machine.json").exists()


@pytest.mark.parametrize("flag", ["--preset=small", "--compute=h100", "--system=s.json"])
def test_a_machine_takes_no_second_description(flag, measured, capsys):
    pair = str(measured / "pair")
    assert main(["simulate", pair, "--machine", "m.json", flag]) == 2
    assert "--machine states what" in capsys.readouterr().err
