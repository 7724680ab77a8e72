import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import small_programs

import layerdag as ld
from layerdag.cli.commands import collect
from layerdag.cli.main import main
from layerdag.traces.chakra.files import read_trace
from layerdag.traces.chakra.workload import read_workload

SCRIPT = """
import os, sys
import torch
from torch import distributed, nn

if "RANK" in os.environ:
    distributed.init_process_group("gloo")
model = nn.Linear(8, 2)
if "RANK" in os.environ:
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
print("ran to the end")
"""


@pytest.fixture
def script(tmp_path):
    """A training script that takes the number of its steps."""
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_one_step_is_written_and_the_script_stopped(script, tmp_path, capsys):
    argv = list(sys.argv)
    assert main(["collect", "--out", str(tmp_path / "mine"), str(script), "--", "50"]) == 0
    trace = read_trace(tmp_path / "mine.0.et")
    assert trace.names().count("aten::addmm") == 1
    said = capsys.readouterr()
    assert "mine.0.et" in said.out
    assert "ran to the end" not in said.out
    assert sys.argv == argv


def test_the_script_may_go_on(script, tmp_path, capsys):
    call = ["collect", "--keep-going", "--out", str(tmp_path / "mine"), str(script), "5"]
    assert main(call) == 0
    assert "ran to the end" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        (SCRIPT, ["2"], "ended after 2 optimizer steps, before step 3"),
        ("x = 1\nraise ValueError('boo')", [], "failed at line 2: ValueError: boo"),
        ("x = (", [], "failed at line 1: SyntaxError"),
        ("import sys; sys.exit(3)", [], "stopped itself with exit code 3"),
    ],
)
def test_faults_of_the_script_are_one_line(tmp_path, capsys, text, words, message):
    path = tmp_path / "train.py"
    path.write_text(text)
    assert main(["collect", "--out", str(tmp_path / "mine"), str(path), *words]) == 1
    said = capsys.readouterr().err
    assert message in said
    assert len(said.splitlines()) == 1
    assert list(tmp_path.glob("mine*")) == []


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["gone.py"], "gone.py does not exist"),
        (["--step", "1", "SCRIPT"], "--step is 1"),
        (["--nproc", "0", "SCRIPT"], "--nproc is 0"),
    ],
)
def test_wrong_calls_are_refused(script, capsys, flags, message):
    words = [str(script) if word == "SCRIPT" else word for word in flags]
    assert main(["collect", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_two_ranks_write_one_workload(script, tmp_path):
    out = tmp_path / "mine"
    assert main(["collect", "--nproc", "2", "--out", str(out), str(script), "5"]) == 0
    workload = read_workload(out)
    assert workload.num_ranks == 2
    assert workload.groups == {}  # that of all ranks needs no file
    assert [trace.names().count("c10d::all_reduce") for trace in workload.traces] == [1, 1]


def test_a_workload_that_lies_there_is_refused_before_the_script_runs(script, tmp_path, capsys):
    (tmp_path / "out.1.et").write_text("precious")
    assert main(["collect", "--out", str(tmp_path / "out"), str(script)]) == 2
    shown = capsys.readouterr()
    assert "a workload lies there already" in shown.err
    assert not shown.out
    assert main(["collect", "--out", str(tmp_path / "out"), "--overwrite", str(script), "9"]) == 0
    assert not (tmp_path / "out.1.et").exists()


class Launcher:
    """Stands in for torchrun: remembers its command, says a few lines and ends with a code."""

    def __init__(self, code: int, said: list[str]) -> None:
        self.returncode, self.stderr, self.command = code, said, []

    def __call__(self, command, **given):
        self.command, self.environment = command, given["env"]
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def launched(monkeypatch, script, out, code, said, *flags):
    """Run ``collect --nproc 3`` with a launcher that is none."""
    launcher = Launcher(code, said)
    monkeypatch.setattr(collect.subprocess, "Popen", launcher)
    words = ["collect", "--nproc", "3", "--out", str(out), *flags, str(script), "7"]
    return main(words), launcher


def test_several_ranks_are_started_by_torchrun_with_the_same_flags(
    script, tmp_path, monkeypatch, capsys
):
    said = ["W1122 torch noise\n", "from torch/distributed/run.py\n", "my own line\n"]
    flags = ("--step", "4", "--keep-going", "--overwrite")
    code, launcher = launched(monkeypatch, script, tmp_path / "job", 0, said, *flags)
    assert code == 0
    words = " ".join(launcher.command[1:])
    assert words == (
        "-m torch.distributed.run --standalone --nproc-per-node 3 -m layerdag collect "
        f"--out {tmp_path / 'job'} --step 4 --repeats 5 --keep-going --overwrite {script} -- 7"
    )
    assert launcher.environment["OMP_NUM_THREADS"]
    # What torchrun says of itself is not the user's concern.
    assert capsys.readouterr().err == "my own line\n"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (["noise\n", "layerdag: error: x.py failed at line 2: boo\n", "more\n"], "x.py failed at"),
        (["first\n", "the last line\n"], "the last line"),
        ([], "failed: torchrun ended with code 1 without a word."),
    ],
)
def test_a_failed_rank_is_told_in_its_own_words(
    script, tmp_path, monkeypatch, capsys, said, reason
):
    code, _ = launched(monkeypatch, script, tmp_path / "job", 1, said)
    assert code == 1
    error = capsys.readouterr().err
    assert f"3 ranks of {script} failed: " in error
    assert reason in error
    assert len(error.splitlines()) == 1


