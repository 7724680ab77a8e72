"""``layerdag runs``: the reports of several runs side by side."""

import argparse
import json
import sys

SUMMARY = (
    "Compare the reports of several runs on one page: verdicts, how they were made, similarity, "
    "attacks and summaries."
)
EXAMPLE = (
    "  layerdag runs release-a release-b --out runs.html\n"
    "  layerdag runs outputs/demo/report.json outputs/other/report.json --json"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument(
        "reports",
        nargs="+",
        metavar="REPORT",
        help="report.json or report.html of a run, or the folder that holds it",
    )
    parser.add_argument(
        "--out", metavar="PAGE", help="page to write, .html; figures beside it as .json"
    )


def run(args: argparse.Namespace) -> int:
    """Write the page, and print the verdicts of each run."""
    from layerdag.report.comparison import (
        comparison_figures,
        read_reports,
        require_replaceable_comparison,
        write_comparison,
    )

    if args.out:
        require_replaceable_comparison(args.out)
    runs = read_reports(args.reports)
    if args.out:
        print(f"wrote {write_comparison(runs, args.out)}", file=sys.stderr)
    if args.json:
        json.dump(comparison_figures(runs), sys.stdout, indent=1)
        print()
        return 0
    for one in runs:
        print(one.name)
        for question, answer in one.answers.items():
            print(f"  {question:<28} {answer['answer']}")
    return 0
