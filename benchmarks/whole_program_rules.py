"""How many jobs keep each rule of whole training steps: real jobs, captured steps, samples.

    python benchmarks/whole_program_rules.py            # with 64 samples of the shipped checkpoint
    python benchmarks/whole_program_rules.py --programs 20 --samples FOLDER

Real jobs are those of the corpus, as they were collected. Captured steps are programs of its plan,
on one rank, 8 replicas and 4 FSDP ranks (``benchmarks/programs.py``). A cell tells the share of the
jobs to which a rule applies that keep it, and their number.
"""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import layerdag as ld
from layerdag.samples.reader import iter_samples
from layerdag.traces.chakra import read_index
from layerdag.traces.chakra.corpus import embedded_corpus, read_runs
from layerdag.traces.trace import Workload
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


def judged(named: Iterable[tuple[str, Workload]], columns: dict[str, Verdicts]) -> None:
    """Judge jobs, and say what each real one breaks."""
    for name, job in named:
        verdicts = judge_program(job)
        columns.setdefault(name, []).append(verdicts)
        for verdict in verdicts.values():
            if name != "samples" and not verdict.holds:
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
    parser.add_argument("--num", type=int, default=64, help="samples without --samples")
    parser.add_argument("--seed", type=int, default=1, help="of samples and programs")
    options = parser.parse_args()
    columns: dict[str, Verdicts] = {}
    start = time.process_time()
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