def test_a_second_optimizer_does_not_count(tmp_path, capsys):
    path = tmp_path / "two.py"
    path.write_text(
        SCRIPT.replace(
            "for step", "other = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)\nfor step"
        ).replace("    optimizer.step()", "    optimizer.step()\n    other.step()")
    )
    assert main(["collect", "--out", str(tmp_path / "mine"), str(path), "2"]) == 1
    assert "ended after 2 optimizer steps" in capsys.readouterr().err


def test_a_script_that_ends_itself_without_a_fault_is_no_fault(tmp_path, capsys):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT + "\nsys.exit(0)\n")
    assert main(["collect", "--keep-going", "--out", str(tmp_path / "mine"), str(path), "4"]) == 0
    assert (tmp_path / "mine.0.et").is_file()


def test_errors_of_our_own_in_a_script_are_passed_on(tmp_path, capsys):
    path = tmp_path / "train.py"
    path.write_text("from layerdag.errors import DataError\nraise DataError('x.et: is cut off.')\n")
    assert main(["collect", "--out", str(tmp_path / "mine"), str(path)]) == 1
    assert capsys.readouterr().err == "layerdag: error: x.et: is cut off.\n"


def test_later_steps_are_timed_without_the_profiler(script, tmp_path, capsys):
    assert main(["collect", "--out", str(tmp_path / "mine"), str(script), "--", "50"]) == 0
    told = json.loads((tmp_path / "mine.steps.json").read_text())
    times = told["step_time_s"]["repeats"]
    assert len(times) == 5
    assert told["step_time_s"]["min"] == min(times) > 0
    assert "mine.steps.json: " in capsys.readouterr().out


def test_a_script_that_ends_early_has_its_trace_and_the_times_there_are(script, tmp_path, capsys):
    assert main(["collect", "--out", str(tmp_path / "a"), str(script), "--", "6"]) == 0
    assert len(json.loads((tmp_path / "a.steps.json").read_text())["step_time_s"]["repeats"]) == 2
    assert main(["collect", "--out", str(tmp_path / "a"), "--overwrite", str(script), "3"]) == 0
    assert not (tmp_path / "a.steps.json").exists()
    assert "not measured" in capsys.readouterr().out


def test_the_measured_time_is_the_label_of_a_folder(script, tmp_path):
    from layerdag.datasets.folder import load_folder
    from layerdag.datasets.settings import FolderConfig
    from layerdag.graph.attributed_graph import read_step_time

    out = tmp_path / "traces" / "mine"
    assert main(["collect", "--out", str(out), str(script), "--", "50"]) == 0
    [dag] = load_folder(FolderConfig(folder=tmp_path / "traces")).graphs["train"]
    assert dag.conditions["label"] == read_step_time(f"{out}.steps.json")


def test_a_sweep_runs_each_line_and_names_those_that_failed(script, tmp_path, monkeypatch, capsys):
    lines = tmp_path / "runs.txt"
    lines.write_text("9\n\n# a comment\n1 'two words'\n")
    ran = []

    def run(command, check, stdout):
        assert stdout is None
        ran.append(command)
        return SimpleNamespace(returncode=int("PREFIX" in command[-1] or command[-1] != "9"))

    monkeypatch.setattr(collect.subprocess, "run", run)
    call = ["collect", "--out", str(tmp_path / "job"), "--sweep", str(lines), str(script)]
    assert main(call) == 1
    assert "1 of 2 runs" in capsys.readouterr().err
    assert [command[command.index("--out") + 1] for command in ran] == [
        str(tmp_path / "job-1"),
        str(tmp_path / "job-4"),
    ]
    assert ran[1][-2:] == ["1", "two words"]
    for wrong in ("\n", "9\0\n", "9\n1 'one word\n"):
        lines.write_text(wrong)
        assert main(call) == 2
    assert "line 2: no closing quotation" in capsys.readouterr().err
    assert len(ran) == 2


TRAINING = """
import sys
import torch
from small_programs import images, language, skipping

torch.manual_seed(0)
model, inputs = {"language": language, "images": images, "skipping": skipping}[sys.argv[1]]()
if sys.argv[2] == "sgd":
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)
else:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
for step in range(5):
    optimizer.zero_grad()
    model(*inputs).backward()
    optimizer.step()
"""


