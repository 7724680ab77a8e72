"""``layerdag release``: from traces to a package that may be published, or the reasons why not."""

import argparse
import json
from pathlib import Path

from layerdag.cli.printing import add_strict, print_notes, strict_code

SUMMARY = (
    "Make a package that you may publish from your own traces, in one command: read them, split "
    "them by run, train, sample without copies, evaluate, attack, and write synthetic traces with "
    "a data card, a report and a verdict. Exit code 1, and nothing to publish, while a sample "
    "breaks a rule, copies a real job, holds a foreign word, or an attack succeeds. A run that was "
    "stopped goes on with the same command."
)
EXAMPLE = (
    "  layerdag release traces --out release                 # about a quarter of an hour\n"
    "  layerdag release traces --out release --budget 5m --num 100\n"
    "  layerdag release traces --out release --until read    # only say what is there\n"
    "\n"
    "RELEASE may be published. RELEASE.private beside it stays with you: weights, split, hashes,\n"
    "and the report with figures of real jobs."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("traces", type=Path, metavar="TRACES", help="folder of traces of jobs")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="RELEASE", help="folder of the release"
    )
    parser.add_argument(
        "--budget",
        default="15m",
        metavar="TIME",
        help="wall-clock time for everything, about: 900, 15m, 1h (default: %(default)s)",
    )
    parser.add_argument(
        "--num", type=int, default=200, help="samples at most (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of split, training, sampling (default: %(default)s)"
    )
    parser.add_argument(
        "--labels", type=Path, metavar="FILE", help="step times by name: CSV, JSON or JSON Lines"
    )
    parser.add_argument(
        "--max-nodes", type=int, default=2000, help="leave larger jobs out (default: %(default)s)"
    )
    parser.add_argument(
        "--steps", type=int, default=1200, help="of training at most (default: %(default)s)"
    )
    parser.add_argument(
        "--temperature",
        type=float,
        help="of sampling; higher is less like single jobs (default: .7 for jobs)",
    )
    parser.add_argument(
        "--best-of",
        type=int,
        metavar="N",
        help="graphs drawn for each sample (default: 8 for jobs)",
    )
    parser.add_argument(
        "--license", default="", metavar="NAME", help="of the samples, for the data card"
    )
    parser.add_argument(
        "--creator", default="", metavar="NAME", help="who publishes them, for the data card"
    )
    parser.add_argument(
        "--url", default="", metavar="URL", help="where they are published, for the data card"
    )
    parser.add_argument(
        "--cite", default="", metavar="TEXT", help="how to cite them, for the data card"
    )
    parser.add_argument(
        "--until",
        default="evaluate",
        metavar="STAGE",
        help="stop after read, train, sample or evaluate; the same command without it goes on",
    )
    parser.add_argument(
        "--cross-fit",
        type=int,
        metavar="K",
        help="train and sample K more models, each on the runs of all folds but one, for "
        "membership attacks on all runs; 0 for none (default: 5, or 2 to 4 below 40 runs, "
        "if there are too few otherwise and the budget allows)",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace a release, or start one anew"
    )
    add_strict(parser)


def run(args: argparse.Namespace) -> int:
    """Make the release; 1 if nothing may be published, or strictly if something is not known."""
    import torch

    from layerdag.cli.main import report_progress
    from layerdag.publication.pipeline import run_release
    from layerdag.publication.settings import ReleaseSettings
    from layerdag.runtime.settings import seconds_of
    from layerdag.runtime.terminal import log_stages

    budget = seconds_of(args.budget, "--budget")

    log_stages()
    torch.set_num_threads(1)  # its model is small: two threads take longer than one
    found = run_release(
        ReleaseSettings(
            traces=args.traces,
            out=args.out,
            budget=budget,
            num=args.num,
            seed=args.seed,
            labels=args.labels,
            max_nodes=args.max_nodes,
            steps=args.steps,
            temperature=args.temperature,
            best_of=args.best_of,
            license=args.license,
            creator=args.creator,
            url=args.url,
            cite=args.cite,
            cross_fit=args.cross_fit,
            until=args.until,
            overwrite=args.overwrite,
        ),
        report_progress,
    )
    if args.json:
        print(json.dumps(found.to_dict(), indent=1, allow_nan=False))
    else:
        print(found)
    print_notes(found.notes)
    refused = found.verdict is not None and not found.released
    return max(int(refused), strict_code(found.notes, strict=args.strict))
