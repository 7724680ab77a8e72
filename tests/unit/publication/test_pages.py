"""The data card has what Croissant and its responsible-AI fields require."""

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from random_jobs import random_job

from layerdag.datasets.dataset import GraphDataset
from layerdag.kinds.job import JOB
from layerdag.kinds.registry import graph_kind
from layerdag.publication.cross_fitting import RunRequirement
from layerdag.publication.drawing import KEPT, AcceptedSamples
from layerdag.publication.evaluation import (
    SIMILARITY,
    USEFULNESS,
    Reason,
    ReleaseDecision,
    ReleaseVerdict,
)
from layerdag.publication.pages import (
    CAVEATS,
    SAMPLES_ALONE,
    ReleaseFindings,
    _answers,
    _provenance,
    _summary,
    data_card,
    owners_content,
    public_content,
)
from layerdag.publication.settings import ReleaseSettings
from layerdag.report.content import IS_IT_LIKE, IS_IT_USEFUL
from layerdag.report.page import render
from layerdag.statistics import Interval
from layerdag.surrogates.training_sets import REAL, SYNTHETIC

COLUMNS = ["name", "nodes", "edges", "ranks", "label", "family"]
# Croissant 1.1, "Dataset-level information": required properties.
REQUIRED = ("@context", "@type", "conformsTo", "description", "license", "name", "url",
    "creator", "datePublished", "citeAs", "version", "distribution", "recordSet")  # fmt: skip


def card(tmp_path: Path, kind: str = "trace", license_: str = "CC-BY-4.0", **more: Any) -> Any:
    (tmp_path / "traces").mkdir(exist_ok=True)
    (tmp_path / "samples.csv").write_text(",".join(COLUMNS) + "\ns,3,2,1,0.5,gpt\nt,3,2,1,,gpt\n")
    plain: dict[str, Any] = {
        "settings": ReleaseSettings(tmp_path / "traces", tmp_path / "out", license=license_),
        "jobs": SimpleNamespace(kind=graph_kind(kind)),
        "data": None,
        "kept": (1, 2, 3),
        "verdict": SimpleNamespace(line="The samples may be published: all is well."),
        "drawn": SimpleNamespace(price=1.25),
        "evaluation": None,
    }
    return data_card(SimpleNamespace(**{**plain, **more}), tmp_path, COLUMNS)


def test_what_the_specification_requires_is_there(tmp_path):
    made = card(tmp_path)
    assert all(made[name] for name in REQUIRED)
    assert made["@type"] == "sc:Dataset"
    assert made["conformsTo"] == [
        "http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"
    ]  # fmt: skip
    json.dumps(made, allow_nan=False)


def test_every_prefix_that_it_uses_is_declared(tmp_path):
    made = card(tmp_path)
    used = {name.split(":")[0] for name in made if ":" in name}
    assert used == {"rai"}
    for prefix in (*used, "cr", "sc", "dct"):
        assert made["@context"][prefix].startswith("http")


def test_the_table_can_be_checked_by_its_hash(tmp_path):
    table, files = card(tmp_path)["distribution"]
    data = (tmp_path / "samples.csv").read_bytes()
    assert table["sha256"] == hashlib.sha256(data).hexdigest()
    assert table["contentSize"] == f"{len(data)} B"
    assert table["contentUrl"] == "samples.csv"
    assert files["includes"] == "samples/*/*.et"


@pytest.mark.parametrize(
    ("kind", "name", "pattern", "encoding"),
    [
        ("trace", "synthetic-execution-traces", "samples/*/*.et", "application/octet-stream"),
        ("flow", "synthetic-flow-graphs", "samples/*.graphml", "application/xml"),
    ],
)
def test_traces_and_flow_graphs_are_files_of_their_own_kind(
    tmp_path, kind, name, pattern, encoding
):
    made = card(tmp_path, kind)
    files = made["distribution"][1]
    assert (made["name"], files["includes"], files["encodingFormat"]) == (name, pattern, encoding)
    assert made["description"].startswith("3 synthetic ")
    assert "all is well" in made["description"]


def test_records_are_the_columns_of_the_table(tmp_path):
    [records] = card(tmp_path)["recordSet"]
    assert [field["name"] for field in records["field"]] == COLUMNS
    types = {field["name"]: field["dataType"] for field in records["field"]}
    assert {name for name, kind in types.items() if kind == "sc:Integer"} == {
        "nodes", "edges", "ranks"
    }  # fmt: skip
    assert (types["label"], types["family"]) == ("sc:Float", "sc:Text")
    assert records["key"]["@id"] == records["field"][0]["@id"]
    for field in records["field"]:
        source = field["source"]
        assert source["fileObject"]["@id"] == "samples.csv"
        assert source["extract"]["column"] == field["name"]


