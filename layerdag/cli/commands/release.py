"""``layerdag release``: from traces to a package that may be published, or the reasons why not."""

import argparse
from pathlib import Path

from layerdag.cli.field_flags import add_fields, fields_given
from layerdag.cli.printing import add_strict, print_figures, print_notes, strict_code

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


_SETTINGS = (
    "num", "seed", "labels", "max_nodes", "steps", "temperature", "best_of", "license", "creator",
    "url", "cite", "until", "cross_fit", "overwrite",
)  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    from layerdag.publication.settings import ReleaseSettings

    parser.add_argument("traces", type=Path, metavar="TRACES", help="folder of traces of jobs")
    parser.add_argument("--out", type=Path, required=True, help="folder of the release")
    parser.add_argument("--budget", default="15m", metavar="TIME",
        help="wall-clock time for all, about: 900, 15m, 1h (default: %(default)s)")  # fmt: skip
    types = {"labels": Path, "temperature": float, "best_of": int, "cross_fit": int}
    add_fields(parser, ReleaseSettings, _SETTINGS, types=types)
    add_strict(parser)


def run(args: argparse.Namespace) -> int:
    """Make the release; 1 if nothing may be published, or strictly if something is not known."""
    import torch

    from layerdag.cli.main import report_progress, resume_gc
    from layerdag.publication.pipeline import run_release
    from layerdag.publication.settings import ReleaseSettings
    from layerdag.runtime.settings import seconds_of
    from layerdag.runtime.terminal import log_stages

    budget = seconds_of(args.budget, "--budget")
    log_stages()
    resume_gc()
    torch.set_num_threads(1)  # its model is small: two threads take longer than one
    settings = ReleaseSettings(
        traces=args.traces, out=args.out, budget=budget, **fields_given(args, _SETTINGS)
    )
    found = run_release(settings, report_progress)
    print_figures(args.json, found.to_dict(), [str(found)])
    print_notes(found.notes)
    refused = found.verdict is not None and not found.released
    return max(int(refused), strict_code(found.notes, strict=args.strict))
