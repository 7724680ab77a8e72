"""A short verb starts no threads and searches for no garbage, and leaves both as they were."""

import gc
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import layerdag as ld
from layerdag.cli import main as start
from layerdag.cli.commands import info
from layerdag.cli.main import (
    ROOM_OF,
    TRACEBACK,
    Terminated,
    exit_code,
    gc_disabled,
    main,
    resume_gc,
    terminating,
)
from layerdag.errors import DataError, UsageError
from layerdag.version import __version__

FAULTS = [
    (DataError("x.et: is cut off."), 1, "x.et: is cut off."),
    (UsageError("--a is wrong."), 2, "--a is wrong."),
    (MemoryError(), 1, "not enough memory"),
    (RuntimeError("CUDA out of memory. Tried to allocate"), 1, "not enough memory"),
    (OverflowError("int too large to convert to float"), 1, "number is too large"),
    (RecursionError("maximum recursion depth exceeded"), 1, "nested too deeply"),
    (RuntimeError("shape [2] is invalid\nmore"), 1, "shape [2] is invalid. If the input is sound"),
    (PermissionError(13, "Permission denied", "/x"), 1, "/x: Permission denied. Check"),
    (OSError(28, "No space left on device", "out/a"), 1, "out/a: No space left on device"),
]


@pytest.mark.parametrize(("error", "code", "words"), FAULTS)
def test_what_was_foreseen_is_one_line(error, code, words, monkeypatch, capsys):
    monkeypatch.setattr(info, "run", raising(error))
    assert main(["info", "x"]) == code
    shown = capsys.readouterr().err
    assert words in shown
    assert shown.count("\n") == 1


def raising(error: BaseException):
    def run(args: object) -> int:
        raise error

    return run


def test_the_environment_asks_for_the_traceback(monkeypatch, capsys):
    monkeypatch.setenv(TRACEBACK, "1")
    monkeypatch.setattr(info, "run", raising(DataError("x.et: is cut off.")))
    assert main(["info", "x"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("error", [TypeError("a"), AssertionError(), KeyError("k"), ValueError()])
def test_a_fault_of_the_program_shows_its_traceback_and_asks_for_a_report(
    error, monkeypatch, capsys
):
    monkeypatch.setattr(info, "run", raising(error))
    assert main(["info", "x"]) == 70
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "please report" in shown.splitlines()[-1]


def test_exits_and_interrupts_pass(monkeypatch):
    monkeypatch.setattr(info, "run", raising(SystemExit(7)))
    with pytest.raises(SystemExit) as stop:
        main(["info", "x"])
    assert stop.value.code == 7
    monkeypatch.setattr(info, "run", raising(KeyboardInterrupt()))
    assert main(["info", "x"]) == 130


def test_a_sentence_has_an_end(monkeypatch, capsys):
    monkeypatch.setattr(info, "run", raising(DataError("x" * 100_000)))
    main(["info", "x"])
    assert len(capsys.readouterr().err) < 3000


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("nosuch.json", "nosuch.json: there is no such file or folder"),
        ("nosuch", "nosuch: there is no such file or folder"),
        (os.devnull, "is neither a file nor a folder"),
    ],
)
def test_what_is_no_file_is_called_so(path, told, tmp_path, capsys):
    assert main(["convert", str(tmp_path / path), "--out", str(tmp_path / "x")]) == 1
    assert told in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["sample", "train"])
def test_a_folder_that_cannot_be_made_is_one_line(verb, tmp_path):
    (tmp_path / "file").write_text("")
    words = {"sample": ["num=1", "best_of=1", "max_nodes=3"], "train": ["data.families=[mlp]"]}
    command = [sys.executable, "-m", "layerdag.cli.main", verb, *words[verb]]
    done = subprocess.run(
        [*command, f"out={tmp_path}/file/x"], capture_output=True, text=True, check=False
    )
    assert done.returncode in (1, 2)
    assert done.stderr.splitlines()[-1].startswith("layerdag: error:")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["traine"], "Did you mean 'train'?"),
        (["xyzzy"], "Known: collect, convert, info,"),
        (["info", "x", "--jsn"], "'layerdag info' does not take '--jsn'. Did you mean '--json'?"),
        (["info", "x", "--zzz=3"], "'layerdag info' does not take '--zzz=3'. 'layerdag info --"),
        (["workload", "gpt2", "--out", "x", "more"], "'layerdag workload' does not take 'more'. '"),
    ],
)
def test_a_word_that_is_not_known_is_told_the_nearest(words, sentence, capsys):
    assert main(words) == 2
    assert sentence in capsys.readouterr().err


