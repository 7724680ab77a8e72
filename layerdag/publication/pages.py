"""The pages of a release: public report, owner's report, README and data card.

The data card is Croissant 1.1 (JSON-LD) with the fields of responsible AI, both published by
MLCommons ("Croissant Format Specification", version 1.1, and "Croissant RAI Specification", version
1.0).
"""

import csv
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from layerdag.codec.unfolding import repair_in_words
from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.discovery import FoundJobs, operators_of
from layerdag.evaluation.metrics.base import attribute_views
from layerdag.graph.attributed_graph import LABEL
from layerdag.kinds.graph_kind import Card
from layerdag.publication.cross_fitting import RunRequirement, program_of_runs
from layerdag.publication.drawing import KEPT, AcceptedSamples
from layerdag.publication.evaluation import (
    SIMILARITY,
    USEFULNESS,
    ReleaseDecision,
    ReleaseVerdict,
    SampleEvaluation,
)
from layerdag.publication.settings import ReleaseSettings
from layerdag.publication.workspace import CARD, FIGURES, REPORT, SAMPLES, TABLE
from layerdag.report.content import (
    MAY_BE_SHARED,
    Answer,
    Picture,
    ReportContent,
    SummaryRow,
    Timeline,
    similarity_verdict,
    utility_verdict,
)
from layerdag.report.gather import (
    attribute_shares,
    can_be_drawn,
    job_rows,
    neighbors_of,
    picture_of,
    structure_distributions,
    systems,
    timelines_of,
    vocabularies,
)
from layerdag.sampling.generated import GeneratedGraph
from layerdag.statistics import Verdict
from layerdag.version import __version__
from layerdag.viz.numbers import interval, number, percent, percents

_TONES = {ReleaseDecision.YES: "good", ReleaseDecision.RESERVED: "fair", ReleaseDecision.NO: "poor"}
_SHORT = {
    ReleaseDecision.YES: "yes",
    ReleaseDecision.RESERVED: "yes, with a reserve",
    ReleaseDecision.NO: "no",
}
CAVEATS = (
    "What these attacks do not find, another one may; none of them is a proof of anonymity.",
    "More samples can only reveal more: the figures hold for this number of samples.",
    "Structure and sizes of the samples are like those of the real jobs: who knows that a family "
    "of models was traced learns how such jobs look.",
)
STEPS_OF_PROGRAMS = (
    "The trace of a sample is the training step of its program on one rank, without times; a "
    "compute model gives them (layerdag simulate --compute)."
)
SAMPLES_ALONE = (
    "The weights and the table of conditions are not part of the release and were not made for it."
)


@dataclass(frozen=True, eq=False)
class ReleaseFindings:
    """Everything that the stages found."""

    settings: ReleaseSettings
    jobs: FoundJobs
    data: GraphDataset | None
    needs: tuple[RunRequirement, ...]
    drawn: AcceptedSamples | None
    kept: tuple[GeneratedGraph, ...]
    evaluation: SampleEvaluation | None
    verdict: ReleaseVerdict
    seconds: Mapping[str, float]
    training: Mapping[str, object]

    @cached_property
    def of_real_operators(self) -> int:
        """How many samples have equally many of each operator as a real run."""
        real = set(self.jobs.programs.values())
        if not real:
            return 0
        return sum(operators_of(sample.written_graph()) in real for sample in self.kept)


def public_content(results: ReleaseFindings) -> ReportContent:
    """Return the report that goes out with the samples: no figure of a single real job."""
    evaluation = results.evaluation
    return ReportContent(
        title=f"Synthetic {_what(results)}: what may be shared",
        lead=_lead(results),
        answers=tuple(_answers(results)),
        summary=tuple(_summary(results)),
        structure=evaluation.structure if evaluation else None,
        novelty=evaluation.novelty if evaluation else None,
        leaks=evaluation.leaks if evaluation else None,
        similarity=evaluation.similarity if evaluation else None,
        transfer=evaluation.transfer if evaluation else None,
        target=results.jobs.kind.card.target,
        repairs=()
        if evaluation is None
        else tuple((repair_in_words(name), count) for name, count in evaluation.repairs.items()),
        timelines=_timelines(results, ()),
        simulated_on=next(iter(systems())),
        pictures=_samples_drawn(results),
        provenance=tuple(_provenance(results)),
        caveats=_caveats(results),
    )


