"""Seeds that give no program that runs."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import layerdag as ld
from layerdag.cli.main import main
from layerdag.errors import DataError
from layerdag.graph.formats.program_json import program_graph
from layerdag.samples.manifest import MANIFEST, SampleRun
from layerdag.samples.reader import iter_samples
from layerdag.sampling import folder, generation, parts, program_draws
from layerdag.sampling.folder import write_samples
from layerdag.sampling.generated import GeneratedGraph, GeneratedProgram
from layerdag.sampling.parts import PartSettings, write_parts
from layerdag.sampling.settings import GenerationSettings
from layerdag.schema.schema import GraphSchema
from layerdag.training.checkpoint import LoadedCheckpoint, load_checkpoint, pretrained_checkpoint

CALLS = [
    {"operator": "input", "arguments": [{"input": ["B0", "n0"], "dtype": "float32"}]},
    {
        "operator": "aten.linear.default",
        "arguments": [{"edge": "#"}, {"parameter": ["w0", "a0.-1"], "dtype": "float32"}],
        "inputs": [0],
    },
    {"operator": "aten.sum.default", "arguments": [{"edge": "#"}], "inputs": [1]},
]
GRAPH = program_graph(
    {"format": "layerdag-program/1", "name": "small", "sizes": {"B0": 4, "n0": 8, "w0": 16},
     "outputs": [2], "nodes": CALLS},
    "small",
)  # fmt: skip
SCHEMA = GraphSchema.fit("program", [GRAPH])
LOST = {1, 4}


@pytest.fixture(scope="module")
def checkpoint() -> LoadedCheckpoint:
    return load_checkpoint(pretrained_checkpoint("programs"))


def graph(seed: int, lost: bool) -> GeneratedGraph:
    return GeneratedProgram("sample-00000", seed, SCHEMA.encode(GRAPH), lost, SCHEMA)


def lose(monkeypatch: pytest.MonkeyPatch, lost: set[int]) -> None:
    """Let seeds have no program."""

    def drawn(
        _: Any, __: Any, settings: GenerationSettings, ahead: Any
    ) -> Iterator[GeneratedGraph]:
        for seed in range(settings.seed, settings.seed + settings.num):
            yield graph(seed, seed in lost)

    monkeypatch.setattr(folder, "generate", drawn)
    monkeypatch.setattr(parts, "generate_batched", drawn)


def test_the_others_are_written_and_the_command_tells_which_are_missing(
    monkeypatch, tmp_path, capsys
):
    lose(monkeypatch, LOST)
    out = tmp_path / "out"
    words = ["sample", "--num", "6", "--format", "program", "--out", str(out)]
    assert main(words) == 1
    assert "2 of 6 samples are missing (seeds 1, 4)" in capsys.readouterr().err
    manifest = json.loads((out / MANIFEST).read_text())
    assert {entry["seed"] for entry in manifest["samples"]} == {0, 1, 2, 3, 4, 5} - LOST
    assert [entry["seed"] for entry in manifest["missing"]] == sorted(LOST)
    assert len(list(iter_samples(out))) == len(list(out.glob("*.program.json"))) == 4
    assert main(["validate", str(out)]) == 0


def test_a_stopped_run_goes_on_behind_a_missing_sample(monkeypatch, tmp_path, checkpoint):
    lose(monkeypatch, LOST)
    settings = GenerationSettings(num=6)
    whole = write_samples(checkpoint, settings, tmp_path / "whole", file_format="program")
    seen: list[int] = []

    def stop() -> None:
        seen.append(0)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="3 of 6 samples"):
        write_samples(checkpoint, settings, tmp_path / "cut", file_format="program", on_each=stop)
    again = write_samples(checkpoint, settings, tmp_path / "cut", file_format="program")
    assert again.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("num", [3, 40])
def test_a_request_that_no_seed_meets_is_refused(monkeypatch, tmp_path, checkpoint, num):
    lose(monkeypatch, set(range(num)))
    settings = GenerationSettings(num=num)
    with pytest.raises(DataError, match="no program that runs was drawn; ask for more nodes"):
        write_samples(checkpoint, settings, tmp_path / "out", file_format="program")
    assert not list(tmp_path.iterdir()) or [p.suffix for p in tmp_path.iterdir()] == [".lock"]


@pytest.mark.parametrize("file_format", ["tar", "parquet"])
def test_parts_tell_what_they_miss(monkeypatch, tmp_path, checkpoint, file_format):
    lose(monkeypatch, LOST)
    settings = PartSettings(file_format, "auto" if file_format == "parquet" else "program", 3)
    wanted = GenerationSettings(num=6)
    with pytest.warns(UserWarning, match="2 of 6 samples are missing"):
        out = ld.write_parts(checkpoint, tmp_path, parts=settings, num=6).parent
    found = list(SampleRun.read(out).parts_at(out))
    assert [[entry["seed"] for entry in part.missing] for part in found] == [[1], [4]]
    assert [sample.seed for sample in iter_samples(out)] == [0, 2, 3, 5]
    monkeypatch.setattr(parts, "generate_batched", lambda *_: pytest.fail("all parts are there"))
    write_parts(checkpoint, wanted, tmp_path, settings)


def test_conditions_under_which_nothing_runs_are_drawn_again(monkeypatch):
    asked: list[dict[str, Any]] = []

    def drawn(
        _: Any, numbers: list[int], seeds: list[int], rows: list[dict[str, Any]]
    ) -> list[GeneratedGraph]:
        asked.extend(rows)
        return [graph(seed, row["num_nodes"] == 99) for seed, row in zip(seeds, rows, strict=True)]

    def others(_: Any, kept: dict[str, Any], seeds: list[int]) -> list[dict[str, Any]]:
        return [{**kept, "num_nodes": 3} for _ in seeds]

    monkeypatch.setattr(generation.Sampler, "drawn_once", drawn)
    monkeypatch.setattr(program_draws, "complete_conditions", others)
    settings = GenerationSettings(seed=7, redraws=0)
    policy = program_draws.ProgramDraws(SCHEMA, settings)
    drawing = generation.Sampler(None, SCHEMA, settings, policy, wanted={})
    rows = [{"family": "gpt", "num_nodes": 99}]
    (kept,) = drawing.graphs([0], rows)
    assert kept.program.check() == []
    assert kept.seed == 7
    assert asked[0] == rows[0]
    assert {row["family"] for row in asked} == {"gpt"}
    (lost,) = replace(drawing, wanted=None).graphs([0], rows)
    assert lost.truncated
