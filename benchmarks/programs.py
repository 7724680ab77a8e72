"""Programs of the collection plan: recorded, derived, run for real; and those of host traces.

    python benchmarks/programs.py --num 200
    python benchmarks/programs.py --num 0 --traces FOLDER     # host traces, *.et.json*
    python benchmarks/programs.py --num 0 --collected 60      # steps that really run here
    python benchmarks/programs.py --num 0 --measured FOLDER   # steps measured on a GPU

Each planned training job on one rank or with DDP is built as ``data/collect`` builds it. Programs
are counted as "derived" if their step equals the module's own captured step in operators,
operations, bytes and messages, for each plan, as "lawful" if a pipeline's messages and work are
those of its micro-batches, and as "ran" if their module makes a finite loss and a gradient for
every parameter. Of collected steps, the program is taken from the host trace of a real step on the
CPU. Its module then runs the step again, and the two imported traces are compared: operators in
sequence, operations and bytes of each. The step that is derived without a device is compared in the
operators alone: on tensors without content, PyTorch takes other ways through some (``one_hot``,
``index_put``, numbers that become tensors).

Of steps that were measured on a GPU (``runs.jsonl`` and ``runs/RUN.host.json.xz``) the derived step
of the program is compared with the traced one in the number of each operator; kernels that a
device has of its own have one name (``OWN_KERNELS``).
"""

import argparse
import importlib
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import layerdag as ld
from layerdag.capturing.captured_step import CapturedStep
from layerdag.capturing.running import HOST_TRACE, record
from layerdag.capturing.scopes import module_scopes
from layerdag.datasets.run_plans import CORPUS_OPTIMIZERS, MEASURED_OPTIMIZERS
from layerdag.errors import LayerdagError
from layerdag.programs.forward_program import Program
from layerdag.traces.pytorch.importer import import_host
from layerdag.traces.trace import NodeType, Trace
from layerdag.validation.rules import Severity

COLLECT = Path(__file__).resolve().parents[1] / "data" / "collect"
PLANS: tuple[dict[str, Any], ...] = ({}, {"data": 8}, {"data": 1024}, {"fsdp": 4})
PIPELINES: tuple[dict[str, Any], ...] = (
    {"pipeline": 2, "micro_batches": 4},
    {"pipeline": 4, "micro_batches": 8, "schedule": "gpipe"},
    {"pipeline": 2, "data": 2},
)


class Job(nn.Module):
    """A model of the plan with its loss."""

    def __init__(self, model: nn.Module, loss_of: Callable[..., Tensor], hyper: Any) -> None:
        super().__init__()
        self.model, self._loss_of, self._hyper = model, loss_of, hyper

    def forward(self, *given: Tensor) -> Tensor:
        """Return the loss; the last tensor is the target."""
        return self._loss_of(self._hyper, self.model(*given[:-1]), given[-1])


def planned(num: int, seed: int, *strategies: str) -> Iterator[Any]:
    """Yield planned training jobs of some strategies, drawn at random."""
    plan = importlib.import_module("plan")
    every = [*plan.corpus_plan(), *plan.further_plans()]
    known = [p for p in every if p.strategy in strategies and p.phase == "training"]
    for at in np.random.default_rng(seed).permutation(len(known))[:num].tolist():
        yield known[at]


def jobs(num: int, seed: int) -> Iterator[tuple[str, Job, list[Tensor]]]:
    """Yield family, module and inputs of planned jobs, drawn at random."""
    steps, models = importlib.import_module("steps"), importlib.import_module("models")
    for plan in planned(num, seed, "single", "ddp"):
        torch.manual_seed(seed)
        model = models.BUILDERS[plan.family](plan.hyper)
        inputs, target = steps.make_batch(plan, torch.Generator().manual_seed(seed))
        yield plan.family, Job(model, steps.loss_of, plan.hyper), [*inputs, target]


def told(step: CapturedStep) -> list[tuple[object, ...]]:
    """Return operator, operations, bytes and message of each node."""
    trace = step.trace
    numbers = (trace.integers(name)[0].tolist() for name in ("num_ops", "tensor_size", "comm_size"))
    return list(zip(trace.names(), *numbers, strict=True))


def lawful(program: Program, plan: dict[str, Any]) -> bool:
    """Return whether a pipeline of a program keeps the laws of one.

    Every message is received, a gradient of its size comes back, the products of the forward pass
    are those of all micro-batches, every stage updates parameters, and nothing is invalid.
    """
    step = program.step(**plan)
    workload, sent, received = step.workload(), Counter[Any](), Counter[Any]()
    for rank, trace in enumerate(workload.traces):
        to_N, from_N, size_N = (
            trace.integers(name)[0].tolist() for name in ("comm_dst", "comm_src", "comm_size")
        )
        for row in np.flatnonzero(trace.type_N == NodeType.COMM_SEND).tolist():
            sent[rank, to_N[row], size_N[row]] += 1
        for row in np.flatnonzero(trace.type_N == NodeType.COMM_RECV).tolist():
            received[from_N[row], rank, size_N[row]] += 1
    whole = program.step(phase="inference").trace
    count = plan.get("micro_batches", plan["pipeline"])
    return (
        sent == received == Counter({(b, a, size): n for (a, b, size), n in sent.items()})
        and sum(map(products, step.stages)) == count * products(whole)
        and all("aten::_fused_adamw_" in trace.names() for trace in step.stages)
        and not any(f.rule.severity is Severity.ERROR for f in ld.validate(workload))
    )


