"""``layerdag audit``: attack samples; the outcome is cached by content.

Results of earlier calls, kept for the same files, settings and version.

A result is found by a hash of all that it depends on: the content and names of the files read, the
settings, and the code of this package and of the libraries that compute. What is damaged or of
another version is computed again. Entries are JSON; nothing in them is executed. They tell of
private graphs, so that only their owner can read them.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from layerdag.cli.printing import left_out_lines, nameless_notes, note_lines, warn
from layerdag.errors import DataError, UsageError
from layerdag.runtime.kept import code_hash, content_hash, keep, read_kept

if TYPE_CHECKING:
    from layerdag.api.reference_data import ReferenceData
    from layerdag.privacy.auditing import Audit, WhiteBox
    from layerdag.privacy.shadows import ShadowSettings
    from layerdag.report.content import ReportContent, SummaryRow


def audit(
    samples: str, against: "ReferenceData", checkpoint: str | None, attack: "WhiteBox | None" = None
) -> "Audit":
    """Compare samples with the training and the held-out graphs of a data set.

    Args:
        samples: Folder that ``layerdag sample`` wrote.
        against: The data set.
        checkpoint: What was sampled from, for the attack on the weights; None leaves it out.
        attack: How weights are attacked; None is without shadow models.

    Raises:
        UsageError: If samples or checkpoint come from another split of the data.
        DataError: If a file is missing or damaged.
    """
    from layerdag.cli.printing import report_unread
    from layerdag.privacy.auditing import WhiteBox, audit_of
    from layerdag.runtime.terminal import log_stages, stage
    from layerdag.surrogates.data import stream_samples
    from layerdag.training.checkpoint import load_checkpoint

    log_stages()
    with stage("reading the real graphs"):
        data = against.load_for_samples(samples)
    made = stream_samples(samples, data.schema)
    report_unread(samples)
    if checkpoint is None:
        return audit_of(data, made)
    loaded = load_checkpoint(checkpoint)
    weights, report = (attack or WhiteBox()).on(loaded, against.load_for_checkpoint(loaded))
    return replace(audit_of(data, made, weights), shadows=report)


def figures_json(found: "Audit") -> str:
    """Return all figures of an audit as JSON."""
    from layerdag.report.page import plain

    return json.dumps(plain(_figures(found)), indent=1, allow_nan=False)


def _figures(found: "Audit") -> dict[str, object]:
    leaks = found.leaks
    return {
        "train": found.train,
        "held_out": found.held_out,
        "passes": found.passes,
        "advice": found.advice,
        "novelty": found.novelty,
        "copies": found.copies,
        "words": found.words,
        **({} if found.rare is None else {"rare_words": found.rare}),
        "samples": None if leaks is None else leaks.samples,
        "nearness": None if leaks is None else leaks.nearness,
        "attacks": [*(() if leaks is None else leaks.attacks), *found.weights],
        "shadows": found.shadows,
        "inferences": () if leaks is None else leaks.inferences,
        "neighborhoods": found.neighborhoods,
        "local": found.local,
        **({} if found.held is None else {"held": found.held}),
        **({"left_out": len(found.left_out)} if found.left_out else {}),
        **({"notes": nameless_notes(found.notes)} if found.notes else {}),
    }


def content_of(found: "Audit") -> "ReportContent":
    """Return what the page shows."""
    from layerdag.privacy.auditing import CAVEATS
    from layerdag.report.content import ReportContent

    return ReportContent(
        title="What the samples give away",
        lead="Copies of training graphs, and attacks that ask which real graphs were learned.",
        summary=tuple(_summary(found)),
        structure=found.structure,
        novelty=found.novelty,
        leaks=found.leaks,
        weight_attacks=found.weights,
        caveats=(*([found.advice] if found.advice else []), *CAVEATS),
    )


def _summary(found: "Audit") -> "Iterator[SummaryRow]":
    from layerdag.privacy.auditing import figure_cells, neighborhood_cells
    from layerdag.report.content import SummaryRow
    from layerdag.report.sections import attack_words
    from layerdag.viz.html import interval, number, percent, percents

    new = found.novelty
    yield SummaryRow(
        "copies of training graphs",
        percent(new.copied),
        percent(new.copied_real),
        f"of {new.graphs:,} samples; beside it, of {found.held_out:,} held-out graphs",
    )
    copies = found.copies
    yield SummaryRow(
        "copies of real graphs, new durations",
        percent(copies.copied),
        percent(copies.copied_real),
        "beside it, held-out graphs that repeat a training graph",
    )
    yield SummaryRow(
        "near copies of real graphs",
        percent(copies.near),
        percent(copies.near_quantile),
        "nearer to a real graph than all but so many held-out graphs are",
    )
    yield from _word_rows(found)
    leaks = found.leaks
    if leaks is not None:
        near = leaks.nearness
        fraction = f"{percent(near.dcr_share)} {percents(near.interval)}"
        yield SummaryRow("nearer to training than to held-out", fraction, "50%", near.in_words())
    for attack in (*(() if leaks is None else leaks.attacks), *found.weights):
        auroc = f"{number(attack.auc, 2)} {interval(attack.interval)}"
        honest = attack.holdout
        beside = "0.5 is chance"
        if honest is not None:
            beside = f"{number(honest.auc, 2)} {interval(honest.interval)} of held-out graphs"
        yield SummaryRow(f"attack: {attack_words(attack.name)}", auroc, beside, attack.in_words())
    for attack in found.shadows.as_targets if found.shadows is not None else ():
        auroc = f"{number(attack.auc, 2)} {interval(attack.interval)}"
        what = f"attack: {attack_words(attack.name)}; {attack.description}"
        yield SummaryRow(what, auroc, "0.5 is chance", attack.in_words())
    for read in () if leaks is None else leaks.inferences:
        yield SummaryRow(
            f"read from samples: {read.description}",
            percent(read.of_training),
            f"{percent(read.of_held_out)} of held-out graphs",
            read.in_words(),
        )
    for name, of_samples, of_real in neighborhood_cells(found.neighborhoods):
        yield SummaryRow(
            f"nodes whose neighborhood occurs {name}", of_samples, of_real, "mean per graph"
        )
    for row in found.local:
        if not row.generated.error:
            yield SummaryRow(row.metric.description, *figure_cells(row), row.metric.name)


def _word_rows(found: "Audit") -> "Iterator[SummaryRow]":
    """Yield a line on rare and one on private words, where they were looked for."""
    from layerdag.report.content import SummaryRow

    if found.rare is not None:
        count = f"{found.rare.rare:,}"
        yield SummaryRow("words of few training programs", count, "0", found.rare.in_words())
    if found.words is not None:
        files, count = f"{found.words.files:,}", f"{len(found.words.found):,}"
        first = found.words.found[0].sentence() if found.words.found else "every file was searched"
        yield SummaryRow(f"private words in the {files} files of the samples", count, "0", first)


FORMAT = "layerdag-kept-1"
MOST_KEPT = 50
_KIND = "audits"


def key_of(settings: Mapping[str, object], inputs: Iterable[str | Path]) -> str:
    """Return the hash of settings, of the content of files and folders, and of the code.

    Args:
        settings: As JSON.
        inputs: Files and folders that are read; what does not exist counts as missing.

    Raises:
        OSError: If a file cannot be read.
    """
    found = hashlib.sha256(code_hash().encode())
    found.update(json.dumps(settings, sort_keys=True).encode())
    for path in inputs:
        found.update(content_hash(path).encode())
    return found.hexdigest()


def cached(key: str) -> dict[str, object] | None:
    """Return what was kept under a key; None if there is nothing, or it is damaged."""
    entry = read_kept(_KIND, f"{key}.json")
    if entry is None:
        return None
    try:
        content = json.loads(entry)
        whole = content["format"] == FORMAT and content["key"] == key
        result = content["result"]
        if whole and content["sha256"] == _checksum(result) and isinstance(result, dict):
            return result
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return None


def store(key: str, result: Mapping[str, object]) -> None:
    """Keep a result; what cannot be written is no fault, and the oldest entries make room."""
    content = {"format": FORMAT, "key": key, "sha256": _checksum(result), "result": dict(result)}
    keep(_KIND, f"{key}.json", json.dumps(content).encode(), MOST_KEPT)


def _checksum(result: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class AuditOutcome:
    """An audit as texts.

    Attributes:
        text: What is printed.
        figures: All figures, as JSON.
        page: The HTML page.
        page_figures: The JSON beside the page.
        passes: Whether nothing was found.
        doubts: What was left out or not understood, a line each, for standard error.
    """

    text: str
    figures: str
    page: str
    page_figures: str
    passes: bool
    doubts: tuple[str, ...] = ()

    @classmethod
    def from_audit(cls, found: "Audit") -> "AuditOutcome":
        """Return the texts of an audit."""
        from layerdag.report.page import render, report_figures

        content = content_of(found)
        return cls(
            text=str(found),
            figures=figures_json(found),
            page=render(content),
            page_figures=json.dumps(report_figures(content), indent=1, allow_nan=False),
            passes=found.passes,
            doubts=(*left_out_lines(found.left_out), *note_lines(found.notes)),
        )

    def show(self, page: str | None, *, as_json: bool) -> None:
        """Print the audit as a table or as JSON, and write it as a page if one is named.

        Raises:
            UsageError: If the figures of the page would replace a file of something else.
        """
        from layerdag.report.page import require_replaceable_report, write_page

        if page is not None:
            require_replaceable_report(page)
            write_page(Path(page), self.page, (".json", self.page_figures + "\n"))
        print(self.figures if as_json else self.text)
        for line in self.doubts:
            print(line, file=sys.stderr)
        if page is not None and not as_json:
            print(f"report: {page}")


def cached_audit(
    settings: Mapping[str, object],
    inputs: Iterable[str | Path] | None,
    compute: "Callable[[], Audit]",
) -> AuditOutcome:
    """Return an audit, that of an earlier call if nothing has changed since.

    Args:
        settings: All that it depends on besides files.
        inputs: All files and folders that it reads; None computes and keeps nothing.
        compute: Runs the audit.
    """
    if inputs is None:
        return AuditOutcome.from_audit(compute())
    paths = list(inputs)
    key = key_of(settings, paths)
    found = _outcome(cached(key))
    if found is not None:
        print(
            "layerdag: the files are those of an earlier audit, whose figures follow (--no-cache "
            "computes them again)",
            file=sys.stderr,
        )
        return found
    outcome = AuditOutcome.from_audit(compute())
    if key_of(settings, paths) == key:  # no file was changed in the meantime
        store(key, asdict(outcome))
    return outcome


def _outcome(result: Mapping[str, object] | None) -> AuditOutcome | None:
    """Return a kept outcome; None of one that lacks something."""
    if result is None:
        return None
    names = ("text", "figures", "page", "page_figures")
    text, figures, page, page_figures = (result.get(name) for name in names)
    passes, doubts = result.get("passes"), result.get("doubts")
    if (
        isinstance(text, str)
        and isinstance(figures, str)
        and isinstance(page, str)
        and isinstance(page_figures, str)
        and isinstance(passes, bool)
        and isinstance(doubts, list)
    ):
        return AuditOutcome(text, figures, page, page_figures, passes, tuple(map(str, doubts)))
    return None


SUMMARY = (
    "Attack samples, as somebody would to whom they were given: copies, which graphs were trained "
    "on, motifs and whole jobs that come back, what is read of the models behind them, private "
    "words in any file. Every figure stands beside the same on held-out graphs."
)
EXAMPLE = (
    "  layerdag audit --data corpus --synthetic samples          # a data set with its split\n"
    "  layerdag audit --train a --holdout b --synthetic release  # three folders, in any format\n"
    "  layerdag audit --data corpus --synthetic samples --checkpoint runs/best --report a.html\n"
    "  layerdag audit --train a --holdout b --synthetic release --checkpoint runs/best --shadows"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument(
        "--synthetic",
        required=True,
        metavar="FOLDER",
        help="the samples: what 'layerdag sample' wrote, a release, or any folder of traces or "
        "flow graphs; every file in it is searched for private words",
    )
    parser.add_argument(
        "--train", metavar="FOLDER", help="traces or flow graphs that were trained on, any format"
    )
    parser.add_argument(
        "--holdout", metavar="FOLDER", help="others of the same kind that were not trained on"
    )
    parser.add_argument(
        "--data",
        metavar="DATA",
        help="instead of both: the data set that was learned from (corpus, its folder, or the run "
        "that learned from it), with its split",
    )
    parser.add_argument(
        "--labels", metavar="FILE", help="with --data: label file, where it is not in the folder"
    )
    parser.add_argument("--checkpoint", metavar="DIR", help="attack these weights, too")
    _configure_shadows(parser)
    parser.add_argument(
        "--report", metavar="PAGE", help="write an HTML page (and its figures beside it)"
    )
    parser.add_argument(
        "--no-cache",
        action="store_true",
        help="compute all figures again, even if no file has changed since an earlier audit",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="exit code 1 unless every figure is no better than chance, nothing is copied and no "
        "private word is found",
    )


def _configure_shadows(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shadows",
        type=int,
        nargs="?",
        const=16,
        metavar="N",
        help="attack the weights by likelihood ratio, too, with N shadow models (16 if no number "
        "is named), trained as the checkpoint was on halves of training and held-out graphs",
    )
    parser.add_argument(
        "--shadow-budget",
        metavar="TIME",
        help="for training all of them: 600, 10m, 1h (default: 10m)",
    )
    parser.add_argument(
        "--shadow-steps",
        type=int,
        metavar="N",
        help="most steps of each instead, without a limit of time",
    )
    parser.add_argument(
        "--shadow-folder",
        metavar="FOLDER",
        help="where losses under them are kept, so that a stopped audit goes on (default: DIR with "
        "'.shadows' at its end)",
    )
    parser.add_argument(
        "--init",
        metavar="FOLDER",
        help="checkpoint that the audited one started from, where it is not the shipped one",
    )


def run(args: argparse.Namespace) -> int:
    """Print what samples give away; with ``--strict`` 1 unless it is nothing."""
    from layerdag.report.page import require_replaceable_report

    folders = args.train is not None or args.holdout is not None
    if folders == (args.data is not None) or (folders and None in (args.train, args.holdout)):
        raise UsageError(
            "Say what was trained on: --train FOLDER and --holdout FOLDER, or --data DATA."
        )
    if folders and args.labels:
        raise UsageError("--labels needs --data; labels of folders are looked for in them.")
    if args.report:
        require_replaceable_report(args.report)
    shadows = _shadows(args)
    audit = _of_folders if folders else _of_data
    named = ("synthetic", "train", "holdout", "data", "labels", "checkpoint")
    settings = {"verb": "audit", **{name: getattr(args, name) for name in named}}
    found = cached_audit(settings, _files(args), lambda: audit(args, shadows))
    found.show(args.report, as_json=args.json)
    return int(args.strict and not found.passes)


def _files(args: argparse.Namespace) -> list[str] | None:
    """Return all that an audit reads; None if its figures are not to be kept."""
    from layerdag.api.reference_data import ReferenceData

    if args.no_cache or args.shadows is not None:  # what shadow models learn takes its time
        return None
    real: tuple[str, ...] | None = (args.train, args.holdout)
    if args.data is not None:
        real = ReferenceData(args.data, args.labels).files(args.synthetic)
    if real is None:
        return None
    return [args.synthetic, *real, *([args.checkpoint] if args.checkpoint else [])]


def _shadows(args: argparse.Namespace) -> "ShadowSettings | None":
    """Return what was asked of shadow models; None without any."""
    from layerdag.runtime.settings import seconds_of

    named = {
        "--shadow-steps": args.shadow_steps,
        "--shadow-budget": args.shadow_budget,
        "--shadow-folder": args.shadow_folder,
        "--init": args.init,
    }
    if args.shadows is None:
        for flag, value in named.items():
            if value is not None:
                raise UsageError(f"{flag} is for shadow models; add --shadows, or leave it out.")
        return None
    if args.checkpoint is None:
        raise UsageError("--shadows is for an attack on weights; name them with --checkpoint.")
    import torch

    from layerdag.privacy.shadows import ShadowSettings

    torch.set_num_threads(1)  # the models are small: two threads take longer than one
    beside = Path(args.checkpoint)
    default = beside.with_name(f"{beside.resolve().name}.shadows")
    budget = args.shadow_budget
    return ShadowSettings(
        count=args.shadows,
        steps=args.shadow_steps,
        budget=None if budget is None else seconds_of(budget, "--shadow-budget"),
        init=args.init,
        folder=Path(args.shadow_folder) if args.shadow_folder else default,
    )


def _of_folders(args: argparse.Namespace, shadows: "ShadowSettings | None") -> "Audit":
    from layerdag.cli.main import report_progress
    from layerdag.privacy.auditing import audit
    from layerdag.runtime.terminal import log_stages

    log_stages()
    return audit(
        train=args.train,
        holdout=args.holdout,
        synthetic=args.synthetic,
        checkpoint=args.checkpoint,
        shadows=shadows,
        tell=report_progress,
    )


def _of_data(args: argparse.Namespace, shadows: "ShadowSettings | None") -> "Audit":
    from layerdag.api.reference_data import ReferenceData
    from layerdag.cli.main import report_progress
    from layerdag.privacy.audit_inputs import search_words
    from layerdag.privacy.auditing import WhiteBox

    against = ReferenceData(args.data, args.labels, warn)
    found = audit(args.synthetic, against, args.checkpoint, WhiteBox(shadows, report_progress))
    folder = against.folder()
    try:
        words = None if folder is None else search_words(args.synthetic, Path(folder))
    except DataError as error:
        warn(f"{args.synthetic}: not searched for private words ({error})")
        words = None
    return replace(found, words=words)
