"""``layerdag demo``: the main job end to end on the embedded corpus, and a report of it."""

import argparse
from pathlib import Path

SUMMARY = (
    "Run the main job end to end on the embedded corpus and write a report: train a small model, "
    "sample from it, check and compare the samples, simulate them, and fit surrogates on them."
)
EXAMPLE = "  layerdag demo --data data --out outputs/demo\n  layerdag demo --short"


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
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def run(args: argparse.Namespace) -> int:
    """Run all stages and print the summary."""
    import torch

    from layerdag.cli.demo import DemoSettings, report
    from layerdag.traces import embedded_corpus

    # Its model is small: two threads take 1.7 times as long as one.
    torch.set_num_threads(1)
    folders = (Path(args.data or embedded_corpus()), Path(args.out))
    settings = (
        DemoSettings.short(*folders, args.seed) if args.short else DemoSettings(*folders, args.seed)
    )
    report(settings, as_json=args.json)
    return 0