def told(trace):
    """Return operator, operations and bytes of each node; runs sum gradients in place."""
    names = [{"aten::add_": "aten::add"}.get(name, name) for name in trace.names()]
    return list(zip(names, trace.integers("tensor_size")[0].tolist(), strict=True))


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("model", ["language", "skipping"])
def test_the_program_of_a_traced_step_derives_that_step(model, optimizer, tmp_path):
    path, out = tmp_path / "train.py", tmp_path / "mine"
    path.write_text(TRAINING)
    assert main(["collect", "--repeats", "0", "--out", str(out), str(path), model, optimizer]) == 0
    program = ld.program(f"{out}.program.json")
    word = {"adamw": "adamw", "sgd": "sgd-momentum-foreach"}[optimizer]
    assert told(program.step(optimizer=word).trace) == told(read_trace(f"{out}.0.et"))
    assert program.units[:2] == ("layers.0", "layers.1")
    assert len(program.step(optimizer=word, pipeline=2).stages) == 2


def test_a_step_without_a_program_is_told_and_an_older_one_goes(tmp_path, capsys):
    host, older = tmp_path / "host.json", tmp_path / "mine.program.json"
    host.write_text('{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [{"id": 1, "name": "x"}]}')
    older.write_text("{}")
    collect._write_program(str(tmp_path / "mine"), SimpleNamespace(rank=1), host)
    assert older.exists()
    collect._write_program(str(tmp_path / "mine"), SimpleNamespace(rank=0), host)
    assert not older.exists()
    assert "no program: the step has no forward pass" in capsys.readouterr().out


PIPELINE = """
import sys
import torch
from small_programs import Head, Language, Stem
from torch import distributed
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn import functional

distributed.init_process_group("gloo")
rank = distributed.get_rank()
whole = Language(tied=False)
part = Stem(whole, 1) if rank == 0 else Head(whole, 1)
stage = PipelineStage(part, rank, 2, torch.device("cpu"))
loss = lambda y, t: functional.cross_entropy(y.flatten(0, 1), t.flatten())
schedule = Schedule1F1B(stage, 3, loss_fn=loss)
optimizer = torch.optim.AdamW(part.parameters(), lr=0.1, fused=True)
token = torch.zeros(3 * 4, 6, dtype=torch.long)
for step in range(5):
    optimizer.zero_grad()
    if rank == 0:
        schedule.step(token)
    else:
        schedule.step(target=token, losses=[], return_outputs=False)
    optimizer.step()
"""


@pytest.mark.slow  # two processes that import torch and a third that derives: 15 s
def test_a_derived_pipeline_is_that_of_two_real_processes(tmp_path, monkeypatch):
    path, out = tmp_path / "train.py", tmp_path / "mine"
    path.write_text(PIPELINE)
    helpers = str(Path(small_programs.__file__).parent)
    monkeypatch.setenv("PYTHONPATH", helpers, prepend=os.pathsep)
    assert main(["collect", "--repeats", "0", "--nproc", "2", "--out", str(out), str(path)]) == 0
    program = ld.program(*small_programs.language(tied=False))
    step = program.step(pipeline=2, micro_batches=3, cuts=("layers.1",))

    def operators(trace):
        # Runs do in place what captures do not; detach_ tells autograd alone.
        names = (name.removesuffix("_") for name in trace.names())
        return [name for name in names if name != "aten::detach"]

    for derived, real in zip(step.stages, read_workload(out).traces, strict=True):
        assert operators(derived) == operators(real)
        for number in ("comm_size", "comm_tag"):
            sizes = (trace.integers(number) for trace in (derived, real))
            own, told = (value_N[there_N].tolist() for value_N, there_N in sizes)
            assert own == told
    assert "Messages between ranks that are left out" in ld.program(f"{out}.program.json").notes[0]


def test_a_fault_in_the_program_does_not_lose_the_trace(script, tmp_path, monkeypatch, capsys):
    def broken(*_, **__):
        raise KeyError("no such thing")

    monkeypatch.setattr("layerdag.programs.sources.program", broken)
    assert (
        main(["collect", "--repeats", "0", "--out", str(tmp_path / "a.b"), str(script), "9"]) == 0
    )
    assert read_trace(tmp_path / "a.b.0.et").num_nodes
    said = capsys.readouterr().out
    assert "a.b.program.json: not written, for the step has no program: KeyError: 'no such" in said


def test_a_program_that_lies_at_the_prefix_is_kept_without_overwrite(script, tmp_path, capsys):
    """It may be one of the user's own, recorded by ``layerdag program``."""
    own = tmp_path / "mine.program.json"
    own.write_text("mine")
    assert main(["collect", "--out", str(tmp_path / "mine"), str(script)]) == 2
    assert own.read_text() == "mine"
    assert "a program lies there already" in capsys.readouterr().err
