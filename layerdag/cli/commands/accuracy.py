"""``layerdag accuracy``: how far predicted steps are from measured ones."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from layerdag.cli.printing import print_figures
from layerdag.errors import UsageError
from layerdag.runtime.terminal import counted

if TYPE_CHECKING:
    from layerdag.workloads.accuracy import Accuracy, ErrorFigures, GroupAccuracy


SUMMARY = (
    "Hold predicted training steps against measured ones: errors, order and memory, beside a "
    "constant utilization and the data sheet."
)
EXAMPLE = (
    "  layerdag accuracy                                       (the public rows that are shipped)\n"
    "  layerdag accuracy mine.csv --calibrate ten-rows.csv --by device,model --json\n"
    "  layerdag accuracy --calibrate 10 --refit --draws 10     (rows drawn at random, others "
    "judged)\n"
    "  layerdag accuracy mine.csv --calibrate ten-rows.csv --out shares.json\n"
    "  with mine.csv: model, layers, hidden, heads, ffn, vocab, seq, global_batch, micro_batch,\n"
    "    data, tensor, pipeline, zero, recompute, precision, device, devices, devices_per_node,\n"
    "    step_s, memory_gib, ... (docs/reference/accuracy.md has all columns)"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("table", nargs="?", metavar="TABLE.csv",
        help="measured steps (default: the public rows that are shipped)")  # fmt: skip
    parser.add_argument("--calibrate", metavar="ROWS|FILE",
        help="rows of your machines (.csv), fitted shares (.json), or a number of rows to draw of "
        "each source and device, which are not judged (default: shares as shipped)")  # fmt: skip
    parser.add_argument("--by", default="source,device", metavar="KEY,KEY",
        help="group by source, device, software, model or precision (%(default)s)")  # fmt: skip
    parser.add_argument("--draws", type=int, default=50, metavar="N",
        help="draws, where --calibrate is a number (default: %(default)s)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="seed of the draws")
    parser.add_argument("--refit", action="store_true",
        help="where --calibrate is a number: fit all shares to a random half of the plans, draw "
        "from it and judge the other half")  # fmt: skip
    parser.add_argument("--out", metavar="FILE.json", help="write the calibrated shares")


def run(args: argparse.Namespace) -> int:
    """Predict every row and print how far off predictions are."""
    from layerdag.workloads.accuracy import accuracy
    from layerdag.workloads.step_efficiency import write_efficiency

    calibrate = args.calibrate
    if calibrate is not None and calibrate.lstrip("-").isdigit():
        calibrate = int(calibrate)
    if args.refit and not isinstance(calibrate, int):
        raise UsageError("--refit needs --calibrate N, the number of rows to draw.")
    if args.out and (isinstance(calibrate, int) or calibrate is None):
        raise UsageError("--out writes shares that rows calibrated; give --calibrate ROWS.csv.")
    found = accuracy(
        args.table,
        calibrate=calibrate,
        by=[key for key in args.by.split(",") if key],
        draws=args.draws,
        seed=args.seed,
        refit=args.refit,
    )
    if args.out:
        write_efficiency(found.shares, Path(args.out))
    print_figures(args.json, found.summary(), lines(found))
    return 0


def lines(found: "Accuracy") -> list[str]:
    """Return the figures as a table, what was left out and what is to be known."""
    names = [" ".join(group.group.values()) or "all rows" for group in found.groups]
    width = max(map(len, (*names, "group")))
    made = [
        "errors in % of the measured step, median / p90; tau: Kendall's, of tokens/s and of MFU",
        f"{'group':<{width}} {'rows':>5} {'predicted':>12} {'tau':>5} {'MFU':>5} "
        f"{'constant MFU':>13} {'data sheet':>12} {'memory':>12} {'tau':>5}",
    ]
    for name, group in zip(names, found.groups, strict=True):
        made.append(f"{name:<{width}} {_line(group)}")
    if found.left_out:
        made += ["", f"{counted(len(found.left_out), 'row')} left out:"]
        reasons: dict[str, list[str]] = {}
        for row in found.left_out:
            reasons.setdefault(row.reason, []).append(f"{row.source} {row.row}")
        for reason, rows in sorted(reasons.items(), key=lambda entry: -len(entry[1])):
            more = f" and {len(rows) - 1:,} more" if len(rows) > 1 else ""
            made.append(f"  {reason} ({rows[0]}{more})")
    return [*made, *(["", *(f"note: {note}" for note in found.notes)] if found.notes else [])]


def _line(group: "GroupAccuracy") -> str:
    memory = _errors(group.memory) if group.memory else "-"
    made = (
        f"{group.rows:>5} {_errors(group.step):>12} {_tau(group.step.tau):>5} "
        f"{_tau(group.tau_mfu):>5} {_errors(group.constant_mfu):>13} {_errors(group.sheet):>12} "
        f"{memory:>12} {_tau(group.memory.tau if group.memory else None):>5}"
    )
    if group.low is not None and group.high is not None:
        made += f"  median {100 * group.low:.1f} to {100 * group.high:.1f} in four of five draws"
    return made


def _errors(figures: "ErrorFigures") -> str:
    return f"{100 * figures.median:.1f} / {100 * figures.p90:.1f}"


def _tau(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