def owners_content(results: ReleaseFindings) -> ReportContent:
    """Return the report for the owner: the same, with real graphs, weights and schema."""
    content = public_content(results)
    data, evaluation = results.data, results.evaluation
    if data is None or evaluation is None:
        return content
    dags = [sample.dag for sample in results.kept]
    views = attribute_views(data.schema)
    sets = (data.graphs["train"], data.held_out, dags)
    pairs = neighbors_of(data, dags)
    return replace(
        content,
        title="Release: the owner's report (not to be shared)",
        real_structure=evaluation.real_structure,
        weight_attacks=evaluation.weights,
        distributions=structure_distributions(*sets, views),
        shares=attribute_shares(*sets, views, vocabularies(data)),
        simulations=evaluation.simulations,
        systems=evaluation.systems,
        neighbors=pairs,
        timelines=_timelines(results, data.held_out),
        pictures=() if pairs else content.pictures,
    )


def _lead(results: ReleaseFindings) -> str:
    data, verdict = results.data, results.verdict
    if data is None or not results.kept:
        return verdict.line
    graphs = data.schema.kind.card.graphs
    return (
        f"{len(results.kept):,} synthetic {graphs}, made by a model that learned from "
        f"{len(data.graphs['train']):,} real ones; {len(data.held_out):,} real ones that it never "
        f"saw are what they are compared with. They {verdict.outcome.value}."
    )


def _timelines(results: ReleaseFindings, real: Sequence[DAG]) -> tuple[Timeline, ...]:
    if results.data is None or results.verdict.outcome is ReleaseDecision.NO:
        return ()
    return timelines_of(results.data, real, [sample.dag for sample in results.kept])


def _answers(results: ReleaseFindings) -> Iterator[Answer]:
    verdict = results.verdict
    reason = {
        ReleaseDecision.YES: (
            "Nothing that was looked for was found, and there were enough graphs to look."
        ),
        ReleaseDecision.RESERVED: f"Nothing was found, but {'; '.join(verdict.reserves)}.",
        ReleaseDecision.NO: f"{'; '.join(one.what for one in verdict.reasons)}.",
    }[verdict.outcome]
    yield Answer(
        MAY_BE_SHARED,
        _SHORT[verdict.outcome],
        _TONES[verdict.outcome],
        reason[:1].upper() + reason[1:],
        "membership" if results.evaluation and results.evaluation.leaks else "summary",
    )
    if results.evaluation is not None:
        evaluation = results.evaluation
        likeness = similarity_verdict(evaluation.ratio, evaluation.similarity)
        if SIMILARITY in evaluation.left_out:
            likeness = replace(likeness, answer="not looked at", reason=_NO_TIME)
        yield likeness
        yield _use(results, evaluation)


_NO_TIME = "No time of the budget was left to look."


def _use(results: ReleaseFindings, evaluation: SampleEvaluation) -> Answer:
    need = results.needs[-1]
    missing = (
        f"There are {need.found} labeled held-out graphs, and {need.needed} are needed."
        if not need.is_met
        else "Labels could not be predicted: there are too few of them, or all are alike."
    )
    answer = utility_verdict(evaluation.transfer, missing)
    if USEFULNESS in evaluation.left_out and need.is_met:
        return replace(answer, answer="not looked at", reason=_NO_TIME)
    return answer