def test_help_lists_every_verb_with_an_example(capsys):
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert all(verb in shown for verb in ROOM_OF)
    assert "example:" in shown


@pytest.mark.parametrize("verb", sorted(set(ROOM_OF) - {"train", "sample"}))
def test_help_of_a_verb_shows_an_example(verb, capsys):
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert stop.value.code == 0
    assert f"layerdag {verb}" in capsys.readouterr().out.split("example:")[1]


def test_the_search_is_off_inside_only():
    assert gc.isenabled()
    with gc_disabled():
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.fixture
def thresholds():
    """Python's own, which those of these tests are not."""
    usual = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield gc.get_threshold()
    gc.set_threshold(*usual)


def test_the_search_goes_on_less_often_and_without_what_was_loaded(thresholds):
    before = gc.get_freeze_count()
    with gc_disabled():
        loaded: list[list[int]] = [[] for _ in range(1000)]
        resume_gc()
        assert gc.isenabled()
        assert gc.get_threshold() > thresholds
        kept = gc.get_freeze_count()
        later: list[list[int]] = [[] for _ in range(1000)]
        resume_gc()
    assert kept >= before + len(loaded)
    assert gc.get_freeze_count() < kept + len(later)
    assert gc.get_threshold() == thresholds


ENVIRONMENT = (
    "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME",
)  # fmt: skip


@pytest.fixture
def told(monkeypatch):
    """What stands in the environment after a function, whose library is not imported yet."""

    def call(function: Callable[[], None], library: str, name: str, given: dict[str, str]) -> str:
        monkeypatch.delitem(sys.modules, library, raising=False)
        for word in ENVIRONMENT:
            monkeypatch.setenv(word, "")  # remembered, so that none stays behind
            monkeypatch.delenv(word)
        for word, value in given.items():
            monkeypatch.setenv(word, value)
        function()
        return str(os.environ.get(name))

    return call


@pytest.mark.parametrize(("given", "expected"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "2"}, "2")])
def test_numpy_is_told_to_start_no_threads_unless_the_user_says_otherwise(told, given, expected):
    assert told(start.single_threaded_blas, "numpy", "OPENBLAS_NUM_THREADS", given) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "PASSIVE"}, "None")],
)
def test_threads_spin_briefly_unless_the_user_says_otherwise(told, given, expected):
    assert told(start.limit_openmp_spin, "torch", "GOMP_SPINCOUNT", given) == expected


@pytest.mark.parametrize(
    ("function", "library", "name"),
    [
        (start.single_threaded_blas, "numpy", "OPENBLAS_NUM_THREADS"),
        (start.limit_openmp_spin, "torch", "GOMP_SPINCOUNT"),
    ],
)
def test_a_library_that_is_there_has_read_its_settings(monkeypatch, function, library, name):
    monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, library, sys)
    function()
    assert name not in os.environ


@pytest.mark.parametrize(("verb", "expected"), [("train", True), ("simulate", False)])
def test_threads_are_told_before_a_verb_that_trains_is_imported(monkeypatch, verb, expected):
    order = []

    def imported(name):
        order.append(name)
        raise UsageError("enough")

    monkeypatch.setattr(start, "limit_openmp_spin", lambda: order.append("told"))
    monkeypatch.setattr(start.importlib, "import_module", imported)
    assert main([verb]) == 2
    assert order == [*(["told"] if expected else []), f"layerdag.cli.commands.{verb}"]


def test_sigterm_inside_a_verb_ends_it_with_143(monkeypatch, capsys):
    def run(args: object) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("the signal must have ended the verb")

    monkeypatch.setattr(info, "run", run)
    assert main(["info", "x"]) == 143
    assert capsys.readouterr().err == "layerdag: stopped by SIGTERM\n"


def test_what_a_verb_says_on_its_way_out_is_told(monkeypatch, capsys):
    def run(args: object) -> int:
        raise KeyboardInterrupt("3 samples are kept.")

    monkeypatch.setattr(info, "run", run)
    assert main(["info", "x"]) == 130
    assert capsys.readouterr().err == "layerdag: stopped by the keyboard: 3 samples are kept.\n"


