"""Break the source in one place at a time and see whether a test fails.

    python tools/mutation                          # every area of areas.toml
    python tools/mutation --area readers --sample 300 --seed 7
    python tools/mutation --again                  # what survived the last run, after new tests

Verdicts go to OUT/results.jsonl, the map of coverage to OUT/map.json.gz (made on the first run,
brought up to date on the next). See docs/dev/decisions.md.
"""

import argparse
import importlib
import json
import os
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "scipy.stats", "sklearn.ensemble", "networkx", "hypothesis", "matplotlib.pyplot",
         "torch_geometric.nn", "torch_geometric.loader", "hydra", "wandb")  # fmt: skip


def main() -> int:
    """Measure; return 1 where an area misses the target."""
    settings = tomllib.loads((Path(__file__).parent / "areas.toml").read_text())
    asked = _arguments(settings)
    from workspace import copy_checkout

    copy_checkout(ROOT, tree := asked.out / "tree")
    _prepare_process(tree)
    known = _coverage(asked.out, tree, settings)
    rows = _run(tree, known, asked, settings)
    from report import scores, survivors

    print(f"{survivors(rows)}\n\n{scores(rows)}")
    return 0


def _arguments(settings: dict[str, Any]) -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--area", action="append", choices=list(settings["areas"]))
    parser.add_argument("--sample", type=int, default=settings["sample"])
    parser.add_argument("--seed", type=int, default=settings["seed"])
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--out", type=Path, default=ROOT / "outputs" / "mutation")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    asked.out = asked.out.resolve()
    return asked


def _prepare_process(tree: Path) -> None:
    """Import what is slow to import and never broken, and look for the package in the copy."""
    os.environ |= {
        "OMP_NUM_THREADS": "1", "WANDB_MODE": "disabled", "PYTHONPATH": str(tree),
        "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "agg",
    }  # fmt: skip
    os.chdir(tree)
    sys.path[:0] = [str(tree), str(Path(__file__).resolve().parent)]
    sys.dont_write_bytecode = True
    for name in HEAVY:
        importlib.import_module(name)
    import torch
    from hypothesis import Phase, settings
    from hypothesis.configuration import set_hypothesis_home_dir

    torch.set_num_threads(1)
    set_hypothesis_home_dir(tree / "build" / "hypothesis")
    settings.register_profile(
        "mutation", database=None, derandomize=True, deadline=None,
        max_examples=20, phases=[Phase.explicit, Phase.generate],
    )  # fmt: skip


def _coverage(out: Path, tree: Path, settings: dict[str, Any]) -> Any:
    """Return the map of coverage, brought up to date."""
    from coverage_map import CoverageMap, measure, merged, outdated
    from workspace import run_in_child

    known, stale = outdated(CoverageMap.read(out / "map.json.gz"), tree, settings["tests"])
    if stale:
        print(f"Measuring what {len(stale)} test files run.", flush=True)
        slowest = settings["slowest_test"]
        fresh, log = out / "fresh.json.gz", out / "coverage.log"
        if run_in_child(lambda: measure(tree, stale, slowest, fresh), 6 * 3600, str(log)):
            raise SystemExit(f"The tests could not be measured; see {log}.")
        known = merged(known, CoverageMap.read(fresh))
        known.write(out / "map.json.gz")
    print(f"{len(known.seconds)} tests, {sum(known.seconds.values()):.0f} s", flush=True)
    return known


def _run(
    tree: Path, known: Any, asked: argparse.Namespace, settings: dict[str, Any]
) -> list[dict[str, Any]]:
    """Judge the drawn faults of every area."""
    results = asked.out / "results.jsonl"
    left = _survivors(results) if asked.again else None
    rows: list[dict[str, Any]] = []
    for area in asked.area or settings["areas"]:
        rows += _run_area(tree, known, area, asked, settings, left)
        if left is None:
            results.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def _survivors(results: Path) -> set[str]:
    """Return the keys of what nobody noticed in the last run."""
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    return {row["key"] for row in rows if row["outcome"] in ("survived", "uncovered")}


