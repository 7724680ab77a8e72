"""``layerdag calibrate``: fit a machine to measured steps."""

import argparse
import sys
from typing import TYPE_CHECKING

from layerdag.cli.printing import print_figures
from layerdag.errors import UsageError

if TYPE_CHECKING:
    from layerdag.simulator.calibration import CalibratedMachine, FittedLink


SUMMARY = "Fit a machine to steps that you measured, to predict the time of others."
EXAMPLE = (
    "  layerdag calibrate data --families mlp --ranks 1,2 --cores 2 --out machine.json\n"
    "  layerdag calibrate runs.csv --device a100-40 --link 1000,300 --out a100.json\n"
    "  with runs.csv, traces relative to it, rows of one workload being repeats:\n"
    "    workload,seconds\n"
    "    traces/llama,0.0902\n"
    "    traces/llama,0.0871\n"
    "  layerdag simulate traces/other --machine machine.json"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("runs", metavar="RUNS",
        help="CSV with the columns workload and seconds, or the folder of a corpus")  # fmt: skip
    parser.add_argument("--out", required=True, metavar="machine.json", help="where it goes")
    parser.add_argument("--families", default="", metavar="A,B",
        help="only these model families of a corpus")  # fmt: skip
    parser.add_argument("--ranks", default="", metavar="N,N",
        help="only runs on so many ranks")  # fmt: skip
    parser.add_argument("--cores", type=int, metavar="N",
        help="all ranks share a host of N cores: more ranks than cores take turns "
        "(default: each rank has a device of its own)")  # fmt: skip
    parser.add_argument("--device", metavar="NAME",
        help="scale the data-sheet rates of a device, such as a100-40 or h100, by one efficiency "
        "(default: rates of each operator, from runs of one rank)")  # fmt: skip
    parser.add_argument("--link", metavar="NS,GB/s",
        help="latency and bandwidth (1e9 bytes) between two ranks, where they are known "
        "(default: fitted to runs of several ranks)")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Fit, write and tell how good it is."""
    from layerdag.hardware.devices import require_device
    from layerdag.simulator.calibration import (
        machine_document,
        require_replaceable_machine,
        write_machine,
    )
    from layerdag.simulator.calibration_fit import calibrate, read_runs_of

    require_replaceable_machine(args.out)
    device = require_device(args.device) if args.device else None
    link = _link(args.link)
    families = [name for name in args.families.split(",") if name]
    runs = read_runs_of(args.runs, families=families, ranks=_ranks(args.ranks))
    print(f"fitting a machine to {_runs(len(runs))}", file=sys.stderr)
    machine = calibrate(runs, device=device, link=link, cores=args.cores)
    write_machine(machine, args.out)
    figures = {"out": args.out, "runs": len(runs), "machine": machine_document(machine)}
    print_figures(args.json, figures, [*_lines(machine, len(runs)), f"wrote {args.out}"])
    return 0


def _lines(machine: "CalibratedMachine", num_runs: int) -> list[str]:
    from layerdag.simulator.calibration import DeviceCosts, FittedOperatorCosts

    lines = [_runs(num_runs)]
    costs = machine.costs
    if isinstance(costs, DeviceCosts):
        lines.append(
            f"efficiency  {costs.efficiency:.3f} of {costs.device.name}; the same as "
            f"--compute {costs.device.name}:efficiency={costs.efficiency:.3f}"
        )
    elif isinstance(costs, FittedOperatorCosts):
        lines.append(f"operators   {len(costs.rates)} with rates of their own")
    if machine.link:
        link = machine.link
        lines.append(
            f"link        {link.latency_ns:,.0f} ns, {link.bytes_per_s / 1e9:,.3f} GB/s in each "
            "direction"
        )
    if machine.cores:
        lines.append(f"cores       {machine.cores} for all ranks")
    for name, spread in (("one rank", machine.alone), ("several", machine.together)):
        if spread:
            lines.append(
                f"{name:<11} error {spread.error:.1%} in the median of {spread.runs:.0f} runs left "
                f"out of the fit; four in five took {spread.low:.2f} to {spread.high:.2f} times "
                "the prediction"
            )
    if not (machine.alone or machine.together):
        lines.append("error       not known: too few runs to leave some out")
    return lines


def _runs(count: int) -> str:
    return f"{count} measured run{'s' if count > 1 else ''}"


def _ranks(text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",") if number]
    except ValueError:
        raise UsageError(f"--ranks is '{text}'; write numbers, such as 1,2.") from None


def _link(text: str | None) -> "FittedLink | None":
    from layerdag.simulator.calibration import FittedLink

    if text is None:
        return None
    try:
        latency_ns, gigabytes = (float(number) for number in text.split(","))
    except ValueError:
        raise UsageError(f"--link is '{text}'; write NS,GB/s, such as 1000,300.") from None
    return FittedLink(latency_ns, gigabytes * 1e9)