def _summary(results: ReleaseFindings) -> Iterator[SummaryRow]:
    drawn, evaluation = results.drawn, results.evaluation
    jobs = results.jobs
    runs = f"{jobs.num_runs:,} runs, {jobs.num_programs:,} programs"
    yield SummaryRow("real graphs", runs, "", "runs of a program differ in sizes and edges alone")
    if drawn is not None:
        num_drawn = len(drawn.outcomes)
        price = "none kept"
        if drawn.price is not None:
            price = f"{number(drawn.price, 2)} for each one kept"
        samples = f"{len(results.kept):,}"
        yield SummaryRow("samples", samples, "", f"{num_drawn:,} drawn, {price}")
        for word, count in sorted(drawn.counts().items()):
            if word != KEPT:
                share = f"{percent(count / num_drawn)} of all"
                yield SummaryRow(f"drawn and rejected: {word}", f"{count:,}", "", share)
        yield SummaryRow(
            "samples with the operators of a real run",
            f"{results.of_real_operators:,}",
            "",
            "equally many of each; their sizes, edges and times are others",
        )
        if jobs.kind.has_steps:
            rejected = "samples with such a call were rejected"
            yield SummaryRow("calls of a single real run", "0", "", rejected)
        else:
            yield SummaryRow(
                "nodes with numbers of a single real run",
                "0",
                "",
                f"{drawn.renumbered:,} nodes of these samples got other numbers than were drawn",
            )
    if evaluation is not None:
        yield SummaryRow(
            "samples that break a rule", percent(1 - evaluation.structure.validity),
            percent(1 - evaluation.real_structure.validity), "beside it, real held-out graphs",
        )  # fmt: skip
        if evaluation.ratio is not None:
            yield SummaryRow(
                "median ratio of distances",
                number(evaluation.ratio, 2),
                "1",
                ""
                if evaluation.ratio_with_copies is None
                else f"without rejecting copies {number(evaluation.ratio_with_copies, 2)}",
            )
        if evaluation.similarity is not None:
            yield from job_rows(evaluation.similarity)
        yield from _attack_rows(evaluation)
        if evaluation.systems is not None or evaluation.simulations:
            fraction = len(evaluation.failed)
            yield SummaryRow("samples that did not simulate to their end", f"{fraction}", "0")
        for what in evaluation.left_out:
            yield SummaryRow(f"not looked at: {what}", "", "", _NO_TIME)
    for need in results.needs:
        note = f"needs {need.needed:,}: {'enough' if need.is_met else 'too few to tell'}"
        yield SummaryRow(f"graphs for {need.test}", f"{need.found:,} {need.part}", "", note)


def _attack_rows(evaluation: SampleEvaluation) -> Iterator[SummaryRow]:
    if evaluation.leaks is None:
        return
    near = evaluation.leaks.nearness
    fraction = f"{percent(near.dcr_share)} {percents(near.interval)}"
    yield SummaryRow(
        "samples nearer to training than to held-out graphs",
        fraction,
        "50%",
        "as near to both" if near.verdict is Verdict.CHANCE else near.verdict.value,
    )
    # Attacks on all samples stand in the section on membership, those on folds nowhere else.
    folded = evaluation.cross_fit
    if folded is None:
        return
    for attack in folded.attacks:
        beside = "0.5"
        if attack.holdout is not None:
            honest = attack.holdout
            beside = f"{number(honest.auc, 2)} {interval(honest.interval)} of held-out graphs"
        what = f"membership attack, {folded.in_words()}, {attack.description}"
        auroc = f"{number(attack.auc, 2)} {interval(attack.interval)}"
        yield SummaryRow(what, auroc, beside, attack.in_words())