def _run_area(
    tree: Path,
    known: Any,
    area: str,
    asked: argparse.Namespace,
    settings: dict[str, Any],
    left: set[str] | None,
) -> list[dict[str, Any]]:
    """Judge the drawn faults of one area: first those of running code, then those of imports."""
    from judge import Case, Verdict
    from sampling import case_of, drawn, faults_of, is_valid, needs_import

    faults = faults_of(tree, settings["areas"][area])
    chosen = [f for f in drawn(faults, asked.sample, asked.seed) if is_valid(f)]
    if left is not None:
        chosen = [fault for fault in faults if fault.key() in left]
    budget = settings["seconds_per_mutant"]
    cases = [case_of(tree, fault, known, budget) for fault in chosen]
    rows: list[dict[str, Any]] = []
    started = time.monotonic()

    def record(case: Case, verdict: Verdict) -> None:
        rows.append(_row(area, case, verdict, len(faults)))
        place = f"{case.fault.path}:{case.fault.lines[0]} {case.fault.change[:150]}"
        count = f"{area} {len(rows)}/{len(cases)}, {time.monotonic() - started:.0f} s"
        print(f"{count}: {verdict.outcome} {place}", flush=True)

    for case in cases:
        if not case.tests:
            record(case, Verdict("uncovered"))
    covered = [case for case in cases if case.tests]
    late = _judge_running(tree, [c for c in covered if not needs_import(c.fault, known)], record)
    _judge_imports(tree, [c for c in covered if needs_import(c.fault, known)] + late, record)
    return rows


def _judge_running(tree: Path, cases: list[Any], record: Callable[..., None]) -> list[Any]:
    """Judge faults that can be put into running code; return those that cannot, after all."""
    from judge import Server, Verdict, serve
    from workspace import Kernels

    late: list[Any] = []
    by_key = {case.fault.key(): case for case in cases}
    kernels = Kernels(tree) if any(not c.fault.path.endswith(".py") for c in cases) else None
    prepare = None if kernels is None else _placer(tree, kernels)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        told = os.fdopen(writing, "w", buffering=1)

        def tell(case: Any, verdict: Any) -> None:
            told.write(json.dumps([case.fault.key(), verdict.outcome, verdict.killer]) + "\n")

        try:
            serve(tree, Server(tree, cases, tell, prepare))
        finally:
            told.flush()
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as lines:
        for line in lines:
            key, outcome, killer = json.loads(line)
            if outcome == "misfit":
                late.append(by_key[key])
            else:
                record(by_key[key], Verdict(outcome, killer))
    os.waitpid(child, 0)
    return late


def _judge_imports(tree: Path, cases: list[Any], record: Callable[..., None]) -> None:
    """Judge faults that must be there before the package is imported."""
    from judge import judge_afresh

    for case in cases:
        record(case, judge_afresh(tree, case))


def _placer(tree: Path, kernels: Any) -> Callable[[Any], bool]:
    """Return what compiles a fault in C into the copy and repairs the one before."""
    kernels.build(kernels.sources)
    broken: list[tuple[str, str]] = []

    def place(case: Any) -> bool:
        changed = set()
        while broken:
            path, sound = broken.pop()
            (tree / path).write_text(sound)
            changed.update(kernels.users(path))
        path = case.fault.path
        broken.append((path, (tree / path).read_text()))
        (tree / path).write_text(case.fault.source())
        return bool(kernels.build(sorted({*changed, *kernels.users(path)})))

    return place


def _row(area: str, case: Any, verdict: Any, population: int) -> dict[str, Any]:
    """Return a verdict as plain data."""
    fault = case.fault
    return {
        "key": fault.key(), "area": area, "path": fault.path, "line": fault.lines[0],
        "function": fault.function, "operator": fault.operator, "change": fault.change[:400],
        "statement": fault.statement[:200],
        "outcome": verdict.outcome, "killer": verdict.killer, "tests": len(case.tests),
        "population": population,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