def test_the_handler_of_before_is_back_afterwards():
    before = signal.getsignal(signal.SIGTERM)
    with terminating():
        assert signal.getsignal(signal.SIGTERM) is not before
        with pytest.raises(Terminated):
            signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_other_threads_leave_signals_alone():
    found = []

    def look() -> None:
        with terminating():
            found.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [before]


def test_exit_codes_are_those_of_shells():
    assert exit_code(KeyboardInterrupt()) == 128 + signal.SIGINT == 130
    assert exit_code(Terminated()) == 128 + signal.SIGTERM == 143


def test_a_reader_that_went_away_is_no_error(monkeypatch, tmp_path):
    def run(args: object) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(info, "run", run)
    with (tmp_path / "out").open("w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert main(["info", "x"]) == 0
        # What is printed afterwards, as Python does when it ends, goes nowhere.
        out.write("more")
    assert (tmp_path / "out").read_text() == ""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--version"], f"layerdag {__version__}\n"),
        (["help"], "simulated clusters:"),
        (["help", "info"], "layerdag info"),  # a verb like any other
    ],
)
def test_help_and_version_are_told(words, told, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 0
    assert told in capsys.readouterr().out


DOT = "digraph { node [kind=a, cost=2] x -> y; x -> z [style=dashed]; z [kind=b] }\n"


@pytest.fixture
def dot(tmp_path) -> Path:
    path = tmp_path / "g.dot"
    path.write_text(DOT)
    return path


@pytest.mark.parametrize("form", ["json", "graphml", "wfformat", "dot"])
def test_a_graph_is_converted_and_stays_the_same(dot, tmp_path, form):
    out = tmp_path / f"out.{'json' if form == 'wfformat' else form}"
    assert main(["convert", str(dot), "--to", form, "--out", str(out)]) == 0
    found = ld.diff(dot, out)
    assert found.programs[0].aligned == 3
    assert not found.programs[0].differs
    assert main(["convert", str(dot), "--to", form, "--out", str(out)]) == 2  # it is there
    assert main(["convert", str(dot), "--to", form, "--out", str(out), "--overwrite"]) == 0


def test_a_job_becomes_a_workflow_with_its_durations(tmp_path):
    out = tmp_path / "job.json"
    job = "data/examples/ddp_mlp"
    assert main(["convert", job, "--to", "wfformat", "--out", str(out)]) == 0
    tasks = json.loads(out.read_text())["workflow"]["execution"]["tasks"]
    assert len(tasks) == 65
    total = sum(task["runtimeInSeconds"] for task in tasks)
    assert total == pytest.approx(ld.read_trace(f"{job}.0.et").duration_us_N.sum() / 1e6, rel=1e-2)


def test_a_graph_has_no_form_of_traces(dot, capsys):
    assert main(["convert", str(dot), "--out", "x"]) == 2
    assert "has no form 'et'; choose one of graphml, dot, json" in capsys.readouterr().err
    assert main(["convert", str(dot), str(dot), "--to", "json", "--out", "x"]) == 2
    assert main(["convert", str(dot), "--to", "grapml", "--out", "x"]) == 2
    assert "no format 'grapml'. Did you mean 'graphml'? Known: " in capsys.readouterr().err


def test_info_counts_words_numbers_and_edges(dot, capsys):
    assert main(["info", str(dot)]) == 0
    told = capsys.readouterr().out
    assert "g: 3 nodes, 2 edges (data 1, control 1)" in told
    assert "a 2, b 1" in told
    assert main(["info", str(dot), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["layers"] == 2
    assert found["numbers"]["cost"] == {"present": 3, "min": 2.0, "max": 2.0, "sum": 6.0}


def test_view_and_validate_take_any_flow_graph(dot, tmp_path):
    assert main(["view", str(dot), "--out", str(tmp_path / "g.svg")]) == 0
    assert main(["validate", str(dot)]) == 0
    (tmp_path / "bad.dot").write_text("digraph {")
    assert main(["validate", str(tmp_path)]) == 1


def test_a_folder_of_workflows_is_a_data_set(dot, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(12):
        text = DOT.replace("digraph {", f"digraph {{ label={number}; n{number} [kind=a];")
        (folder / f"g{number}.dot").write_text(text.replace("cost=2", f"cost={number}"))
    data = ld.load_dataset(folder)
    assert sum(map(len, data.graphs.values())) == 12
    assert {dag.conditions["label"] for part in data.graphs.values() for dag in part} == {
        float(number) for number in range(12)
    }