def products(trace: Trace) -> int:
    """Return the operations of the products of a forward pass."""
    words, phases = ("mm", "attention", "convolution"), trace.texts("phase")[0]
    return sum(
        flops
        for name, phase, flops in zip(
            trace.names(), phases, trace.integers("num_ops")[0].tolist(), strict=True
        )
        if phase == "forward" and any(word in name for word in words)
    )


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
        for plan in PIPELINES:
            try:
                counts[f"lawful {plan}"] += lawful(program, plan)
            except LayerdagError as error:
                counts[f"not cut {plan}"] += 1
                print(f"{family}: {str(error)[:160]}")
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


def collected(plan: Any) -> tuple[Program, Trace]:
    """Return the program and the imported trace of a planned step that really runs here."""
    step = importlib.import_module("steps").build_step(plan, 0)
    step()
    with tempfile.TemporaryDirectory() as folder:
        with module_scopes(), record(folder) as found:
            step()
        return ld.program(Path(folder, HOST_TRACE), name=plan.run), found.imported().trace


def again(program: Program, plan: Any) -> Trace:
    """Return the imported trace of a program's own step, which really runs, as the plan's does."""
    steps, module = importlib.import_module("steps"), program.module()
    inputs = module.example_inputs()
    optimizer = steps.make_optimizer(str(plan.hyper["optimizer"]), module.parameters())

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(int(plan.hyper["accumulate"])):
            module(*inputs).backward()
        if plan.hyper["clip"]:
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()

    step()
    with record() as found:
        step()
    return found.imported().trace


def work(trace: Trace) -> list[tuple[object, ...]]:
    """Return operator, operations and bytes of each node."""
    numbers = (trace.integers(name)[0].tolist() for name in ("num_ops", "tensor_size"))
    return list(zip(trace.names(), *numbers, strict=True))


def operators(trace: Trace) -> list[str]:
    """Return the operators; runs do in place what captures do not."""
    return [name.removesuffix("_") for name in trace.names()]


def measure_collected(num: int, seed: int) -> None:
    """Print how many real steps follow from their own programs."""
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    for plan in planned(num, seed, "single"):
        counts["collected"] += 1
        try:
            program, trace = collected(plan)
            real = work(again(program, plan))
        except (LayerdagError, RuntimeError, IndexError) as error:
            counts["without a program that really runs"] += 1
            print(f"{plan.run}: {str(error)[:160]}")
            continue
        settings = {"optimizer": CORPUS_OPTIMIZERS[str(plan.hyper["optimizer"])]}
        settings |= {name: plan.hyper[name] for name in ("accumulate", "clip")}
        derived = operators(program.step(**settings).trace)
        counts["run again, all equal"] += real == work(trace)
        counts["derived without a device, equal operators"] += derived == operators(trace)
        if real != work(trace):
            lost, more = Counter(work(trace)) - Counter(real), Counter(real) - Counter(work(trace))
            print(f"{plan.run}: lost {dict(lost)}, more {dict(more)}"[:300])
    print("\n".join(f"{name}: {count}" for name, count in counts.items()))


OWN_KERNELS = (
    (r"_scaled_dot_product_(cudnn|efficient|flash)_attention(_for_cpu)?", "attention"),
    (r"(cudnn|native)_batch_norm", "batch_norm"),
)
"""Operators of which each device has its own, and a name for all of them."""


def without_device(program: Program, facts: dict[str, Any]) -> Trace:
    """Return the trace of a program's step on an H100, derived without one."""
    if facts["phase"] != "train":
        return program.step(phase="inference", device="h100").trace
    return program.step(optimizer=MEASURED_OPTIMIZERS[facts["optimizer"]], device="h100").trace


def counted(trace: Trace) -> Counter[str]:
    """Return how many there are of each operator."""
    names = Counter[str]()
    for name in operators(trace):
        for pattern, word in OWN_KERNELS:
            name = re.sub(pattern, word, name)
        names[name] += name != "aten::detach"
    return +names


def measure_runs(folder: Path) -> None:
    """Print how many measured steps follow from the programs in their host traces."""
    counts: Counter[str] = Counter()
    for line in (folder / "runs.jsonl").read_text().splitlines():
        facts = json.loads(line)
        path = folder / "runs" / f"{facts['run']}.host.json.xz"
        counts["measured"] += 1
        try:
            program = ld.program(path, name=facts["family"])
            counts["with a program"] += 1
            again = without_device(program, facts)
        except (LayerdagError, RuntimeError) as error:
            print(f"{facts['run']} {facts['family']}: {str(error)[:200]}", flush=True)
            continue
        found, real = (counted(trace) for trace in (again, import_host(path).trace))
        counts["equal operators"] += found == real
        if found != real:
            more, lost = dict(found - real), dict(real - found)
            print(f"{facts['run']} {facts['family']}: lost {lost}, more {more}"[:300], flush=True)
    print("\n".join(f"{name}: {count}" for name, count in counts.items()))


def main() -> None:
    """Measure and print."""
    sys.path.insert(0, str(COLLECT))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num", type=int, default=200, help="planned jobs")
    parser.add_argument("--compared", type=int, default=20, help="of these, steps are compared")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--traces", type=Path, metavar="FOLDER", help="host traces, too")
    parser.add_argument("--every", type=int, default=1, help="take one trace of so many")
    parser.add_argument("--collected", type=int, default=0, help="planned jobs that really run")
    parser.add_argument("--measured", type=Path, metavar="FOLDER", help="steps measured on a GPU")
    options = parser.parse_args()
    if options.num:
        measure_plan(options.num, options.compared, options.seed)
    if options.collected:
        measure_collected(options.collected, options.seed)
    if options.measured:
        measure_runs(options.measured)
    if options.traces:
        measure_traces(options.traces, options.every)


if __name__ == "__main__":
    main()
