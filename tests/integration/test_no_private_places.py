"""Nothing that may be handed on names a path, a user or a host of the machine it was made on."""

import contextlib
import io
import json
import platform
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from random_jobs import random_job

from layerdag.cli.main import main
from layerdag.codec.unfolding import unfold
from layerdag.traces.chakra.workload import write_workload
from layerdag.training.checkpoint import RUN_FILE

pytestmark = pytest.mark.usefixtures("few_redraws")

FOLDER, USER, HOST = "TellingFolder4711", "tellinguser4711", "tellinghost4711"
FAMILY = "tellingfamily4711"
TINY = (
    "model.width=32",
    "model.depth=1",
    "training.max_steps=2",
    "training.evaluate_every=2",
    "training.log_every=1",
    "logger.sample_graphs=1",
    "threads=1",
)
SYSTEM = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 1,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 1,
    "collective-optimization": "baseline",
    **{
        f"{name}-implementation": ["ring"]
        for name in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    },
}
NETWORK = "topology: [Ring]\nnpus_count: [2]\nbandwidth: [50.0]\nlatency: [500.0]\n"


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """Work in a folder with a telling name, as a user and on a host with telling names."""
    folder = tmp_path / FOLDER / USER
    folder.mkdir(parents=True)
    for name in ("USER", "LOGNAME", "USERNAME"):
        monkeypatch.setenv(name, USER)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("HOSTNAME", HOST)
    here: Callable[[], str] = lambda: HOST  # noqa: E731
    monkeypatch.setattr(socket, "gethostname", here)
    monkeypatch.setattr(platform, "node", here)
    monkeypatch.chdir(folder)
    return folder


def write_jobs(folder: Path, count: int) -> Path:
    """Write a data set of jobs on two ranks, with a label file beside it."""
    lines = ["name,label,split,family"]
    for seed in range(count):
        workload = unfold(random_job(seed, 1, layers=5), 2).workload
        write_workload(workload, folder / f"job{seed}" / "job")
        split = ("val", "test", "test")[seed % 10] if seed % 10 < 3 else "train"
        lines.append(f"job{seed}/job,{seed + 1}.0,{split},{FAMILY}")
    (folder.parent / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder


def run(*words: object) -> int:
    return main([str(word) for word in words])


def assert_silent(folder: Path, *more: str) -> None:
    """Look for the names in every file but the private one."""
    files = [f for f in folder.rglob("*") if f.is_file() and f.name != RUN_FILE]
    assert files
    for file in files:
        content = file.read_bytes()
        for word in (FOLDER, USER, HOST, *more):
            assert word.encode() not in content, f"{file} names {word}"


def test_a_run_its_samples_and_what_judges_them_name_no_place(home):
    data, out = write_jobs(home / "data", 12), home / "out"
    best, samples = out / "run" / "best", out / "samples"
    words = ("train", "data=folder", f"data.folder={data}", f"data.labels={home}/labels.csv")
    assert run(*words, *TINY, f"out={out}/run") == 0
    assert (
        run("sample", f"checkpoint={best}", "num=3", "max_nodes=12", "best_of=2", f"out={samples}")
        == 0
    )
    audit = ("audit", "--synthetic", samples, "--data", out / "run", "--checkpoint", best)
    assert run(*audit, "--report", out / "audit.html") == 0
    assert_silent(out, FAMILY)
    assert json.loads((out / "run" / RUN_FILE).read_text())["words"] == {
        "family": {"family-0": FAMILY}
    }
    (home / "labels.csv").rename(data / "labels.csv")
    fit = ("surrogate", "fit", data, "--family", "boosting")
    assert run(*fit, "--out", out / "surrogate") == 0
    assert_silent(out)
    assert [file.parent.name for file in out.rglob(RUN_FILE)] == ["run"]


def test_sweeps_simulations_and_conversions_name_no_place(home):
    data, out = write_jobs(home / "data", 1), home / "out"
    (home / "system.json").write_text(json.dumps(SYSTEM))
    (home / "network.yml").write_text(NETWORK)
    (home / "broken.0.et").write_bytes(b"\xff" * 40)
    (home / "sweep.yml").write_text(
        "workloads: {good: data/job0/job, broken: broken}\n"
        "systems: {ring: system.json}\nnetworks: {two: network.yml}\n"
    )
    assert run("sweep", home / "sweep.yml", "--out", out / "rows.csv") == 1
    assert "broken" in (out / "rows.csv").read_text()
    simulate = ("simulate", "--workload", data / "job0" / "job", "--preset", "small")
    wanted = ("--json", "--trace", out / "ticks.json", "--report")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert run(*simulate, *wanted) == 0
    (out / "result.json").write_text(printed.getvalue())
    assert run("convert", data / "job0" / "job", "--out", out / "copy", "--to", "json") == 0
    assert run("view", data / "job0" / "job.0.et", "--out", out / "page.html") == 0
    assert_silent(out)
