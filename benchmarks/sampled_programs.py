"""Programs sampled from a checkpoint: do they run, are they new, what do derived steps look like?

    python benchmarks/sampled_programs.py --num 200 --seed 1000
    python benchmarks/sampled_programs.py --num 200 --out benchmarks/results/sampled-programs.json
    python benchmarks/sampled_programs.py --checkpoint public --num 60 --derived 30

Held against the checkpoint's own held-out programs (``data=programs``, split by structure):

- draws per program, and what they cost in processor time;
- "runs": a real training step of the program's module on the CPU has a finite loss, and a gradient
  for every parameter;
- "new": its calls, sizes as expressions, and edges are those of no training program;
- neighborhoods (a call with its inputs, and theirs) that no training program has;
- steps derived on one rank, data=8, data=1024 and fsdp=4 that keep every rule of whole programs;
- whether trees tell derived steps of samples from those of held-out programs (AUROC, 0.5 is
  chance), by counts and costs and by rules; beside it those of training programs.
"""

import argparse
import json
import lzma
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import layerdag as ld
from layerdag.datasets.loading import load_dataset
from layerdag.datasets.programs import embedded_programs
from layerdag.errors import LayerdagError
from layerdag.evaluation.metrics.whole_programs import job_auroc, judge_jobs, structures
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.programs.depth import repeatable_units
from layerdag.programs.forward_program import Program
from layerdag.sampling import generation
from layerdag.statistics import Interval
from layerdag.validation.whole_program import check_program

PLANS: tuple[dict[str, int], ...] = ({}, {"data": 8}, {"data": 1024}, {"fsdp": 4})


@contextmanager
def counted_draws() -> Iterator[Counter[str]]:
    """Count the graphs that a sampler draws by family, those thrown away included."""
    count: Counter[str] = Counter()
    draw = generation.Sampler.drawn_once

    def counted(drawing: Any, numbers: Any, seeds: Any, rows: Sequence[Any]) -> Any:
        count.update(str(row["family"]) for row in rows)
        return draw(drawing, numbers, seeds, rows)

    with patch.object(generation.Sampler, "drawn_once", counted):
        yield count


def trained(program: Program) -> bool:
    """Return whether a real training step is finite and reaches every parameter."""
    module = program.module()
    loss = module(*module.example_inputs())
    loss.backward()
    return bool(torch.isfinite(loss)) and all(p.grad is not None for p in module.parameters())


def structure(graph: AttributedGraph, rounds: int = 8) -> str:
    """Return a hash of a graph's calls, sizes and edges, whatever the order of its nodes."""
    return str(hash(tuple(sorted(colors(graph, rounds)))))


def colors(graph: AttributedGraph, radius: int) -> list[int]:
    """Return a hash of each node with its inputs, theirs, and so on."""
    found = [hash(words) for words in zip(*(graph.categories[n] for n in ("call", "sizes")),
                                          strict=True)]  # fmt: skip
    inputs: list[list[tuple[str, int]]] = [[] for _ in range(graph.num_nodes)]
    for (source, target), code in zip(graph.edges, graph.edge_type_E.tolist(), strict=True):
        inputs[target].append((graph.edge_type_names[code], source))
    for _ in range(radius):
        found = [
            hash((own, tuple(sorted((place, found[i]) for place, i in held))))
            for own, held in zip(found, inputs, strict=True)
        ]
    return found


def unseen(graphs: Sequence[AttributedGraph], known: set[int], radius: int) -> float:
    """Return the share of nodes whose neighborhood no training program has."""
    new = [c not in known for graph in graphs for c in colors(graph, radius)]
    return round(float(np.mean(new)), 4)


def share(found: Sequence[bool]) -> dict[str, Any]:
    """Return a share with its interval of 95 %."""
    interval = Interval.wilson(float(np.mean(found)), len(found))
    return {
        "share": round(float(np.mean(found)), 4),
        "interval": [round(interval.low, 4), round(interval.high, 4)],
        "of": len(found),
    }


