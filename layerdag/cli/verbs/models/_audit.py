"""``layerdag audit``: what do samples, and weights, give away of the graphs they were made from?"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from layerdag.errors import DataError, UsageError

if TYPE_CHECKING:
    from layerdag.api import Audit, ShadowSettings

SUMMARY = (
    "Attack samples, as somebody would to whom they were given: copies, which graphs were trained "
    "on, motifs and whole jobs that come back, what is read of the models behind them, private "
    "words in any file. Every figure stands beside the same on held-out graphs."
)
EXAMPLE = (
    "  layerdag audit --data data --synthetic samples            # a data set with its split\n"
    "  layerdag audit --train a --holdout b --synthetic release  # three folders, in any format\n"
    "  layerdag audit --data data --synthetic samples --checkpoint runs/best --report audit.html\n"
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
        help="instead of both: the data set that was learned from, or the run that learned from "
        "it, with its split",
    )
    parser.add_argument(
        "--labels", metavar="FILE", help="with --data: label file, where it is not in the folder"
    )
    parser.add_argument("--checkpoint", metavar="DIR", help="attack these weights, too")
    _configure_shadows(parser)
    parser.add_argument("--json", metavar="FILE", help="write all figures to this file")
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
    """Add the flags on shadow models."""
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
    from layerdag.cli.output import once
    from layerdag.report import require_replaceable_report

    folders = args.train is not None or args.holdout is not None
    if folders == (args.data is not None) or (folders and None in (args.train, args.holdout)):
        raise UsageError(
            "Say what was trained on: --train FOLDER and --holdout FOLDER, or --data DATA."
        )
    if folders and args.labels:
        raise UsageError("--labels needs --data; labels of folders are looked for in them.")
    if args.report:
        require_replaceable_report(args.report)
        if (
            args.json
            and Path(args.json).resolve() == Path(args.report).with_suffix(".json").resolve()
        ):
            raise UsageError(
                f"{args.json}: the page's own figures are written there; leave --json out, or name "
                "another file."
            )
    shadows = _shadows(args)
    audit = _of_folders if folders else _of_data
    named = ("synthetic", "train", "holdout", "data", "labels", "checkpoint")
    settings = {"verb": "audit", **{name: getattr(args, name) for name in named}}
    found = once(settings, _files(args), lambda: audit(args, shadows))
    if args.json:
        found.save_figures(args.json)
    found.show(args.report, as_json=False)
    return int(args.strict and not found.passes)


def _files(args: argparse.Namespace) -> list[str] | None:
    """Return all that an audit reads; None if its figures are not to be kept."""
    from layerdag.cli.settings import RealData

    if args.no_cache or args.shadows is not None:  # what shadow models learn takes its time
        return None
    real: tuple[str, ...] | None = (args.train, args.holdout)
    if args.data is not None:
        real = RealData(args.data, args.labels).files(args.synthetic)
    if real is None:
        return None
    return [args.synthetic, *real, *([args.checkpoint] if args.checkpoint else [])]


def _shadows(args: argparse.Namespace) -> "ShadowSettings | None":
    """Return what was asked of shadow models; None without any."""
    from layerdag.cli.settings import seconds_of

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

    from layerdag.api import ShadowSettings

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


def _tell(line: str) -> None:
    """Print a line on what happens; the figures alone go to standard output."""
    print(f"layerdag: {line}", file=sys.stderr, flush=True)


def _of_folders(args: argparse.Namespace, shadows: "ShadowSettings | None") -> "Audit":
    """Return the audit of three folders."""
    from layerdag._runtime import log_stages
    from layerdag.api import audit

    log_stages()
    return audit(
        train=args.train,
        holdout=args.holdout,
        synthetic=args.synthetic,
        checkpoint=args.checkpoint,
        shadows=shadows,
        tell=_tell,
    )


def _of_data(args: argparse.Namespace, shadows: "ShadowSettings | None") -> "Audit":
    """Return the audit against a data set, with its words looked for in the samples."""
    from layerdag.api import WhiteBox, search_words
    from layerdag.cli.output import audit
    from layerdag.cli.settings import RealData, warn

    against = RealData(args.data, args.labels)
    found = audit(args.synthetic, against, args.checkpoint, WhiteBox(shadows, _tell))
    folder = against.folder()
    try:
        words = None if folder is None else search_words(args.synthetic, Path(folder))
    except DataError as error:
        warn(f"{args.synthetic}: not searched for private words ({error})")
        words = None
    return replace(found, words=words)