def _samples_drawn(results: ReleaseFindings) -> tuple[Picture, ...]:
    """Return pictures of two samples of middling size; none of samples that stay private."""
    if (
        results.data is None
        or len(results.kept) < 2
        or results.verdict.outcome is ReleaseDecision.NO
    ):
        return ()
    if not can_be_drawn(results.data):
        return ()
    ordered = sorted(results.kept, key=lambda sample: sample.dag.num_nodes)
    chosen = (ordered[len(ordered) // 3], ordered[len(ordered) // 2])
    if chosen[1].dag.num_nodes > 400:
        return ()
    return tuple(picture_of(results.data, sample.dag, sample.name) for sample in chosen)


def _provenance(results: ReleaseFindings) -> Iterator[tuple[str, str]]:
    yield "layerdag", __version__
    data = results.data
    if data is not None:
        train, held = len(data.graphs["train"]), len(data.held_out)
        unit = split_unit(data, results.jobs)
        yield "real graphs", f"{train:,} for training, {held:,} held out, split by {unit}"
    if results.training:
        steps, best = results.training.get("steps"), results.training.get("best_step")
        yield "training", f"{steps} steps, best at {best}"
    if results.drawn is not None:
        yield "near copies", f"nearer than {number(results.drawn.threshold)} to a real graph"
    yield "seed", str(results.settings.seed)
    if results.seconds:
        yield "time", ", ".join(f"{name} {spent:.0f} s" for name, spent in results.seconds.items())


_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
_NUMBERS = ("nodes", "edges", "ranks")


def data_card(results: ReleaseFindings, folder: Path, columns: list[str]) -> dict[str, Any]:
    """Return the card of a finished folder."""
    about = results.jobs.kind.card
    table = (folder / TABLE).read_bytes()
    card: dict[str, Any] = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": [
            "http://mlcommons.org/croissant/1.1",
            "http://mlcommons.org/croissant/RAI/1.0",
        ],
        "name": f"synthetic-{about.title.replace(' ', '-')}",
        "description": (
            f"{len(results.kept)} synthetic {about.title} ({about.encoding}), sampled from a model "
            f"that learned from private ones. {results.verdict.line}"
        ),
        "version": "1.0.0",
        "datePublished": datetime.now(UTC).date().isoformat(),
        "creator": {
            "@type": "sc:Organization",
            "name": results.settings.creator or "The owner of the private traces",
        },
        # Croissant requires both.
        "url": results.settings.url or "https://example.org/replace-by-where-it-is-published",
        "citeAs": results.settings.cite
        or "The publisher of this folder has not said how to cite it.",
        "isLiveDataset": False,
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": TABLE,
                "name": TABLE,
                "description": "One line for each sample.",
                "contentUrl": TABLE,
                "contentSize": f"{len(table)} B",
                "encodingFormat": "text/csv",
                "sha256": hashlib.sha256(table).hexdigest(),
            },
            {
                "@type": "cr:FileSet",
                "@id": SAMPLES,
                "name": SAMPLES,
                "description": about.files,
                "includes": f"{SAMPLES}/{about.pattern}",
                "encodingFormat": about.media_type,
            },
        ],
        "recordSet": [_records(columns, folder / TABLE, about)],
        **_rai(results),
    }
    if results.settings.license:
        card["license"] = results.settings.license
    return card


def read_me(results: ReleaseFindings, *, has_samples: bool) -> str:
    """Return the text that tells whoever gets the folder what is in it.

    Args:
        results: What was found.
        has_samples: Whether samples are in the folder.
    """
    settings = results.settings
    what = _what(results)
    if not has_samples:
        return f"# No synthetic {what}\n\n{results.verdict.line}\n\n`{REPORT}` has the figures.\n"
    files = [
        f"- `{SAMPLES}/{results.jobs.kind.card.pattern}`: the samples",
        f"- `{TABLE}`: a line for each sample",
        f"- `{CARD}`: the data card (Croissant)",
        f"- `{REPORT}`, `{FIGURES}`: what was looked for, and found",
    ]
    stated = {"Publisher": settings.creator, "Where": settings.url, "Cite as": settings.cite}
    stated["License"] = settings.license
    facts = [f"{name}: {value}" for name, value in stated.items() if value]
    return "\n".join(
        [
            f"# {len(results.kept):,} synthetic {what}",
            "",
            f"They were sampled from a model that learned from private {what} (layerdag "
            f"{__version__}); none is a measurement.",
            "",
            results.verdict.line,
            "",
            *files,
            "",
            *(f"{fact}  " for fact in facts),
            *([""] if facts else ()),
            *(f"- {caveat}" for caveat in _caveats(results)),
            "",
        ]
    )


def _what(results: ReleaseFindings) -> str:
    return results.jobs.kind.card.title


def held_out_alike(data: GraphDataset, jobs: FoundJobs) -> str | None:
    """Return a sentence where held-out runs are of programs that are trained on, else None."""
    known = {jobs.programs.get(name) for name in data.names["train"]}
    held = [jobs.programs.get(name) for part in ("val", "test") for name in data.names[part]]
    alike = sum(program in known for program in held)
    if not alike:
        return None
    return (
        f"{alike} of {len(held)} held-out graphs are runs of programs that are trained on, too, at "
        "other sizes: similarity and attacks compare like with like."
    )


