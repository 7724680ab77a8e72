"""``layerdag audit``: attack samples, and show what they give away as text, JSON and page."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from layerdag.cli.printing import nameless_notes, print_json, report_data, warn
from layerdag.errors import DataError, UsageError

if TYPE_CHECKING:
    from layerdag.privacy.auditing import Audit
    from layerdag.privacy.shadows import ShadowSettings

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
    add = parser.add_argument
    add("--synthetic", required=True, metavar="FOLDER",
        help="the samples: what 'layerdag sample' wrote, a release, or any folder of traces or "
        "flow graphs; every file in it is searched for private words")  # fmt: skip
    add("--train", metavar="FOLDER",
        help="traces or flow graphs that were trained on, any format")  # fmt: skip
    add("--holdout", metavar="FOLDER",
        help="others of the same kind that were not trained on")  # fmt: skip
    add("--data", metavar="DATA",
        help="instead of both: the data set that was learned from (corpus, its folder, or the run "
        "that learned from it), with its split")  # fmt: skip
    add("--labels", metavar="FILE",
        help="with --data: label file, where it is not in the folder")  # fmt: skip
    add("--checkpoint", metavar="DIR", help="attack these weights, too")
    add("--shadows", type=int, nargs="?", const=16, metavar="N",
        help="attack the weights by likelihood ratio, too, with N shadow models (16 if no number "
        "is named), trained as the checkpoint was on halves of training and held-out graphs, and "
        "kept in DIR.shadows, so that a stopped audit goes on")  # fmt: skip
    add("--shadow-budget", metavar="TIME",
        help="for training all of them: 600, 10m, 1h (default: 10m)")  # fmt: skip
    add("--shadow-steps", type=int, metavar="N",
        help="most steps of each instead, without a limit of time")  # fmt: skip
    add("--init", metavar="FOLDER",
        help="checkpoint that the audited one started from, where it is not the "
        "shipped one")  # fmt: skip
    add("--report", metavar="PAGE", help="write an HTML page (and its figures beside it)")
    add("--strict", action="store_true",
        help="exit code 1 unless every figure is no better than chance, nothing is copied and no "
        "private word is found")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Print what samples give away; with ``--strict`` 1 unless it is nothing."""
    from layerdag.report.auditing import audit_content
    from layerdag.report.page import plain, require_replaceable_report, write_report
    from layerdag.runtime.terminal import log_stages

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
    log_stages()
    found = _of_folders(args, shadows) if folders else _of_data(args, shadows)
    if args.report:
        write_report(audit_content(found), args.report)
    if args.json:
        print_json(plain(_figures(found)))
    else:
        print(found)
    report_data(found)
    if args.report and not args.json:
        print(f"report: {args.report}")
    return int(args.strict and not found.passes)


def _shadows(args: argparse.Namespace) -> "ShadowSettings | None":
    """Return what was asked of shadow models; None without any."""
    from layerdag.runtime.settings import seconds_of

    if args.shadows is None:
        for name in ("shadow_steps", "shadow_budget", "init"):
            if getattr(args, name) is not None:
                flag = f"--{name.replace('_', '-')}"
                raise UsageError(f"{flag} is for shadow models; add --shadows, or leave it out.")
        return None
    if args.checkpoint is None:
        raise UsageError("--shadows is for an attack on weights; name them with --checkpoint.")
    import torch

    from layerdag.privacy.shadows import ShadowSettings

    torch.set_num_threads(1)  # the models are small: two threads take longer than one
    checkpoint, budget = Path(args.checkpoint), args.shadow_budget
    return ShadowSettings(
        count=args.shadows,
        steps=args.shadow_steps,
        budget=None if budget is None else seconds_of(budget, "--shadow-budget"),
        init=args.init,
        folder=checkpoint.with_name(f"{checkpoint.resolve().name}.shadows"),
    )


def _of_folders(args: argparse.Namespace, shadows: "ShadowSettings | None") -> "Audit":
    from layerdag.cli.main import report_progress
    from layerdag.privacy.auditing import audit

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
    from layerdag.privacy.auditing import WhiteBox, audit_of
    from layerdag.runtime.terminal import stage
    from layerdag.samples.manifest import report_unread
    from layerdag.samples.stream import stream_samples
    from layerdag.training.checkpoint import load_checkpoint

    against, samples = ReferenceData(args.data, args.labels, warn), args.synthetic
    with stage("reading the real graphs"):
        data = against.load_for_samples(samples)
    made = stream_samples(samples, data.schema)
    report_unread(samples, warn)
    if args.checkpoint is None:
        found = audit_of(data, made)
    else:
        loaded = load_checkpoint(args.checkpoint)
        attack = WhiteBox(shadows, report_progress)
        weights, report = attack.on(loaded, against.load_for_checkpoint(loaded))
        found = replace(audit_of(data, made, weights), shadows=report)
    folder = against.folder()
    try:
        words = None if folder is None else search_words(samples, Path(folder))
    except DataError as error:
        warn(f"{samples}: not searched for private words ({error})")
        words = None
    return replace(found, words=words)


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
