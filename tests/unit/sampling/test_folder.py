"""Graphs of another size than asked for are drawn again."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from killing import states_when_killed
from sample_parts import contents, path_of, stopping_after

from layerdag.codec.recognition import RUN
from layerdag.errors import UsageError
from layerdag.runtime import files as swap
from layerdag.runtime.files import LOCK, file_lock
from layerdag.samples import writer
from layerdag.samples.manifest import MANIFEST, SampleRun
from layerdag.samples.writer import JOURNAL, open_run, why_not_samples
from layerdag.sampling import folder as run_folder, generation
from layerdag.sampling.folder import run_metadata, write_samples
from layerdag.sampling.generated import GeneratedGraph
from layerdag.sampling.generation import draw_policy
from layerdag.sampling.settings import GenerationSettings
from layerdag.training.checkpoint import LoadedCheckpoint, checkpoint_schema


def drawn(
    flow: LoadedCheckpoint,
    monkeypatch: pytest.MonkeyPatch,
    sizes: Sequence[int],
    *,
    asked: float,
    redraws: int,
) -> tuple[GeneratedGraph, list[int]]:
    """Return a graph that has these sizes in its draws one after another, and all seeds."""
    schema = checkpoint_schema(flow)
    seeds_drawn: list[int] = []

    def graphs(
        self: object, numbers: Sequence[int], seeds: Sequence[int], rows: Sequence[object]
    ) -> list[GeneratedGraph]:
        dag = path_of(sizes[len(seeds_drawn)])
        seeds_drawn.extend(seeds)
        return [GeneratedGraph("sample-00000", seeds[0], dag, False, schema)]

    monkeypatch.setattr(generation.Sampler, "drawn_once", graphs)
    settings = GenerationSettings(seed=7, redraws=redraws)
    drawing = generation.Sampler(None, schema, settings, draw_policy(schema, settings))
    (kept,) = drawing.graphs([0], [{"num_nodes": asked}])
    return kept, seeds_drawn


@pytest.mark.parametrize(
    ("sizes", "redraws", "draws", "kept"),
    [
        ([16, 99, 99], 2, 1, 16),
        ([30, 16, 99], 2, 2, 16),
        ([30, 24, 40], 2, 3, 24),
        ([30, 40, 24], 2, 3, 24),
        ([20, 30, 40], 2, 3, 20),
        ([30, 16, 99], 0, 1, 30),
    ],
)
def test_the_nearest_of_so_many_draws_is_kept_under_its_own_seed(
    flow, monkeypatch, sizes, redraws, draws, kept
):
    graph, seeds = drawn(flow, monkeypatch, sizes, asked=16.0, redraws=redraws)
    assert (graph.dag.num_nodes, graph.seed) == (kept, 7)
    assert len(seeds) == len(set(seeds)) == draws


def test_jobs_that_are_the_best_of_several_are_drawn_again_where_a_size_is_asked_for(trace, flow):

    size = {"num_nodes": 16.0}

    def redraws(checkpoint: LoadedCheckpoint, **settings: object) -> int | None:
        schema = checkpoint_schema(checkpoint)
        return GenerationSettings(**settings).resolved(checkpoint.model, schema).redraws

    assert redraws(trace, best_of=8, conditions=size) == 3
    assert redraws(trace, best_of=8) == 0
    assert redraws(trace, best_of=1, conditions=size) == 0
    assert redraws(trace, best_of=1, redraws=3) == 3
    assert redraws(flow, best_of=4, conditions=size) == 0


def test_the_conditions_of_rows_are_asked_for(trace):
    plain, schema = GenerationSettings(best_of=8), checkpoint_schema(trace)
    assert plain.resolved(trace.model, schema, asked={"num_nodes"}).redraws == 3
    assert plain.resolved(trace.model, schema, asked={"label"}).redraws == 0


def test_a_manifest_names_redraws_where_there_are_some(trace):
    schema = checkpoint_schema(trace)

    def facts(**settings: object) -> dict[str, object]:
        return run_metadata(
            trace, GenerationSettings(**settings).resolved(trace.model, schema), "et"
        )

    assert "redraws" not in facts(best_of=8)
    assert facts(best_of=8, conditions={"num_nodes": 16.0})["redraws"] == 3


def test_fewer_than_no_redraws_are_refused():
    with pytest.raises(UsageError, match="'redraws' must not be negative, found -1"):
        GenerationSettings(redraws=-1)


SETTINGS = GenerationSettings(num=4, seed=7, best_of=1, max_nodes=8, batch_size=2)


@pytest.mark.parametrize("kind", ["flow", "trace"])
@pytest.mark.parametrize("finished", [1, 3])
def test_a_stopped_run_goes_on_and_ends_as_one_that_was_not(request, tmp_path, kind, finished):
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


def test_finished_samples_are_not_sampled_again(flow, tmp_path, monkeypatch):
    stopped(flow, tmp_path / "out", 3)
    asked: list[tuple[int, int]] = []
    real = run_folder.generate

    def counting(model, schema, settings, ahead):
        asked.append((settings.seed, settings.num))
        return real(model, schema, settings, ahead)

    monkeypatch.setattr(run_folder, "generate", counting)
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
def test_torn_samples_are_made_again(flow, tmp_path, fault):
    write_samples(flow, SETTINGS, tmp_path / "whole")
    TORN[fault](stopped(flow, tmp_path / "parts", 3))
    write_samples(flow, SETTINGS, tmp_path / "parts")
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_other_settings_do_not_go_on_from_a_stopped_run(flow, tmp_path):
    partial = stopped(flow, tmp_path / "out", 3)
    before = contents(partial)
    other = replace(SETTINGS, guidance=3.0)
    with pytest.raises(UsageError, match=r"3 samples .* with guidance 1.5, not 3.0"):
        write_samples(flow, other, tmp_path / "out")
    assert contents(partial) == before
    write_samples(flow, other, tmp_path / "out", overwrite=True)
    write_samples(flow, other, tmp_path / "whole")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.parametrize("finished", [1, 2])
def test_a_run_that_is_stopped_twice_ends_as_one_that_was_not(flow, tmp_path, finished):
    partial = stopped(flow, tmp_path / "out", 3)
    os.truncate(partial / "sample-00001.graphml", 10)  # the samples from there on are made again
    stopped(flow, tmp_path / "out", finished)
    write_samples(flow, SETTINGS, tmp_path / "out")
    write_samples(flow, SETTINGS, tmp_path / "whole")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_stopped_run_may_be_ended_with_fewer_samples_but_not_fewer_than_there_are(flow, tmp_path):
    stopped(flow, tmp_path / "out", 3)
    with pytest.raises(UsageError, match="num at least 3, not 2"):
        write_samples(flow, replace(SETTINGS, num=2), tmp_path / "out")
    write_samples(flow, replace(SETTINGS, num=3), tmp_path / "out")
    assert len(list((tmp_path / "out").glob("*.graphml"))) == 3


def test_older_samples_stay_until_the_new_ones_are_finished(flow, tmp_path):
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


def test_a_failure_while_older_samples_are_replaced_loses_neither(flow, tmp_path, monkeypatch):
    out = tmp_path / "out"
    write_samples(flow, SETTINGS, out)
    before = contents(out)
    monkeypatch.setattr(swap, "swap_names", lambda one, other: False)
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
    monkeypatch.setattr(run_folder, "generate", lambda *ignored: asked.append(0))
    write_samples(flow, newer, out, overwrite=True)
    assert (asked, json.loads((out / MANIFEST).read_text())["samples"][0]["seed"]) == ([], 100)


def test_a_kill_at_any_step_leaves_the_older_samples_or_the_new_ones(flow, tmp_path, monkeypatch):
    generate, drawn = run_folder.generate, {}

    def drawn_once(model, schema, settings, ahead):
        rest = (settings.seed, settings.num)
        if rest not in drawn:
            drawn[rest] = list(generate(model, schema, settings, ahead))
        return iter(drawn[rest])

    monkeypatch.setattr(run_folder, "generate", drawn_once)
    few = {name: replace(SETTINGS, num=2, seed=seed) for name, seed in (("old", 0), ("new", 9))}
    whole = {}
    for name, settings in few.items():
        write_samples(flow, settings, tmp_path / name)
        whole[name] = contents(tmp_path / name)

    def write(name: str) -> None:
        write_samples(flow, few[name], tmp_path / "out", overwrite=True)

    def look() -> str:
        found = contents(tmp_path / "out")
        found.pop(JOURNAL, None)  # goes last
        return next(name for name, files in whole.items() if files == found)

    seen = states_when_killed(lambda: write("old"), lambda: write("new"), look)
    assert set(seen) == {"old", "new"}
    assert seen == sorted(seen, reverse=True)


def test_two_samplings_into_one_folder_get_a_sentence(flow, tmp_path):
    def second() -> None:
        with pytest.raises(UsageError, match="is writing here"):
            write_samples(flow, SETTINGS, tmp_path / "out")

    write_samples(flow, SETTINGS, tmp_path / "out", on_each=second)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_place_where_nothing_can_be_made_is_named(flow):
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
def test_a_folder_with_anything_foreign_is_never_replaced(flow, tmp_path, name):
    out = tmp_path / "out"
    write_samples(flow, SETTINGS, out)
    assert why_not_samples(out) == ""
    FOREIGN[name](out)
    before = contents(out)
    with pytest.raises(UsageError, match="never replaced by samples"):
        write_samples(flow, SETTINGS, out, overwrite=True)
    assert contents(out) == before


def test_a_foreign_folder_in_the_place_of_the_unfinished_one_is_left_alone(flow, tmp_path):
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
from layerdag.sampling.settings import GenerationSettings
from layerdag.sampling.folder import write_samples
from layerdag.training.checkpoint import load_checkpoint
calls = []
def on_each():
    calls.append(0)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
settings = GenerationSettings(num=4, seed=7, best_of=1, max_nodes=8, batch_size=2)
write_samples(load_checkpoint(sys.argv[1]), settings, sys.argv[2], on_each=on_each)
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_and_ends_as_one_that_was_not(flow, tmp_path):
    command = [sys.executable, "-c", KILLED.format(path=sys.path)]
    done = subprocess.run([*command, str(flow.path), str(tmp_path / "parts")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(list((tmp_path / "parts.partial").glob("*.graphml"))) == 3
    write_samples(flow, SETTINGS, tmp_path / "parts")
    write_samples(flow, SETTINGS, tmp_path / "whole")
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


RUN_OF_TEN = SampleRun(10, 4, "tar", 7, {"temperature": 0.7, "conditions": {"family": "gpt"}})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def with_part(folder: Path) -> Path:
    open_run(folder, RUN_OF_TEN, overwrite=False)
    for name in ("part-000000.tar", "part-000000.json"):
        (folder / name).write_text("x")
    return folder


@pytest.mark.parametrize("overwrite", [False, True])
def test_parts_of_the_same_run_stay(tmp_path, overwrite):
    out = with_part(tmp_path)
    open_run(out, RUN_OF_TEN, overwrite=overwrite)
    assert names(out) == ["part-000000.json", "part-000000.tar", RUN]


def test_a_run_may_be_made_longer(tmp_path):
    out = with_part(tmp_path)
    open_run(out, replace(RUN_OF_TEN, num=20), overwrite=False)
    assert SampleRun.read(out).num == 20
    assert "part-000000.tar" in names(out)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (replace(RUN_OF_TEN, seed=8), "seed 7, not 8"),
        (replace(RUN_OF_TEN, part_size=5), "part_size 4, not 5"),
        (replace(RUN_OF_TEN, file_format="parquet"), "format tar, not parquet"),
        (replace(RUN_OF_TEN, num=9), "num 10, more than 9"),
        (replace(RUN_OF_TEN, request={}), "conditions {'family': 'gpt'}, not None"),
        (replace(RUN_OF_TEN, request={**RUN_OF_TEN.request, "best_of": 4}), "best_of None, not 4"),
    ],
)
def test_another_run_is_told_and_discarded_only_when_allowed(tmp_path, other, said):
    out = with_part(tmp_path)
    with pytest.raises(UsageError, match=f"holds samples with {said}; .*overwrite=true"):
        open_run(out, other, overwrite=False)
    assert "part-000000.tar" in names(out)
    open_run(out, other, overwrite=True)
    assert names(out) == [RUN]
    assert SampleRun.read(out) == other


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["thesis.txt", "manifest.json", "part-000000.tar.gz", "data"])
def test_what_is_not_of_samples_is_never_touched(tmp_path, name, overwrite):
    (tmp_path / name).write_text("x")
    with pytest.raises(UsageError, match=f"holds '{name}', which layerdag did not write there"):
        open_run(tmp_path, RUN_OF_TEN, overwrite=overwrite)
    assert names(tmp_path) == [name]


@pytest.mark.parametrize("name", ["part-000000.tar", RUN])
def test_without_the_file_of_a_run_nothing_proves_what_is_there(tmp_path, name):
    (tmp_path / name).write_text("x")
    with pytest.raises(UsageError, match=r"part-000000\.tar' without samples|has a samples\.json"):
        open_run(tmp_path, RUN_OF_TEN, overwrite=True)
    assert names(tmp_path) == [name]


def test_an_unfinished_draft_is_in_nobodys_way(tmp_path):
    (tmp_path / ".part-000000.tar.draft").mkdir()
    open_run(tmp_path, RUN_OF_TEN, overwrite=False)
    assert names(tmp_path) == [".part-000000.tar.draft", RUN]


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "s").write_text("x")
    with pytest.raises(UsageError, match="is a file"):
        open_run(tmp_path / "s", RUN_OF_TEN, overwrite=True)


def _open(folder: Path) -> None:
    open_run(folder, RUN_OF_TEN, overwrite=True)


def test_processes_open_one_run_together(tmp_path):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_open, args=(tmp_path / "s",)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert names(tmp_path / "s") == [RUN]


def test_who_opens_it_waits_for_another_one(tmp_path):
    with file_lock(tmp_path / LOCK, guarded=tmp_path):
        waiting = threading.Thread(target=_open, args=(tmp_path,))
        waiting.start()
        waiting.join(timeout=0.3)
        assert waiting.is_alive()
        assert names(tmp_path) == [LOCK]
    waiting.join(timeout=20)
    assert names(tmp_path) == [RUN]


def test_who_waits_too_long_gets_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "_PATIENCE_S", 0.1)
    with (
        file_lock(tmp_path / LOCK, guarded=tmp_path),
        pytest.raises(UsageError, match="is writing here"),
    ):
        open_run(tmp_path, RUN_OF_TEN, overwrite=False)
