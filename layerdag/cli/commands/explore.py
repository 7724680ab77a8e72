"""``layerdag explore``: which plan, on which cluster?"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from layerdag.cli.printing import print_figures, print_notes
from layerdag.errors import UsageError
from layerdag.runtime.terminal import counted

if TYPE_CHECKING:
    from layerdag.workloads.exploration import Exploration, PlanOutcome


SUMMARY = (
    "Simulate one step of every model under every plan on every cluster of a study: what fits, "
    "how long a step takes, what it costs."
)
EXAMPLE = (
    "  layerdag explore study.yaml --out study.html --processes 2\n"
    "  with study.yaml:\n"
    "    model: llama3-70b                 (or a list; names of 'layerdag workload --list')\n"
    "    step: {batch: 512, sequence: 4096}\n"
    "    plans: {tensor: [1, 2, 4, 8], pipeline: [1, 4, 8], zero: [0, 1, 3]}\n"
    "    clusters:\n"
    "      pods:\n"
    "        device: h100\n"
    "        memory_gib: 80\n"
    "        cost_per_hour: 2.5\n"
    "        network:\n"
    "          - {topology: Switch, ranks: 8, gb_per_s: 450, latency_ns: 500}\n"
    "          - {topology: Switch, ranks: 16, gb_per_s: 50, latency_ns: 2000}"
)
_SHOWN = 5


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("study", help="YAML file: model, step, plans, clusters")
    parser.add_argument("--out", metavar="FILE",
        help="page to write, .html; figures beside it as .json and .csv")  # fmt: skip
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="worker processes")


def run(args: argparse.Namespace) -> int:
    """Run what is not in the journal beside ``--out`` yet, then write and print."""
    from layerdag.report.exploration import require_replaceable_exploration, write_exploration
    from layerdag.workloads.exploration import explore

    if not args.out and not args.json:
        raise UsageError("Say where the page goes: --out FILE.html (or --json, for figures only).")
    journal = None
    if args.out:
        require_replaceable_exploration(args.out)
        journal = Path(args.out).with_name(f".{Path(args.out).stem}.journal.jsonl")
    found = explore(args.study, processes=args.processes, journal=journal)
    if args.out:
        write_exploration(found, args.out)
    print_figures(args.json, found.summary(), _lines(found))
    print_notes(found.notes)
    return 1 if any(outcome.error for outcome in found.outcomes) else 0


def _lines(found: "Exploration") -> list[str]:
    too_large = sum(not outcome.fits for outcome in found.outcomes)
    lines = [
        f"{counted(len(found.outcomes), 'plan')}: {len(found.simulated)} simulated, "
        f"{too_large} too large for the memory, {sum(found.left_out.values())} left out",
        *([f"{found.from_journal} of them from the journal"] if found.from_journal else []),
        "",
        f"{'s per step':>11} {'MFU':>6} {'forecast':>8} {'exposed':>8} {'GiB':>8} {'cost':>9}"
        "  plan",
    ]
    for best in found.best():
        lines.append(f"{best.model} on {best.cluster}, {counted(best.ranks, 'rank')}")
        mine = [o for o in found.simulated if (o.model, o.cluster) == (best.model, best.cluster)]
        lines += [_line(outcome) for outcome in mine[:_SHOWN]]
    for least in found.least_memory():
        lines.append(
            f"{least.model} on {least.cluster}: no plan fits; the least need is "
            f"{least.memory_gib:.1f} GiB ({least.plan}), the cluster has "
            f"{found.study.clusters[least.cluster].capacity / 2**30:.1f} GiB an accelerator"
        )
    for outcome in found.outcomes:
        if outcome.error:
            lines.append(f"failed: {outcome.cluster}, {outcome.plan}: {outcome.error}")
    return [*lines, "", *(f"note: {told}" for told in found.assumptions)]


def _line(outcome: "PlanOutcome") -> str:
    seconds = outcome.step_s or 0.0
    reached = outcome.forecast_utilization
    forecast = "-" if reached is None else f"{reached:.1%}"
    price = f"{outcome.cost:.4g}" if outcome.cost else "-"
    return (
        f"{seconds:>11.4g} {outcome.utilization or 0:>6.1%} {forecast:>8} "
        f"{(outcome.exposed_s or 0) / (seconds or 1):>8.1%} {outcome.memory_gib:>8.1f} "
        f"{price:>9}  {outcome.plan}"
    )
