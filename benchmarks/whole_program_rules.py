"""How many jobs keep each rule of whole training steps: real jobs, captured steps, samples.

    python benchmarks/whole_program_rules.py            # with 64 samples of the shipped checkpoint
    python benchmarks/whole_program_rules.py --programs 20 --samples FOLDER
    python benchmarks/whole_program_rules.py --numbers CHECKPOINT

Real jobs are those of the corpus, as they were collected. Captured steps are programs of its plan,
on one rank, 8 replicas and 4 FSDP ranks (``benchmarks/programs.py``). A cell tells the share of the
jobs to which a rule applies that keep it, and their number. With ``--numbers`` jobs of the corpus
that are not trained on have their numbers drawn again in the bins of a checkpoint, as samples have,
and then computed from each other; told is also how many numbers of real jobs come out unchanged.
"""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

import layerdag as ld
from layerdag.datasets.corpus import run_graph
from layerdag.datasets.encoding import with_attributes_of
from layerdag.datasets.samples import iter_samples
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.sampling.computed_numbers import ComputedNumbers
from layerdag.sampling.costs import NumberAssigner
from layerdag.sampling.generated import as_workload
from layerdag.schema.costs import COST_NAMES
from layerdag.traces.chakra import read_index
from layerdag.traces.chakra.corpus import embedded_corpus, read_runs
from layerdag.traces.trace import Workload
from layerdag.training.checkpoint import checkpoint_path, checkpoint_schema, load_checkpoint
from layerdag.validation.whole_program import WHOLE_PROGRAM_RULES, Verdict, judge_program

sys.path.insert(0, str(Path(__file__).resolve().parent))
from programs import COLLECT, jobs

PLANS: tuple[dict[str, int], ...] = ({}, {"data": 8}, {"fsdp": 4})
Verdicts = list[Mapping[str, Verdict]]


def real_jobs() -> Iterator[tuple[str, Workload]]:
    """Yield the part of each run of the corpus, and the run."""
    for run in read_runs(embedded_corpus(), list(read_index(embedded_corpus()))):
        yield "test" if run.record.split == "test" else "train and val", run.workload()


def captured_steps(num: int, seed: int) -> Iterator[tuple[str, Workload]]:
    """Yield the steps of planned programs."""
    for family, job, inputs in jobs(num, seed):
        program = ld.program(job, inputs, name=family)
        for plan in PLANS:
            yield f"captured {plan or 'single'}", program.step(**plan).workload()


def sampled_jobs(folder: Path | None, num: int, seed: int) -> Iterator[tuple[str, Workload]]:
    """Yield samples of a folder, or of the shipped checkpoint at its defaults."""
    found = ld.sample(num=num, seed=seed) if folder is None else iter_samples(folder)
    for sample in found:
        yield "samples", sample.workload()


def renumbered_jobs(checkpoint: str) -> Iterator[tuple[str, Workload]]:
    """Yield jobs that are not trained on with drawn and with computed numbers, and tell how many.

    A number is unchanged if it is that of the real job exactly.
    """
    schema = checkpoint_schema(load_checkpoint(checkpoint_path(checkpoint)))
    assigner, steps = NumberAssigner(schema), schema.costs.step_shares
    index = [record for record in read_index(embedded_corpus()) if record.split != "train"]
    equal: dict[str, list[np.ndarray]] = {}
    seconds, jobs = 0.0, 0
    for run in read_runs(embedded_corpus(), index):
        real = run_graph(run)
        dag = schema.codes(with_attributes_of(real, schema))
        # Asked which costs are allowed, the assigner computes none.
        numbers = assigner.assigned(dag, 0, allows=lambda row, costs: [True] * len(costs)).numbers
        drawn = replace(real, numbers={**real.numbers, **numbers})
        start = time.process_time()
        found = ComputedNumbers(drawn, steps).computed().numbers
        seconds, jobs = seconds + time.process_time() - start, jobs + 1
        computed = replace(real, numbers={**real.numbers, **found})
        again = replace(
            real, numbers={**real.numbers, **ComputedNumbers(real, steps).computed().numbers}
        )
        for name, other in (("drawn", drawn), ("computed", computed), ("real, computed", again)):
            equal.setdefault(name, []).append(_unchanged(real, other))
            yield name, as_workload(other).workload
    for name, counts in equal.items():
        shares = np.sum([count[0] for count in counts], axis=0) / np.sum(
            [count[1] for count in counts], axis=0
        )
        told = ", ".join(f"{of} {share:.3f}" for of, share in zip(COST_NAMES, shares, strict=True))
        print(f"numbers of real jobs unchanged, {name}: {told}")
    print(f"{1000 * seconds / jobs:.1f} ms per job")


def _unchanged(real: AttributedGraph, other: AttributedGraph) -> np.ndarray:
    """Return how many numbers of each kind are equal, and how many there are."""
    return np.array(
        [
            [np.sum(real.numbers[name] == other.numbers[name]) for name in COST_NAMES],
            [np.sum(~np.isnan(real.numbers[name])) for name in COST_NAMES],
        ]
    )


def judged(named: Iterable[tuple[str, Workload]], columns: dict[str, Verdicts]) -> None:
    """Judge jobs, and say what each real one breaks."""
    for name, job in named:
        verdicts = judge_program(job)
        columns.setdefault(name, []).append(verdicts)
        for verdict in verdicts.values():
            if name not in ("samples", "drawn") and not verdict.holds:
                print(f"{name}: {job.source}: [{verdict.rule.id}] {verdict.found}")


def cell(verdicts: Verdicts, rule: str) -> str:
    """Return the share of the jobs to which a rule applies that keep it, and their number."""
    return share([one[rule].holds for one in verdicts if rule in one])


def share(holds: list[bool]) -> str:
    """Return the share and the number, a dash for none."""
    return f"{sum(holds) / len(holds):.3f} of {len(holds)}" if holds else "-"


def main() -> None:
    """Judge and print a Markdown table."""
    sys.path.insert(0, str(COLLECT))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=10, help="programs of the plan")
    parser.add_argument("--samples", type=Path, metavar="FOLDER", help="of 'layerdag sample'")
    parser.add_argument(
        "--numbers", metavar="CHECKPOINT", help="jobs with numbers drawn again, and nothing else"
    )
    parser.add_argument("--num", type=int, default=64, help="samples without --samples")
    parser.add_argument("--seed", type=int, default=1, help="of samples and programs")
    options = parser.parse_args()
    columns: dict[str, Verdicts] = {}
    start = time.process_time()
    if options.numbers:
        judged(renumbered_jobs(options.numbers), columns)
    else:
        judged(real_jobs(), columns)
        judged(captured_steps(options.programs, options.seed), columns)
        judged(sampled_jobs(options.samples, options.num, options.seed), columns)
    print("| rule |", " | ".join(columns), "|")
    print("|---" * (len(columns) + 1) + "|")
    for rule in WHOLE_PROGRAM_RULES:
        print(f"| `{rule}` |", " | ".join(cell(found, rule) for found in columns.values()), "|")
    kept = [
        share([all(v.holds for v in job.values()) for job in part]) for part in columns.values()
    ]
    print("| all |", " | ".join(kept), "|")
    print(f"{time.process_time() - start:.0f} s of a processor")


if __name__ == "__main__":
    main()
