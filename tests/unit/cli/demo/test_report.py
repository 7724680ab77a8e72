"""The whole demo on a corpus of a dozen tiny jobs, and what its report says of it."""

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tiny_corpus import write_corpus

from layerdag.cli.demo import DemoSettings, _report as demo, report
from layerdag.datasets import GraphDataset
from layerdag.datasets.sources import load_corpus
from layerdag.evaluation.rules import check_workload, has_errors
from layerdag.report import ReportContent
from layerdag.sampling import GeneratedGraph
from layerdag.simulator import Cluster, NetworkConfig, Topology, simulate, small_cluster
from layerdag.simulator.compute import MeasuredCompute
from layerdag.surrogates import TransferReport
from layerdag.traces import read_index, read_runs, read_workload


@dataclass(frozen=True)
class Ran:
    """A demo that has run."""

    settings: DemoSettings
    printed: str
    content: ReportContent


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("demo")
    corpus = write_corpus(folder / "corpus", {"train": 6, "val": 2, "test": 4})
    settings = DemoSettings(
        corpus, folder / "out", max_nodes=24, train_steps=1, width=32, samples=3, seed=5,
        families=("boosting",), processes=1,
    )  # fmt: skip
    seen: list[ReportContent] = []
    write = demo.write_report

    def copied(settings: DemoSettings, data: GraphDataset, _: object) -> tuple[GeneratedGraph, ...]:
        """Stand in for the untrained model, which samples slowly: hand out training graphs."""
        dags = data.graphs["train"][: settings.samples]
        return tuple(
            GeneratedGraph(f"sample-{i:05d}", i, dag, False, data.schema)
            for i, dag in enumerate(dags)
        )

    def kept(content: ReportContent, page: Path) -> Path:
        seen.append(content)
        return write(content, page)

    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setattr(demo, "write_report", kept)
        patch.setattr(demo.stages, "sample_stage", copied)
        patch.setattr(
            demo.evaluating, "transferred", lambda *_, **__: TransferReport((), (), 4, (0,))
        )
        report(settings, as_json=False)
    return Ran(settings, out.getvalue(), seen[0])


def test_everything_it_promises_lies_in_its_folder(ran: Ran) -> None:
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


def test_the_table_has_the_rows_of_the_report_in_straight_columns(ran: Ran) -> None:
    lines = ran.printed.splitlines()
    assert lines[-1] == f"report: {ran.settings.out / 'report.html'}"
    table = lines[: len(ran.content.summary) + 1]
    assert len({len(line) for line in table}) == 1
    for line, row in zip(table[1:], ran.content.summary, strict=True):
        assert line.startswith(row.what)
        assert line.endswith(row.real)
        assert line.removeprefix(row.what).split()[:1] == row.synthetic.split()[:1]


def test_samples_are_workloads_and_the_row_of_rules_counts_them(ran: Ran) -> None:
    folders = sorted((ran.settings.out / "samples").iterdir())
    jobs = [read_workload(folder / folder.name) for folder in folders]
    assert len(jobs) == 3
    sound = np.mean([not has_errors(check_workload(job)) for job in jobs])
    [row] = [r for r in ran.content.summary if r.what == "jobs whose traces keep every rule"]
    assert row.synthetic == f"{sound:.0%}"
    assert row.real == "100%"


def test_the_median_makespan_of_real_jobs_is_that_of_the_small_cluster(ran: Ran) -> None:
    data = load_corpus(ran.settings.data, max_nodes=ran.settings.max_nodes)
    wanted = set(data.names["test"])
    records = [r for r in read_index(ran.settings.data) if r.run in wanted]
    times = []
    for run in read_runs(ran.settings.data, records):
        job = run.workload()
        system, _ = small_cluster(job.num_ranks)
        network = NetworkConfig.single(Topology.SWITCH, job.num_ranks, 25.0, 1000.0)
        times.append(
            simulate(job, Cluster(network, system), compute=MeasuredCompute()).makespan_ns / 1e6
        )
    [row] = [r for r in ran.content.summary if r.what == "median simulated makespan, ms"]
    assert float(row.real) == pytest.approx(float(np.median(times)), rel=0.01)
    assert row.note == "on switch, 25 GB/s, 1 us"


def test_samples_stand_beside_the_real_jobs_nearest_to_them(ran: Ran) -> None:
    pair, *_ = ran.content.neighbors
    # Samples are training jobs here, so that each finds itself.
    assert pair.distance == pytest.approx(0, abs=1e-6)
    assert pair.sample.dag.num_nodes == pair.real.dag.num_nodes
    assert ran.content.pictures == ()
    assert [job.title.split(" (")[0] for job in ran.content.timelines][-1] == "A sample"


def test_without_a_neighbor_a_test_job_and_the_sample_nearest_in_size_are_drawn(ran: Ran) -> None:
    data = load_corpus(ran.settings.data, max_nodes=ran.settings.max_nodes)
    sizes = sorted(dag.num_nodes for dag in data.graphs["test"])
    real, sampled = demo._pictures(data, data.graphs["train"][:3])
    assert (real.title, sampled.title) == ("real test job", "sampled job")
    assert real.dag.num_nodes == sizes[len(sizes) // 3]
    assert len(real.label_N) == real.dag.num_nodes
    gaps = [abs(dag.num_nodes - real.dag.num_nodes) for dag in data.graphs["train"][:3]]
    assert abs(sampled.dag.num_nodes - real.dag.num_nodes) == min(gaps)


def test_verdicts_come_first_and_copies_forbid_sharing(ran: Ran) -> None:
    share, like, use = ran.content.answers
    assert (share.answer, share.at) == ("no", "validity")
    assert share.reason == "3 of 3 samples repeat a real job that was trained on."
    assert like.question == "Is it like the real ones?"
    assert use.answer == "too few to tell"  # no predictor was trained in this test


def test_copies_of_training_jobs_are_told_as_such(ran: Ran) -> None:
    [row] = [r for r in ran.content.summary if r.what == "valid, unique and novel"]
    assert row.synthetic == "0%"
    assert row.note.startswith("100% copies")


def test_provenance_says_how_to_repeat_it(ran: Ran) -> None:
    told = dict(ran.content.provenance)
    assert told["command"] == "layerdag demo --seed 5"
    assert told["training"] == "1 of 1 steps"
    assert told["data"].startswith("corpus, at most 24 nodes per job: ")
    assert told["seed of training and sampling"] == "5"
    stages = [word.split()[0] for word in told["time"].split(", ")]
    assert stages == ["load", "train", "sample", "evaluate", "simulate", "surrogate"]
    assert told["data fingerprint"] == load_corpus(ran.settings.data, max_nodes=24).fingerprint


def test_json_holds_the_same_rows(ran: Ran, monkeypatch, capsys) -> None:
    monkeypatch.setattr(demo, "_content", lambda settings: ran.content)
    report(ran.settings, as_json=True)
    printed = json.loads(capsys.readouterr().out)
    assert printed["report"] == str(ran.settings.out / "report.html")
    assert printed["summary"] == [
        {"what": row.what, "synthetic": row.synthetic, "real": row.real}
        for row in ran.content.summary
    ]
