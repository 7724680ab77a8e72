"""Programs of the collection plan: recorded, derived, run for real; and those of host traces.

    python benchmarks/programs.py --num 200
    python benchmarks/programs.py --num 0 --traces FOLDER     # host traces, *.et.json*

Each planned training job on one rank or with DDP is built as ``data/collect`` builds it. Programs
are counted as "derived" if their step equals the module's own captured step in operators,
operations, bytes and messages, for each plan, and as "ran" if their module makes a finite loss and
a gradient for every parameter.
"""

import argparse
import importlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import layerdag as ld
from layerdag.capturing.step import CapturedStep
from layerdag.errors import LayerdagError
from layerdag.programs.forward_program import Program

COLLECT = Path(__file__).resolve().parents[1] / "data" / "collect"
PLANS: tuple[dict[str, Any], ...] = ({}, {"data": 8}, {"data": 1024}, {"fsdp": 4})


class Job(nn.Module):
    """A model of the plan with its loss."""

    def __init__(self, model: nn.Module, loss_of: Callable[..., Tensor], hyper: Any) -> None:
        super().__init__()
        self.model, self._loss_of, self._hyper = model, loss_of, hyper

    def forward(self, *given: Tensor) -> Tensor:
        """Return the loss; the last tensor is the target."""
        return self._loss_of(self._hyper, self.model(*given[:-1]), given[-1])


def jobs(num: int, seed: int) -> Iterator[tuple[str, Job, list[Tensor]]]:
    """Yield family, module and inputs of planned jobs, drawn at random."""
    sys.path.insert(0, str(COLLECT))
    plan, steps, models = (importlib.import_module(name) for name in ("plan", "steps", "models"))
    planned = [*plan.corpus_plan(), *plan.further_plans()]
    known = [p for p in planned if p.strategy in ("single", "ddp") and p.phase == "training"]
    for at in np.random.default_rng(seed).permutation(len(known))[:num].tolist():
        torch.manual_seed(seed)
        model = models.BUILDERS[known[at].family](known[at].hyper)
        inputs, target = steps.make_batch(known[at], torch.Generator().manual_seed(seed))
        yield known[at].family, Job(model, steps.loss_of, known[at].hyper), [*inputs, target]


def told(step: CapturedStep) -> list[tuple[object, ...]]:
    """Return operator, operations, bytes and message of each node."""
    trace = step.program
    numbers = (trace.integers(name)[0].tolist() for name in ("num_ops", "tensor_size", "comm_size"))
    return list(zip(trace.names(), *numbers, strict=True))


def ran(program: Program) -> bool:
    """Return whether a training step of the program's module is finite."""
    module = program.module()
    loss = module(*module.example_inputs())
    loss.backward()
    return bool(torch.isfinite(loss)) and all(p.grad is not None for p in module.parameters())


def measure_plan(num: int, compared: int, seed: int) -> None:
    """Print the figures of planned jobs."""
    counts: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    signatures: Counter[tuple[str, tuple[object, ...]]] = Counter()
    seconds = 0.0
    for number, (family, job, inputs) in enumerate(jobs(num, seed)):
        start = time.process_time()
        program = ld.program(job, inputs, name=family)
        seconds += time.process_time() - start
        counts["recorded"] += 1
        counts["without a finding"] += not program.check()
        calls.update(node.form for node in program.nodes)
        signatures.update((node.form, node.slots) for node in program.nodes)
        if number >= compared:
            continue
        counts["compared"] += 1
        counts["ran"] += ran(program)
        for plan in PLANS:
            own = ld.capture_model(job, inputs, **plan)
            counts[f"derived {plan or 'single'}"] += told(program.step(**plan)) == told(own)
    print(f"{seconds / max(1, num):.3f} s of a processor per program")
    print(f"{len(calls)} forms, {len(signatures)} forms with sizes")
    print("\n".join(f"{name}: {count}" for name, count in counts.items()))


def measure_traces(folder: Path, every: int) -> None:
    """Print how many host traces of a folder have a program, and why the others have none."""
    counts: Counter[str] = Counter()
    for path in sorted(folder.glob("*.et.json*"))[::every]:
        counts["traces"] += 1
        try:
            program = ld.program(path)
        except LayerdagError as error:
            counts["refused"] += 1
            print(str(error)[-160:])
        else:
            counts["programs, every shape as recorded"] += 1
            counts["that run"] += not any(f.rule.id == "program-runs" for f in program.check())
    print("\n".join(f"{name}: {count}" for name, count in counts.items()))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num", type=int, default=200, help="planned jobs")
    parser.add_argument("--compared", type=int, default=20, help="of these, steps are compared")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--traces", type=Path, metavar="FOLDER", help="host traces, too")
    parser.add_argument("--every", type=int, default=1, help="take one trace of so many")
    options = parser.parse_args()
    if options.num:
        measure_plan(options.num, options.compared, options.seed)
    if options.traces:
        measure_traces(options.traces, options.every)


if __name__ == "__main__":
    main()