def test_the_card_says_who_where_and_how_to_cite(tmp_path):
    (tmp_path / "traces").mkdir()
    stated = {"creator": "Acme", "url": "https://acme.example/data", "cite": "Acme (2026)"}
    made = card(tmp_path, settings=ReleaseSettings(tmp_path / "traces", tmp_path / "out", **stated))
    assert (made["creator"]["name"], made["url"], made["citeAs"]) == tuple(stated.values())


def test_a_license_is_what_the_owner_said_or_nothing(tmp_path):
    assert card(tmp_path)["license"] == "CC-BY-4.0"
    assert "license" not in card(tmp_path, license_="")


def test_limits_and_attacks_are_told(tmp_path):
    attack = SimpleNamespace(
        name="nearest", auc=0.5321, interval=Interval(0.45, 0.61), in_words=lambda: "at chance"
    )
    read = SimpleNamespace(
        name="family", of_training=0.5, of_held_out=0.4, in_words=lambda: "no more than chance"
    )
    leaks = SimpleNamespace(attacks=(attack,), inferences=(read,))
    made = card(tmp_path, evaluation=SimpleNamespace(leaks=leaks))
    assert made["rai:dataLimitations"] == [*CAVEATS, JOB.caution, SAMPLES_ALONE]
    assert "nearest: AUROC 0.53 [0.45, 0.61], at chance" in made["rai:dataPreprocessingProtocol"][0]
    assert (
        "family: 50.0% of training graphs, 40.0% of held-out graphs, no more than chance"
        in (made["rai:dataPreprocessingProtocol"][0])
    )
    assert "1.2 drawn for each one kept" in made["rai:dataManipulationProtocol"]
    untold = card(tmp_path)["rai:dataPreprocessingProtocol"][0]
    assert "no membership attack could be run" in untold


RESERVED = ReleaseVerdict(ReleaseDecision.RESERVED, (), ("32 runs are too few",), ("20 samples",))
NEEDS = (
    RunRequirement("membership attacks", 535, 32, "distinct runs"),
    RunRequirement("usefulness", 20, 7),
)
MET = replace(NEEDS[1], found=20)


def evaluation(**changes: Any) -> Any:
    plain: dict[str, Any] = {
        "ratio": 1.0, "ratio_with_copies": 1.1, "leaks": None, "transfer": None, "systems": None,
        "simulations": (), "failed": (), "repairs": {}, "similarity": None,
        "left_out": (), "structure": SimpleNamespace(validity=0.75),
        "real_structure": SimpleNamespace(validity=1.0),
    }  # fmt: skip
    return SimpleNamespace(**{**plain, **changes})


def transfer(real: float, made: float) -> Any:
    """Return a report whose predictors have these rank correlations."""

    def row(_: str, source: str) -> Any:
        mean = {REAL: real, SYNTHETIC: made}[source]
        return SimpleNamespace(scores={"spearman": SimpleNamespace(mean=mean)})

    return SimpleNamespace(rows=(SimpleNamespace(family="trees"),), row=row, tested_on=40)


@pytest.fixture
def results(tmp_path) -> ReleaseFindings:
    (tmp_path / "traces").mkdir()
    settings = ReleaseSettings(tmp_path / "traces", tmp_path / "out", seed=7)
    words = (KEPT,) * 20 + ("copy of a real graph",) * 5
    made: Any = SimpleNamespace(kind=JOB, num_runs=30, num_programs=5, programs={})
    drawn = AcceptedSamples(tuple(SimpleNamespace() for _ in words), words, 3, 0.25, 9.0)
    kept: Any = drawn.samples[:20]
    return ReleaseFindings(
        settings=settings, jobs=made, data=None, needs=NEEDS, drawn=drawn, kept=kept,
        evaluation=evaluation(), verdict=RESERVED, seconds={"train": 60.4},
        training={"steps": 90, "best_step": 80},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("verdict", "told", "tone", "reason"),
    [
        (ReleaseVerdict(ReleaseDecision.YES), "yes", "good", "Nothing that was looked for was"),
        (RESERVED, "yes, with a reserve", "fair", "Nothing was found, but 32 runs are too few."),
        (
            ReleaseVerdict(ReleaseDecision.NO, (Reason("two copies", ()), Reason("an error", ()))),
            "no", "poor", "Two copies; an error.",
        ),
    ],
)  # fmt: skip
def test_the_first_answer_says_whether_and_why(results, verdict, told, tone, reason):
    first, *_ = _answers(replace(results, verdict=verdict))
    assert (first.question, first.answer, first.tone) == ("May it be shared?", told, tone)
    assert first.reason.startswith(reason)


