"""``layerdag rankings``: do samples order clusters, plans and jobs as real jobs do?"""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from layerdag.cli.printing import report_data, warn
from layerdag.errors import UsageError

if TYPE_CHECKING:
    from layerdag.evaluation.rankings import RankedJob, RankingReport, RankingRow
    from layerdag.graph.attributed_graph import AttributedGraph, Condition


SUMMARY = (
    "Do samples order clusters, plans and jobs as real jobs do? Beside them stand real training "
    "jobs and deliberately bad generators, which must lose."
)
EXAMPLE = "  layerdag sample --num 300 --out samples\n  layerdag rankings corpus samples"
TRAINING, SAMPLES = "training jobs", "samples"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "data", help="corpus, a folder of real jobs, or a training run, which records it"
    )
    parser.add_argument("samples", nargs="+", metavar="SAMPLES",
        help="folders that 'layerdag sample' wrote")  # fmt: skip
    parser.add_argument("--labels", metavar="FILE", help="label file of a folder of graphs")
    parser.add_argument("--jobs", type=int, default=100, metavar="N",
        help="most training jobs and samples, drawn at random (default: 100)")  # fmt: skip
    parser.add_argument("--largest", type=int, default=1000, metavar="NODES",
        help="larger jobs are left out (default: 1000)")  # fmt: skip
    parser.add_argument("--speedup", type=float, default=30.0, metavar="TIMES",
        help="how many times as fast compute is as in the traces; on a CPU thread operators take "
        "so long that no network matters (default: 30)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0)


def run(args: argparse.Namespace) -> int:
    """Simulate all sets of jobs, then print the table."""
    from layerdag.api.reference_data import ReferenceData
    from layerdag.evaluation.rankings import compare_rankings, negative_controls, simulate_jobs
    from layerdag.runtime.rng import numpy_generator
    from layerdag.samples.manifest import report_unread
    from layerdag.samples.reader import iter_samples

    if args.jobs < 1 or not 0 < args.speedup < float("inf"):
        raise UsageError(
            f"--jobs is {args.jobs} and --speedup {args.speedup}; both must be positive."
        )
    data = ReferenceData(args.data, args.labels, warn=warn).load_for_samples(args.samples[0])
    report_data(data)
    for folder in args.samples:
        report_unread(folder, warn)
    for folder in args.samples[1:]:
        ReferenceData(args.data, args.labels, warn=warn).require_fits(data, folder)
    sets: dict[str, Sequence[RankedJob]] = {}
    real = {
        part: _ranked(((data.schema.decode(d), d.conditions) for d in graphs), args.largest)
        for part, graphs in data.graphs.items()
    }
    read = (sample for folder in args.samples for sample in iter_samples(folder))
    sampled = _ranked(((sample.graph, sample.conditions) for sample in read), args.largest)
    for name, jobs in ((TRAINING, real["train"]), (SAMPLES, sampled)):
        order = numpy_generator(args.seed, "jobs", name).permutation(len(jobs))
        sets[name] = [jobs[i] for i in order[: args.jobs]]
    training = sets[TRAINING]
    sets |= negative_controls(training, numpy_generator(args.seed, "bad generators"))
    ran = {
        name: simulate_jobs(jobs, speedup=args.speedup, label=name)
        for name, jobs in {"test": real["test"], **sets}.items()
    }
    report = compare_rankings(ran.pop("test"), ran, baseline=TRAINING, seed=args.seed)
    if args.json:
        print(json.dumps({"settings": vars(args), **report.summary()}, indent=1))
    else:
        print("\n".join(lines(report)))
    return 0


def _ranked(
    graphs: "Iterable[tuple[AttributedGraph, Mapping[str, Condition]]]", largest: int
) -> "list[RankedJob]":
    from layerdag.evaluation.rankings import ranked_job

    found = (ranked_job(*each) for each in graphs if each[0].num_nodes <= largest)
    return [job for job in found if job]


def lines(report: "RankingReport") -> list[str]:
    """Return the report as text: a table for each target, then what tells sets from real jobs."""
    low, high = report.exposed
    return [
        f"{report.tested_on} real test jobs on 16 clusters, the slowest "
        f"{report.slowest:.3g} times as slow as the fastest; {low:.0%} to {high:.0%} of the step "
        "exposed",
        "tau of the order under real test jobs (1 is the same), 95 % intervals over jobs; "
        "* worse than training jobs",
        *_tables(report),
        "",
        *(
            f"{name}: {count} of {report.counts[name]} jobs of several ranks do not communicate"
            for name, count in report.silent.items()
            if count
        ),
        *(_verdict(report, name) for name in report.counts if name != report.baseline),
    ]


def _tables(report: "RankingReport") -> Iterable[str]:
    for target in dict.fromkeys(row.target for row in report.rows):
        mine = [row for row in report.rows if row.target == target]
        orders = list(dict.fromkeys(row.order for row in mine))
        yield ""
        yield f"{target:<24}" + "".join(f"{order:>22}" for order in orders)
        for jobs, count in report.counts.items():
            cells = [_cell(report.row(jobs, order, target)) for order in orders]
            yield f"{f'{jobs} ({count})':<24}" + "".join(f"{cell:>22}" for cell in cells)


def _cell(row: "RankingRow") -> str:
    if row.interval is None:
        return "-"
    mark = "*" if row.loses else " "
    return f"{row.value:.2f} [{row.interval.low:.2f}, {row.interval.high:.2f}]{mark}"


def _verdict(report: "RankingReport", name: str) -> str:
    loses = [f"{r.order} by {r.target}" for r in report.rows if r.jobs == name and r.loses]
    found = f"worse than {report.baseline} in {'; '.join(loses)}"
    return f"{name}: {found if loses else f'no worse than {report.baseline} in anything'}"
