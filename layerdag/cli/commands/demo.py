"""``layerdag demo``: the main job end to end on the embedded corpus, and a report of it."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from layerdag.report.content import ReportContent, SummaryRow

SUMMARY = (
    "Run the main job end to end on the embedded corpus and write a report: train a small model, "
    "sample from it, check and compare the samples, simulate them, and fit surrogates on them."
)
EXAMPLE = "  layerdag demo --out outputs/demo\n  layerdag demo --short"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--data", help="corpus folder (default: the embedded corpus)")
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
    from layerdag.traces.chakra.corpus import embedded_corpus

    # Its model is small: two threads take 1.7 times as long as one.
    torch.set_num_threads(1)
    folders = (Path(args.data or embedded_corpus()), Path(args.out))
    settings = (
        DemoSettings.short(*folders, args.seed) if args.short else DemoSettings(*folders, args.seed)
    )
    content, page = report(settings)
    print_summary(content, page, as_json=args.json)
    return 0


def print_summary(content: "ReportContent", page: Path, *, as_json: bool) -> None:
    """Print the summary of a report as a table or as JSON."""
    if as_json:
        rows = [{"what": r.what, "synthetic": r.synthetic, "real": r.real} for r in content.summary]
        print(json.dumps({"report": str(page), "summary": rows}))
    else:
        _print_table(content.summary)
        print(f"\nreport: {page}")


def _print_table(rows: "tuple[SummaryRow, ...]") -> None:
    table = [("", "synthetic", "real"), *((row.what, row.synthetic, row.real) for row in rows)]
    widths = [max(len(line[i]) for line in table) for i in range(3)]
    for what, synthetic, real in table:
        print(f"{what:<{widths[0]}}  {synthetic:>{widths[1]}}  {real:>{widths[2]}}")
