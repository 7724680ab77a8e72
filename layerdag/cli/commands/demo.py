"""``layerdag demo``: the main job end to end on the embedded corpus, and a report of it."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from layerdag.report.content import ReportContent

SUMMARY = (
    "Run the main job end to end on the embedded corpus and write a report: train a small model, "
    "sample from it, check and compare the samples, simulate them, and fit surrogates on them."
)
EXAMPLE = "  layerdag demo --out outputs/demo\n  layerdag demo --short"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument(
        "--out",
        default="outputs/demo",
        help="folder of everything it writes (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of training and sampling (default: %(default)s)"
    )
    parser.add_argument("--short", action="store_true", help="a small version, for CI")


def run(args: argparse.Namespace) -> int:
    """Run all stages and print the summary."""
    import torch

    from layerdag.api.demo import DemoSettings, report
    from layerdag.cli.main import resume_gc

    # Its model is small: two threads take 1.7 times as long as one.
    torch.set_num_threads(1)
    resume_gc()
    settings = DemoSettings.short if args.short else DemoSettings
    content, page = report(settings(Path(args.out), args.seed))
    print_summary(content, page, as_json=args.json)
    return 0


def print_summary(content: "ReportContent", page: Path, *, as_json: bool) -> None:
    """Print the summary of a report as a table or as JSON."""
    if as_json:
        rows = [{"what": r.what, "synthetic": r.synthetic, "real": r.real} for r in content.summary]
        print(json.dumps({"report": str(page), "summary": rows}))
        return
    table = [("", "synthetic", "real"), *((r.what, r.synthetic, r.real) for r in content.summary)]
    first, second, third = (max(len(line[i]) for line in table) for i in range(3))
    for what, synthetic, real in table:
        print(f"{what:<{first}}  {synthetic:>{second}}  {real:>{third}}")
    print(f"\nreport: {page}")