def kept_rules(programs: Sequence[Program]) -> dict[str, Any]:
    """Return the share of derived steps that keep every rule, by plan, and the rules broken.

    Deeper ones have each block four times, and those that have an entry w0 a width that no training
    program has.
    """
    kept: dict[str, list[bool]] = {}
    broken: Counter[str] = Counter()
    spent: list[float] = []
    deep = [p.deepen(4).resize(**({"w0": 384} if "w0" in p.sizes else {})) for p in programs
            if repeatable_units(p)]  # fmt: skip
    for name, those in (("", programs), ("four times as deep, 384 wide, ", deep)):
        for plan in PLANS if not name else ({"data": 1024},):
            label = name + (", ".join(f"{k}={v}" for k, v in plan.items()) or "one rank")
            for program in those:
                begin = time.process_time()
                try:
                    rules = [f.rule.id for f in check_program(program.step(**plan).workload())]
                except LayerdagError as error:
                    rules = [f"not derived: {error}"[:120]]
                spent.append(time.process_time() - begin)
                kept.setdefault(label, []).append(not rules)
                broken.update(rules)
    return {
        "derived_steps_that_keep_every_rule": {plan: share(each) for plan, each in kept.items()},
        "broken_rules": dict(broken),
        "processor_seconds_per_derived_step": round(float(np.mean(spent)), 3),
    }


def own_programs(folder: Path) -> dict[str, Program]:
    """Return the real programs of a folder with their own tables of sizes, by name."""
    found = {}
    for path in sorted(folder.glob("*.jsonl.xz")):
        for line in lzma.decompress(path.read_bytes()).splitlines():
            program = Program.from_json(json.loads(line))
            found[program.name] = program
    return found


def told_apart(programs: dict[str, list[Program]], seed: int) -> dict[str, Any]:
    """Return the AUROC of trees on derived steps, of samples and of training programs."""
    judged = {
        name: judge_jobs([program.step().workload() for program in those])
        for name, those in programs.items()
    }
    found: dict[str, Any] = {}
    for features in ("counts", "rules"):
        for name in ("samples", "train"):
            own_BF, real_BF = (
                jobs.features_BF if features == "counts" else jobs.rule_features_BF()
                for jobs in (judged[name], judged["test"])
            )
            graphs = [*judged[name].graphs, *judged["test"].graphs]
            area_R = job_auroc(own_BF, real_BF, structures(graphs), seed=seed, replicates=200)
            found[f"{features}, {name}"] = {
                "auroc": round(float(area_R[0]), 3),
                "interval": np.quantile(area_R[1:], (0.025, 0.975)).round(3).tolist(),
                "of": len(own_BF),
            }
    return found


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", default="programs")
    parser.add_argument("--num", type=int, default=200)
    parser.add_argument("--derived", type=int, default=50, help="samples whose steps are derived")
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--temperature", type=float, default=None)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)

    corpus = "public" if args.checkpoint == "public" else "collected"
    data = load_dataset("programs", corpus=corpus)
    real = {split: [data.schema.decode(dag, "real") for dag in data.graphs[split]]
            for split in ("train", "test")}  # fmt: skip
    begin = time.process_time()
    with counted_draws() as draws:
        samples = ld.sample(args.checkpoint, args.num, args.seed, temperature=args.temperature)
        programs = [sample.program for sample in samples]
    seconds = time.process_time() - begin
    graphs = [sample.decoded for sample in samples]
    families = Counter(str(sample.dag.conditions["family"]) for sample in samples)
    trains = {structure(graph) for graph in real["train"]}
    hashes = [structure(graph) for graph in graphs]
    rows: dict[str, Any] = {
        "checkpoint": args.checkpoint, "samples": args.num, "seed": args.seed,
        "processor_seconds_per_program": round(seconds / args.num, 3),
        "draws_per_program": {
            family: round(draws[family] / count, 2) for family, count in families.items()
        },
        "fake_run": share([not program.check() for program in programs]),
        "real_training_step": share([trained(program) for program in programs]),
        "distinct": share([hashes.count(h) == 1 for h in hashes]),
        "new_structure": share([h not in trains for h in hashes]),
        "nodes": {"samples": float(np.median([g.num_nodes for g in graphs])),
                  "held_out": float(np.median([g.num_nodes for g in real["test"]]))},
    }  # fmt: skip
    for radius in (1, 2, 3):
        known = {c for graph in real["train"] for c in colors(graph, radius)}
        found = (unseen(graphs, known, radius), unseen(real["test"], known, radius))
        rows[f"unseen_r{radius}"] = dict(zip(("samples", "held_out"), found, strict=True))
    rows |= kept_rules(programs[: args.derived])
    rng, own = np.random.default_rng(args.seed), own_programs(embedded_programs(corpus))
    count = min(150, args.num)
    compared = {
        split: [own[name] for name in rng.permutation(data.names[split])[:count].tolist()]
        for split in ("train", "test")
    }
    rows["told_apart"] = told_apart({**compared, "samples": programs[:count]}, args.seed)
    text = json.dumps(rows, indent=1)
    if args.out:
        args.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