def test_use_cannot_be_told_from_few_labels(results):
    *_, use = _answers(results)
    assert (use.answer, use.tone) == ("too few to tell", "fair")
    assert use.reason == "There are 7 labeled held-out graphs, and 20 are needed."


def test_what_did_not_fit_into_the_budget_is_not_judged(results):
    left_out = (SIMILARITY, USEFULNESS, "simulated times")
    late = replace(
        results, evaluation=evaluation(left_out=left_out, ratio=None), needs=(NEEDS[0], MET)
    )
    told = {answer.question: answer for answer in _answers(late)}
    assert {told[IS_IT_LIKE].answer, told[IS_IT_USEFUL].answer} == {"not looked at"}
    assert {f"not looked at: {what}" for what in left_out} < {row.what for row in _summary(late)}


def test_nothing_is_said_of_samples_that_were_not_judged(results):
    assert len(list(_answers(replace(results, evaluation=None)))) == 1


def test_the_summary_tells_the_price_of_rejection(results):
    lines = {row.what: (row.synthetic, row.real, row.note) for row in _summary(results)}
    assert lines["samples"] == ("20", "", "25 drawn, 1.2 for each one kept")
    assert lines["real graphs"][0] == "30 runs, 5 programs"
    assert lines["drawn and rejected: copy of a real graph"] == ("5", "", "20.0% of all")
    assert lines["nodes with numbers of a single real run"][2].startswith(
        "3 nodes of these samples"
    )
    assert lines["samples that break a rule"][:2] == ("25.0%", "0%")
    assert lines["median ratio of distances"] == ("1.0", "1", "without rejecting copies 1.1")
    assert lines["graphs for usefulness"][2] == "needs 20: too few to tell"


def test_a_price_of_nothing_kept_is_told(results):
    none = AcceptedSamples(results.drawn.samples[:2], ("cut off",) * 2, 0, 0.25, 1.0)
    lines = {row.what: row.note for row in _summary(replace(results, drawn=none, kept=()))}
    assert lines["samples"] == "2 drawn, none kept"


def test_provenance_names_training_seed_and_time(results):
    told = dict(_provenance(results))
    assert told["training"] == "90 steps, best at 80"
    assert told["near copies"] == "nearer than 0.250 to a real graph"
    assert (told["seed"], told["time"]) == ("7", "train 60 s")
    assert "real graphs" not in told


@pytest.fixture(scope="module")
def jobs() -> GraphDataset:
    made = [random_job(seed, 2, layers=4) for seed in range(8)]
    return GraphDataset.build("jobs", "trace", {"train": made[:5], "test": made[5:]}, num_bins=2)


def with_samples(results: ReleaseFindings, jobs: GraphDataset) -> ReleaseFindings:
    """Return results whose samples are drawn, and whose figures are none."""
    kept: Any = tuple(
        SimpleNamespace(dag=dag, name=f"sample-{i}") for i, dag in enumerate(jobs.graphs["train"])
    )
    nothing = dict.fromkeys(("novelty", "weights"), ())
    return replace(results, data=jobs, kept=kept, evaluation=evaluation(**nothing))


def test_the_public_report_shows_no_single_real_job(results, jobs):
    content = public_content(with_samples(results, jobs))
    assert content.neighbors == ()
    assert content.distributions == ()
    (timeline,) = content.timelines
    assert timeline.title.startswith("A sample")
    assert all(picture.title.startswith("sample-") for picture in content.pictures)


def test_the_owner_sees_samples_beside_real_jobs(results, jobs):
    content = owners_content(with_samples(results, jobs))
    assert content.neighbors
    assert [job.title[:8] for job in content.timelines] == ["A real j", "A sample"]
    assert "not to be shared" in content.title


def test_samples_that_are_refused_are_not_in_the_public_report(results, jobs):
    refused = ReleaseVerdict(ReleaseDecision.NO, (Reason("two copies", ()),))
    content = public_content(replace(with_samples(results, jobs), verdict=refused))
    assert content.timelines == ()
    assert content.pictures == ()
    assert content.lead.endswith("They must not be published.")


def test_every_verdict_leads_to_a_section_that_is_there(results, jobs):
    page = render(public_content(replace(with_samples(results, jobs), evaluation=None)))
    for at in re.findall(r'href="#(\w+)"', page):
        assert f'id="{at}"' in page