def split_unit(data: GraphDataset, jobs: FoundJobs) -> str:
    """Return what is held out as a whole: "program" or "run"."""
    whole = program_of_runs(jobs) is not None and held_out_alike(data, jobs) is None
    return "program" if whole else "run"


def _caveats(results: ReleaseFindings) -> tuple[str, ...]:
    alike = None if results.data is None else held_out_alike(results.data, results.jobs)
    kind = results.jobs.kind
    own = STEPS_OF_PROGRAMS if kind.has_steps else kind.caution
    return (*CAVEATS, *filter(None, (own, alike)), SAMPLES_ALONE)


_COLUMNS = {
    "name": "Name of the sample, of its file or folder",
    "nodes": "Number of its nodes",
    "edges": "Number of its edges",
    "ranks": "Number of its ranks",
}


def _records(columns: list[str], table: Path, graphs: Card) -> dict[str, Any]:
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    about = {**_COLUMNS, LABEL: graphs.label}
    return {
        "@type": "cr:RecordSet",
        "@id": "list",
        "name": "list",
        "description": "What is known of each sample.",
        "key": {"@id": "list/name"},
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"list/{column}",
                "name": column,
                "description": about.get(column, f"Condition '{column}' that it was sampled for"),
                "dataType": _data_type(column, [row[column] for row in rows if row[column]]),
                "source": {"fileObject": {"@id": TABLE}, "extract": {"column": column}},
            }
            for column in columns
        ],
    }


def _data_type(column: str, values: Sequence[str]) -> str:
    if column in _NUMBERS:
        return "sc:Integer"
    try:
        return "sc:Float" if [float(value) for value in values] else "sc:Text"
    except ValueError:
        return "sc:Text"


def _rai(results: ReleaseFindings) -> dict[str, Any]:
    drawn, evaluation = results.drawn, results.evaluation
    price = drawn.price if drawn is not None else None
    unique = "numbers that a single real run has were drawn anew"
    if results.jobs.kind.has_steps:
        unique = "samples with a call that a single real run has were rejected"
    attacks = "no membership attack could be run"
    if evaluation is not None and evaluation.leaks is not None:
        areas = (
            f"{attack.name}: AUROC {number(attack.auc, 2)} [{number(attack.interval.low, 2)}, "
            f"{number(attack.interval.high, 2)}], {attack.in_words()}"
            for attack in evaluation.leaks.attacks
        )
        reads = (
            f"{read.name}: {percent(read.of_training)} of training graphs, "
            f"{percent(read.of_held_out)} of held-out graphs, {read.in_words()}"
            for read in evaluation.leaks.inferences
        )
        attacks = "; ".join([*areas, *reads])
    return {
        "rai:dataCollection": (
            "Sampled from a generative model (layerdag) that was trained on private traces of jobs."
        ),
        "rai:dataCollectionType": ["Others"],
        "rai:dataManipulationProtocol": (
            "Copies and near copies of real graphs were rejected while sampling "
            f"({number(price, 2)} drawn for each one kept); {unique}; words outside a public "
            "vocabulary were removed or renamed."
        ),
        "rai:dataUseCases": [
            "Simulating training and inference jobs on clusters",
            "Training and testing performance models",
            "Testing tools that read execution traces",
        ],
        "rai:dataLimitations": [*_caveats(results)],
        "rai:dataBiases": [
            "Frequencies of models, sizes and operators are those of the private traces, about."
        ],
        "rai:dataSocialImpact": (
            "Lets traces be studied without giving real ones away; a reader may take samples for "
            "measurements, which they are not."
        ),
        "rai:personalSensitiveInformation": [
            "No personal data: operators, sizes, times and dependencies of programs."
        ],
        "rai:dataReleaseMaintenancePlan": "None: the folder is complete as it is.",
        "rai:annotationsPerItem": "0",
        "rai:dataPreprocessingProtocol": [f"layerdag {__version__} release; attacks: {attacks}."],
    }
