"""Samples are never lost, neither those of a stopped run nor what others put into a folder."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_checkpoints import chain_checkpoint, job_checkpoint

from layerdag._runtime import _swap as swap
from layerdag.errors import UsageError
from layerdag.sampling import (
    GenerationSettings,
    doubt_samples,
    write_samples,
)
from layerdag.sampling.writing import _write_samples as generate
from layerdag.sampling.writing._folder import JOURNAL, MANIFEST
from layerdag.training import LoadedCheckpoint

SETTINGS = GenerationSettings(num=4, seed=7, best_of=1, max_nodes=8, batch_size=2)


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> LoadedCheckpoint:
    return chain_checkpoint(tmp_path_factory.mktemp("flow"))


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> LoadedCheckpoint:
    return job_checkpoint(tmp_path_factory.mktemp("trace"))


def contents(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(f.relative_to(folder)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def stopping_after(count: int, stop: BaseException) -> Callable[[], None]:
    """Return a callback that raises on its ``count``-th call."""
    calls: list[int] = []

    def on_each() -> None:
        calls.append(0)
        if len(calls) == count:
            raise stop

    return on_each


@pytest.mark.parametrize("kind", ["flow", "trace"])
@pytest.mark.parametrize("finished", [1, 3])
def test_a_stopped_run_goes_on_and_ends_as_one_that_was_not(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, finished: int
) -> None:
    model = request.getfixturevalue(kind)
    write_samples(model, SETTINGS, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt, match=f"{finished} of 4 samples .* kept in .*parts.part"):
        write_samples(
            model, SETTINGS, tmp_path / "parts",
            on_each=stopping_after(finished, KeyboardInterrupt()),
        )  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts.partial", "whole"]
    done: list[int] = []
    write_samples(model, SETTINGS, tmp_path / "parts", on_each=lambda: done.append(0))
    assert len(done) == 4
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts", "whole"]


def test_finished_samples_are_not_sampled_again(
    flow: LoadedCheckpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(flow, tmp_path / "out", 3)
    asked: list[tuple[int, int]] = []
    real = generate.generate

    def counting(model, schema, settings):
        asked.append((settings.seed, settings.num))
        return real(model, schema, settings)

    monkeypatch.setattr(generate, "generate", counting)
    write_samples(flow, SETTINGS, tmp_path / "out")
    assert asked == [(10, 1)]


def stopped(
    model: LoadedCheckpoint, out: Path, finished: int, settings: GenerationSettings = SETTINGS
) -> Path:
    """Stop a run after some samples; return the unfinished folder."""
    with pytest.raises(KeyboardInterrupt):
        write_samples(model, settings, out, on_each=stopping_after(finished, KeyboardInterrupt()))
    return out.with_name(f"{out.name}.partial")


TORN: dict[str, Callable[[Path], object]] = {
    "a file was cut": lambda p: os.truncate(p / "sample-00002.graphml", 10),
    "a file is missing": lambda p: (p / "sample-00002.graphml").unlink(),
    "the journal's last line is torn": lambda p: os.truncate(
        p / JOURNAL, (p / JOURNAL).stat().st_size - 5
    ),
    "a sample is not in the journal": lambda p: (p / "sample-00003.graphml").write_text("half"),
    "a draft was left": lambda p: (p / ".sample-00003.graphml.draft").mkdir(),
}


@pytest.mark.parametrize("fault", TORN)
def test_torn_samples_are_made_again(flow: LoadedCheckpoint, tmp_path: Path, fault: str) -> None:
    write_samples(flow, SETTINGS, tmp_path / "whole")
    TORN[fault](stopped(flow, tmp_path / "parts", 3))
    write_samples(flow, SETTINGS, tmp_path / "parts")
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_other_settings_do_not_go_on_from_a_stopped_run(
    flow: LoadedCheckpoint, tmp_path: Path
) -> None:
    partial = stopped(flow, tmp_path / "out", 3)
    before = contents(partial)
    other = replace(SETTINGS, guidance=3.0)
    with pytest.raises(UsageError, match=r"3 samples .* with guidance 1.5, not 3.0"):
        write_samples(flow, other, tmp_path / "out")
    assert contents(partial) == before
    write_samples(flow, other, tmp_path / "out", overwrite=True)
    write_samples(flow, other, tmp_path / "whole")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_stopped_run_of_another_seed_is_discarded_when_allowed(
    flow: LoadedCheckpoint, tmp_path: Path
) -> None:
    stopped(flow, tmp_path / "out", 3)
    other = replace(SETTINGS, seed=SETTINGS.seed + 100)
    write_samples(flow, other, tmp_path / "out", overwrite=True)
    write_samples(flow, other, tmp_path / "whole")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.parametrize("finished", [1, 2])
def test_a_run_that_is_stopped_twice_ends_as_one_that_was_not(
    flow: LoadedCheckpoint, tmp_path: Path, finished: int
) -> None:
    partial = stopped(flow, tmp_path / "out", 3)
    os.truncate(partial / "sample-00001.graphml", 10)  # the samples from there on are made again
    stopped(flow, tmp_path / "out", finished)
    write_samples(flow, SETTINGS, tmp_path / "out")
    write_samples(flow, SETTINGS, tmp_path / "whole")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_stopped_run_may_be_ended_with_fewer_samples_but_not_fewer_than_there_are(
    flow: LoadedCheckpoint, tmp_path: Path
) -> None:
    stopped(flow, tmp_path / "out", 3)
    with pytest.raises(UsageError, match="num at least 3, not 2"):
        write_samples(flow, replace(SETTINGS, num=2), tmp_path / "out")
    write_samples(flow, replace(SETTINGS, num=3), tmp_path / "out")
    assert len(list((tmp_path / "out").glob("*.graphml"))) == 3


def test_older_samples_stay_until_the_new_ones_are_finished(
    flow: LoadedCheckpoint, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    write_samples(flow, SETTINGS, out)
    before = contents(out)
    newer = replace(SETTINGS, seed=100)
    with pytest.raises(KeyboardInterrupt):
        write_samples(
            flow, newer, out, overwrite=True, on_each=stopping_after(3, KeyboardInterrupt())
        )
    assert contents(out) == before
    write_samples(flow, newer, out, overwrite=True)
    write_samples(flow, newer, tmp_path / "whole")
    assert contents(out) == contents(tmp_path / "whole")


def test_a_failure_while_older_samples_are_replaced_loses_neither(
    flow: LoadedCheckpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    write_samples(flow, SETTINGS, out)
    before = contents(out)
    monkeypatch.setattr(swap, "exchange", lambda one, other: False)
    real, calls = os.rename, []

    def rename(source: Path, to: Path) -> None:
        calls.append(source)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        real(source, to)

    newer = replace(SETTINGS, seed=100)
    with monkeypatch.context() as context:
        context.setattr(os, "rename", rename)
        with pytest.raises(OSError, match="No space"):
            write_samples(flow, newer, out, overwrite=True)
    assert contents(out) == before
    asked: list[int] = []
    monkeypatch.setattr(generate, "generate", lambda *ignored: asked.append(0))
    write_samples(flow, newer, out, overwrite=True)
    assert (asked, json.loads((out / MANIFEST).read_text())["samples"][0]["seed"]) == ([], 100)


def test_two_samplings_into_one_folder_get_a_sentence(
    flow: LoadedCheckpoint, tmp_path: Path
) -> None:
    def second() -> None:
        with pytest.raises(UsageError, match="is writing here"):
            write_samples(flow, SETTINGS, tmp_path / "out")

    write_samples(flow, SETTINGS, tmp_path / "out", on_each=second)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_place_where_nothing_can_be_made_is_named(flow: LoadedCheckpoint) -> None:
    with pytest.raises(OSError, match="No such file or directory: '/proc/"):
        write_samples(flow, SETTINGS, "/proc/nope")


FOREIGN: dict[str, Callable[[Path], object]] = {
    "a web extension": lambda out: [
        [path.unlink() for path in out.iterdir()],
        (out / MANIFEST).write_text('{"name": "my web extension"}'),
    ],
    "a note beside the samples": lambda out: (out / "notes.txt").write_text("precious"),
    "a folder named as a sample, not of traces": lambda out: [
        (out / "sample-00000").mkdir(),
        (out / "sample-00000" / "thesis.txt").write_text("precious"),
    ],
    "names that leave the folder": lambda out: (out / MANIFEST).write_text(
        (out / MANIFEST).read_text().replace("sample-00001", "../precious")
    ),
    "another program's manifest with samples": lambda out: (out / MANIFEST).write_text(
        '{"samples": []}'
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_folder_with_anything_foreign_is_never_replaced(
    flow: LoadedCheckpoint, tmp_path: Path, name: str
) -> None:
    out = tmp_path / "out"
    write_samples(flow, SETTINGS, out)
    assert doubt_samples(out) == ""
    FOREIGN[name](out)
    before = contents(out)
    with pytest.raises(UsageError, match="never replaced by samples"):
        write_samples(flow, SETTINGS, out, overwrite=True)
    assert contents(out) == before


def test_a_foreign_folder_in_the_place_of_the_unfinished_one_is_left_alone(
    flow: LoadedCheckpoint, tmp_path: Path
) -> None:
    foreign = tmp_path / "out.partial"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("precious")
    with pytest.raises(UsageError, match=r"out\.partial.*never replaced"):
        write_samples(flow, SETTINGS, tmp_path / "out", overwrite=True)
    noted = stopped(flow, tmp_path / "noted", 2)
    (noted / "thesis.txt").write_text("precious")
    with pytest.raises(UsageError, match=r"'thesis\.txt', which layerdag did not write"):
        write_samples(flow, SETTINGS, tmp_path / "noted", overwrite=True)
    assert (foreign / "thesis.txt").is_file()
    assert (noted / "thesis.txt").is_file()


KILLED = """
import os, signal, sys
sys.path[:0] = {path!r}
from layerdag.sampling import GenerationSettings, write_samples
from layerdag.training import load_checkpoint
calls = []
def on_each():
    calls.append(0)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
settings = GenerationSettings(num=4, seed=7, best_of=1, max_nodes=8, batch_size=2)
write_samples(load_checkpoint(sys.argv[1]), settings, sys.argv[2], on_each=on_each)
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_and_ends_as_one_that_was_not(
    flow: LoadedCheckpoint, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", KILLED.format(path=sys.path)]
    done = subprocess.run([*command, str(flow.path), str(tmp_path / "parts")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(list((tmp_path / "parts.partial").glob("*.graphml"))) == 3
    write_samples(flow, SETTINGS, tmp_path / "parts")
    write_samples(flow, SETTINGS, tmp_path / "whole")
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
