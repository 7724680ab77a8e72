"""Which parts a process writes."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from sample_parts import TEN, contents, stopping_after, written

from layerdag.errors import UsageError
from layerdag.runtime.reading import Limits
from layerdag.samples.manifest import SampleRun
from layerdag.samples.reader import iter_samples
from layerdag.sampling import parts as write_parts_module
from layerdag.sampling.folder import write_samples
from layerdag.sampling.generation import generate_batched
from layerdag.sampling.parts import PartSettings, Shard, volume_of_parts, write_parts
from layerdag.sampling.settings import GenerationSettings


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("num_parts", [1, 2, 10])
def test_every_part_belongs_to_one_share(count, num_parts):
    shares = [Shard.from_text(f"{index}/{count}").parts(num_parts) for index in range(count)]
    assert sorted(part for share in shares for part in share) == list(range(num_parts))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_without_a_word_it_is_everything():
    assert list(Shard.from_text(None).parts(3)) == [0, 1, 2]
    assert Shard.from_text(Shard(1, 2)) == Shard(1, 2)


def test_auto_is_the_place_of_the_process_under_torchrun(monkeypatch):
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert Shard.from_text("auto") == Shard(2, 8)


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE"])
def test_auto_without_torchrun_is_one_sentence(monkeypatch, name):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.delenv(name)
    with pytest.raises(UsageError, match="start it with torchrun, or name the share: shard=0/4"):
        Shard.from_text("auto")


@pytest.mark.parametrize("word", ["", "1", "1/", "/2", "-1/2", "1/2/3", "a/b", "0.5/2", "1 / 2"])
def test_other_words_are_one_sentence(word):
    with pytest.raises(UsageError, match="write i/n, such as 0/4"):
        Shard.from_text(word)


@pytest.mark.parametrize("word", ["2/2", "0/0", "9/4"])
def test_a_share_outside_of_its_number_is_one_sentence(word):
    with pytest.raises(UsageError, match=f"shard={word}: shares"):
        Shard.from_text(word)


HAS_PYARROW = importlib.util.find_spec("pyarrow") is not None
FORMATS = ["tar", "parquet"] if HAS_PYARROW else ["tar"]
FOURS = PartSettings(part_size=4)


@pytest.fixture(scope="module")
def in_one_run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], dict[str, str]]:
    """Return what writes the ten samples of a checkpoint in one run, once, and reads the files."""

    @cache
    def whole(kind: str, file_format: str) -> dict[str, str]:
        folder = tmp_path_factory.mktemp("whole") / "s"
        return contents(written(request.getfixturevalue(kind), folder, file_format))

    return whole


@pytest.mark.parametrize(("count", "file_format"), [(2, FORMATS[-1]), (5, "tar")])
@pytest.mark.parametrize("kind", ["flow", "trace", "costed"])
def test_all_shares_together_are_the_run_of_one_process(
    request, in_one_run, tmp_path, kind, count, file_format
):
    checkpoint = request.getfixturevalue(kind)
    for index in reversed(range(count)):
        written(checkpoint, tmp_path / "shares", file_format, shard=f"{index}/{count}")
    assert contents(tmp_path / "shares") == in_one_run(kind, file_format)
    assert len(in_one_run(kind, file_format)) == 7


@pytest.mark.parametrize("kind", ["flow", "trace"])
def test_the_files_in_a_tar_are_those_of_a_folder_of_samples(request, tmp_path, kind):
    checkpoint = request.getfixturevalue(kind)
    write_samples(checkpoint, TEN, tmp_path / "each")
    listed = json.loads((tmp_path / "each" / "manifest.json").read_text())["samples"]
    found = list(iter_samples(written(checkpoint, tmp_path / "parts")))
    assert [dict(sample.entry) for sample in found] == listed
    for sample in found:
        for name, content in sample.files.items():
            folder = tmp_path / "each" / (sample.name if sample.is_job else "")
            assert (folder / name).read_bytes() == content


def test_a_sample_depends_on_its_own_seed_alone(trace, tmp_path):
    from_seven = list(iter_samples(written(trace, tmp_path / "a")))
    from_nine = written(
        trace, tmp_path / "b", settings=replace(TEN, seed=9, num=3, batch_size=1), part_size=2
    )
    for one, other in zip(from_seven[2:5], iter_samples(from_nine), strict=True):
        assert one.seed == other.seed
        assert [*one.files.values()] == [*other.files.values()]


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("finished", [1, 9])
def test_a_stopped_run_goes_on_and_ends_as_one_that_was_not(
    trace, in_one_run, tmp_path, finished, file_format
):
    out, parts = tmp_path / "s", PartSettings(file_format, part_size=4)
    with pytest.raises(KeyboardInterrupt, match=rf"{finished // 4} of 3 parts .* kept in .*s; "):
        write_parts(
            trace, TEN, out, parts, on_each=stopping_after(finished + 1, KeyboardInterrupt())
        )
    left = {name for name in contents(out) if name.startswith("part")}
    assert left == {
        f"part-{i:06d}.{e}" for i in range(finished // 4) for e in (file_format, "json")
    }
    done: list[int] = []
    write_parts(trace, TEN, out, parts, on_each=lambda: done.append(0))
    assert len(done) == 10
    assert contents(out) == in_one_run("trace", file_format)


def test_only_missing_parts_are_sampled(flow, tmp_path, monkeypatch):
    out = written(flow, tmp_path / "s")
    whole = contents(out)
    (out / "part-000001.tar").unlink()
    asked: list[GenerationSettings] = []

    def noted(model, schema, settings, ahead):
        asked.append(settings)
        return generate_batched(model, schema, settings, ahead)

    monkeypatch.setattr(write_parts_module, "generate_batched", noted)
    written(flow, out)
    assert [(settings.seed, settings.num) for settings in asked] == [(11, 4)]
    assert contents(out) == whole
    written(flow, out)
    assert len(asked) == 1


@pytest.mark.parametrize("damage", [b"", b"short"])
@pytest.mark.parametrize("name", ["part-000001.tar", "part-000001.json"])
def test_a_part_that_was_cut_off_is_made_again(flow, tmp_path, name, damage):
    out = written(flow, tmp_path / "s")
    whole = contents(out)
    (out / name).write_bytes(damage)
    assert contents(written(flow, out)) == whole


def test_a_longer_run_keeps_its_whole_parts(flow, tmp_path):
    out = written(flow, tmp_path / "s", settings=replace(TEN, num=6))
    before = (out / "part-000000.tar").stat()
    written(flow, out)
    assert (out / "part-000000.tar").stat() == before
    assert contents(out) == contents(written(flow, tmp_path / "at once"))


def test_another_run_is_not_mixed_with_this_one(flow, tmp_path):
    out = written(flow, tmp_path / "s")
    for other in (replace(TEN, temperature=0.5), replace(TEN, conditions={"label": 2.0})):
        with pytest.raises(UsageError, match="overwrite=true"):
            written(flow, out, settings=other)
        with pytest.raises(UsageError, match="members graphml, not json"):
            written(flow, out, members="json")
    write_parts(flow, replace(TEN, temperature=0.5), out, FOURS, overwrite=True)
    assert SampleRun.read(out).request["temperature"] == 0.5


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"file_format": "zip"}, "Parts are tar or parquet files, found 'zip'"),
        ({"part_size": 0}, "'part_size' must be at least 1"),
        ({"shard": "3"}, "write i/n"),
    ],
)
def test_other_settings_are_one_sentence(settings, said):
    with pytest.raises(UsageError, match=said):
        PartSettings(**settings)


@pytest.mark.skipif(not HAS_PYARROW, reason="needs pyarrow")
def test_members_are_of_tars():
    with pytest.raises(UsageError, match="is of format=tar"):
        PartSettings("parquet", members="et")


def test_parquet_without_pyarrow_is_refused_before_sampling(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install 'layerdag\[parquet\]'"):
        PartSettings("parquet")


@pytest.mark.parametrize("members", ["et", "tar", "zip"])
def test_members_that_do_not_fit_are_refused(flow, tmp_path, members):
    with pytest.raises(UsageError):
        written(flow, tmp_path / "s", members=members)
    assert not (tmp_path / "s").exists()


def test_more_than_the_limits_allow_is_refused(trace, tmp_path):
    for limits in (Limits(max_ranks=1), Limits(max_bytes=1000)):
        with pytest.raises(UsageError, match=r"max_(ranks|bytes)"):
            written(trace, tmp_path / "s", settings=replace(TEN, limits=limits))


def test_the_estimate_counts_files_by_parts(trace):
    assert volume_of_parts(trace, TEN, FOURS).files == 7
    assert volume_of_parts(trace, TEN, FOURS).graphs == 10


@pytest.mark.skipif(not HAS_PYARROW, reason="needs pyarrow")
def test_a_table_is_estimated_as_the_smaller_file_that_it_is(trace):
    tar, table = (volume_of_parts(trace, TEN, PartSettings(name, part_size=4)) for name in FORMATS)
    assert table.bytes < tar.bytes / 10
    few = replace(TEN, limits=Limits(max_bytes=table.bytes))
    assert volume_of_parts(trace, few, PartSettings("parquet", part_size=4)) == table
    with pytest.raises(UsageError, match="max_bytes"):
        volume_of_parts(trace, few, FOURS)


def test_two_processes_do_not_write_one_share(flow, tmp_path):
    out = tmp_path / "s"

    def again() -> None:
        with pytest.raises(UsageError, match="is writing here"):
            written(flow, out)

    write_parts(flow, replace(TEN, num=1), tmp_path / "warm")
    calls: list[int] = []
    write_parts(
        flow,
        TEN,
        out,
        FOURS,
        on_each=lambda: again() if not calls and not calls.append(0) else None,
    )
    assert len(contents(out)) == 7


KILLED = """
import os, signal, sys
sys.path[:0] = {path!r}
from layerdag.sampling.settings import GenerationSettings
from layerdag.sampling.parts import PartSettings, write_parts
from layerdag.training.checkpoint import load_checkpoint
calls = []
def on_each():
    calls.append(0)
    if len(calls) == 7:
        os.kill(os.getpid(), signal.SIGKILL)
settings = GenerationSettings(num=10, seed=7, best_of=1, max_nodes=8, batch_size=4)
write_parts(load_checkpoint(sys.argv[1]), settings, sys.argv[2], PartSettings(part_size=4),
            on_each=on_each)
"""


@pytest.mark.slow
def test_a_killed_run_loses_the_part_that_it_was_filling(flow, tmp_path):
    command = [sys.executable, "-c", KILLED.format(path=sys.path)]
    out = tmp_path / "s"
    done = subprocess.run([*command, str(flow.path), str(out)], check=False, env=os.environ)
    assert done.returncode == -signal.SIGKILL
    assert sorted(p.name for p in out.glob("part*")) == ["part-000000.json", "part-000000.tar"]
    assert [sample.seed for sample in iter_samples(out)] == [7, 8, 9, 10]
    written(flow, out)
    assert contents(out) == contents(written(flow, tmp_path / "whole"))
