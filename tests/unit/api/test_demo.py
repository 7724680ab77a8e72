"""``layerdag demo``: what it writes, says and refuses to replace."""

import contextlib
import io
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from corpus_cut import cut_programs
from small_job_models import data_of, jobs

import layerdag as ld
from layerdag.api import demo as demo_api
from layerdag.api.demo import DemoSettings, demo_lock, report
from layerdag.cli.commands.demo import print_summary
from layerdag.datasets.dataset import GraphDataset
from layerdag.errors import UsageError
from layerdag.models.spec import build_model
from layerdag.report.content import ReportContent
from layerdag.sampling.generated import GeneratedGraph, GeneratedProgram
from layerdag.simulator.compute import MeasuredCompute
from layerdag.surrogates.tstr import TransferReport
from layerdag.traces.chakra.workload import read_workload
from layerdag.training.checkpoint import InitialWeights, Origin
from layerdag.training.model_spec import spec_for
from layerdag.training.warm_start import WarmStart
from layerdag.validation.checking import check_workload
from layerdag.validation.rules import has_errors


@pytest.fixture
def demo(tmp_path) -> Path:
    """Return a folder that looks like one that a demo has written, with a user's notes in it."""
    out = tmp_path / "demo"
    for name in ("best", "last"):
        checkpoint = out / "training" / name
        checkpoint.mkdir(parents=True)
        (checkpoint / "meta.json").write_text('{"format_version": 2, "layerdag_version": "0.1.0"}')
        (checkpoint / "config.json").write_text('{"run": {"demo": true}}')
    (out / "training" / "train.jsonl").write_text('{"step": 1}\n')
    sample = out / "samples" / "sample-00000"
    sample.mkdir(parents=True)
    (sample / "sample-00000.0.et").touch()
    (sample / "sample-00000.comm_group.json").touch()
    (out / "report.html").touch()
    (out / "report.json").write_text(json.dumps({"title": "", "lead": "", "summary": []}))
    (out / "notes.txt").write_text("precious")
    return out


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_second_demo_may_use_the_folder_of_the_first(demo):
    before = contents(demo)
    with demo_lock(demo):
        pass
    assert contents(demo) == before


def test_two_demos_do_not_use_one_folder(tmp_path):
    refused = pytest.raises(UsageError, match=f"process {os.getpid()} is writing here")
    with demo_lock(tmp_path / "x"), refused:
        demo_lock(tmp_path / "x").__enter__()


FOREIGN: dict[str, Callable[[Path], object]] = {
    "a run of one's own": lambda demo: (demo / "training" / "last" / "config.json").write_text(
        '{"run": {"seed": 3}}'
    ),
    "a paper in best": lambda demo: (demo / "training" / "best" / "paper.txt").touch(),
    "a note among the samples": lambda demo: (demo / "samples" / "notes.txt").touch(),
    "a note in a sample": lambda demo: (demo / "samples" / "sample-00000" / "x.txt").touch(),
    "samples of another tool": lambda demo: (demo / "samples" / "drums").mkdir(),
    "another report.json": lambda demo: (demo / "report.json").write_text('{"year": 2024}'),
    "a page without figures": lambda demo: (demo / "report.json").unlink(),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_not_provably_of_a_demo_is_never_replaced(demo, name):
    FOREIGN[name](demo)
    before = contents(demo)
    with pytest.raises(UsageError, match=r"never replaced"):
        demo_lock(demo).__enter__()
    assert contents(demo) == before


def test_a_file_is_no_folder_of_a_demo(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file"):
        demo_lock(tmp_path / "file").__enter__()


def test_the_demo_trains_by_steps_without_a_hidden_limit_of_time():
    assert not [name for name in vars(DemoSettings(Path("out"))) if "seconds" in name]


@dataclass(frozen=True)
class Ran:
    """A demo that has run."""

    settings: DemoSettings
    printed: str
    content: ReportContent


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> Ran:
    folder = tmp_path_factory.mktemp("demo")
    corpus = cut_programs(folder / "corpus", ("mlp", "dlrm"), 30)
    settings = DemoSettings(folder / "out", 5, 60, 1, 4, ("boosting",), 1)
    seen: list[ReportContent] = []
    write = demo_api.write_report

    def copied(settings: DemoSettings, data: GraphDataset, _: object) -> tuple[GeneratedGraph, ...]:
        """Stand in for the untrained model, which samples slowly: hand out training graphs."""
        dags = data.graphs["train"][: settings.samples]
        return tuple(
            GeneratedProgram(f"sample-{i:05d}", i, dag, False, data.schema)
            for i, dag in enumerate(dags)
        )

    def untrained(_: Path, data: GraphDataset) -> WarmStart:
        """Stand in for the shipped weights, whose schema is that of the whole corpus."""
        spec = spec_for(data, "fast", {"width": 32})
        weights = build_model(spec).state_dict()
        return WarmStart(spec, InitialWeights(weights, Origin("programs", "f", 0)))

    def kept(content: ReportContent, page: Path) -> Path:
        seen.append(content)
        return write(content, page)

    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setattr(demo_api, "write_report", kept)
        patch.setattr(demo_api, "embedded_corpus", lambda: corpus)
        patch.setattr(demo_api, "warm_start", untrained)
        patch.setattr(demo_api, "sample_stage", copied)
        patch.setattr(demo_api, "transferred", lambda *_, **__: TransferReport((), (), 4, (0,)))
        print_summary(*report(settings), as_json=False)
    return Ran(settings, out.getvalue(), seen[0])


def test_everything_it_promises_lies_in_its_folder(ran):
    out = ran.settings.out
    assert {path.name for path in out.iterdir() if not path.name.startswith(".")} == {
        "training", "samples", "report.html", "report.json",
    }  # fmt: skip
    assert (out / "training" / "best" / "meta.json").is_file()
    lines = (out / "training" / "train.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert max(steps) == 1
    assert json.loads((out / "training" / "best" / "config.json").read_text())["run"] == {
        "demo": True,
        "seed": 5,
    }


def test_the_table_has_the_rows_of_the_report_in_straight_columns(ran):
    lines = ran.printed.splitlines()
    assert lines[-1] == f"report: {ran.settings.out / 'report.html'}"
    table = lines[: len(ran.content.summary) + 1]
    assert len({len(line) for line in table}) == 1
    for line, row in zip(table[1:], ran.content.summary, strict=True):
        assert line.startswith(row.what)
        assert line.endswith(row.real)
        assert line.removeprefix(row.what).split()[:1] == row.synthetic.split()[:1]


def test_every_sample_is_written_as_a_program_and_the_traces_of_its_step(ran):
    folders = sorted((ran.settings.out / "samples").iterdir())
    assert len(folders) == 4
    for folder in folders:
        program = ld.program(folder / f"{folder.name}.program.json")
        assert not program.check()
        job = read_workload(folder / folder.name)
        assert not has_errors(check_workload(job))
        assert all(MeasuredCompute().is_timed(t, np.arange(t.num_nodes)) for t in job.traces)


def test_steps_of_programs_keep_every_rule_and_programs_run(ran):
    rows = {row.what: row for row in ran.content.summary}
    assert rows["jobs whose traces keep every rule"].synthetic == "100%"
    assert rows["jobs that keep all rules of whole training steps"].synthetic == "4 of 4"
    assert rows["programs that run: training step with a finite loss"].synthetic == "4 of 4"


def test_samples_stand_beside_the_real_jobs_nearest_to_them(ran):
    pair, *_ = ran.content.neighbors
    assert pair.family in ("mlp", "dlrm")
    assert ran.content.pictures == ()
    assert [job.title.split(" (")[0] for job in ran.content.timelines][-1] == "A sample"


def test_verdicts_come_first_and_copies_forbid_sharing(ran):
    share, like, use = ran.content.answers
    assert (share.answer, share.at) == ("no", "validity")
    assert share.reason.startswith("4 of 4 samples repeat")
    assert like.question == "Is it like the real ones?"
    assert use.answer == "too few to tell"  # no predictor was trained in this test


def test_copies_of_training_jobs_are_told_as_such(ran):
    [row] = [r for r in ran.content.summary if r.what == "valid, unique and novel"]
    assert row.synthetic.startswith("0% [0%, ")
    assert row.note.startswith("100% copies")


def test_provenance_says_how_to_repeat_it(ran):
    told = dict(ran.content.provenance)
    assert told["training"] == "1 of 1 steps"
    assert told["data"].endswith(", programs of at most 60 calls")
    assert told["seed of training and sampling"] == "5"
    stages = [word.split()[0] for word in told["time"].split(", ")]
    assert stages == ["load", "train", "sample", "derive", "evaluate", "simulate", "surrogate"]


def test_json_holds_the_same_rows(ran, monkeypatch, capsys):
    monkeypatch.setattr(demo_api, "_content", lambda settings: ran.content)
    print_summary(*report(ran.settings), as_json=True)
    printed = json.loads(capsys.readouterr().out)
    assert printed["report"] == str(ran.settings.out / "report.html")
    assert printed["summary"] == [
        {"what": row.what, "synthetic": row.synthetic, "real": row.real}
        for row in ran.content.summary
    ]


def test_the_short_demo_is_smaller_in_everything_that_takes_time():
    usual, short = DemoSettings(Path("o"), 3), DemoSettings.short(Path("o"), 3)
    assert (short.out, short.seed) == (usual.out, usual.seed)
    for name in ("max_nodes", "steps", "samples"):
        assert getattr(short, name) < getattr(usual, name)
    assert set(short.families) < set(usual.families)


def test_smaller_graphs_stay_in_their_parts():
    data = data_of(jobs(12))
    kept = demo_api.at_most(data, 12)
    assert 0 < len(kept.graphs["train"]) < len(data.graphs["train"])
    for split, names in data.names.items():
        wanted = [
            n for n, dag in zip(names, data.graphs[split], strict=True) if dag.num_nodes <= 12
        ]
        assert list(kept.names[split]) == wanted
        assert len(kept.contents[split]) == len(wanted)
    total = sum(len(dags) for dags in data.graphs.values())
    assert len(kept.left_out) == total - sum(len(dags) for dags in kept.graphs.values())
    assert kept.schema is data.schema
