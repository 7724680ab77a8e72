"""Equality, speed and memory of the simulator, as JSON on standard output.

    python benchmarks/simulator.py [--reference DATA/astra] [--max-ranks 32768]
                                   [--plot P] [--repeats 5] [--command layerdag]

Every timing runs in a process of its own: user seconds and peak memory include Python's start,
reading or building the workload, and the simulation. The whole `layerdag simulate` command is run
``--repeats`` times; its least and its median user seconds are printed. Workloads "from files" have
one plain ``.et`` file per rank, real files with real copies of their content: written by
``write_workload``, untimed. In the training step no two of them are equal, since ranks name
different groups. Figures of the reference simulator are quoted from its measurement on inputs of
the same shape (docs/reference/simulator.md, "How it is fast").
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REFERENCE_SECONDS = {
    "ring 64": 0.02,
    "ring 256": 0.38,
    "ring 1024": 10.6,
    "halvingDoubling 1024": 1.07,
    "direct 256": 3.23,
    "ring 256 aware": 0.47,
}
REFERENCE_LLM_SECONDS = 27.7
COLLECTIVES = (
    ("ring", 64, "unaware"),
    ("ring", 256, "unaware"),
    ("ring", 1024, "unaware"),
    ("halvingDoubling", 1024, "unaware"),
    ("direct", 256, "unaware"),
    ("ring", 256, "aware"),
    ("ring", 1024, "aware"),
)
DESCRIBED = {
    "gpt3-175b on 32768": {"sequence": 2048, "sequence_parallel": True, "zero": 1},
    "llama3-405b on 16384": {"sequence": 8192},
}
"""Jobs of ``layerdag workload``, tensor 8, pipeline 16, 16 micro-batches of one sequence."""
IN_MEMORY = "llm in memory"
FOLDER = Path(__file__).parent


def single_collective(algorithm: str, ranks: int, congestion: str) -> dict[str, object]:
    """Simulate one 64 MiB all-reduce in 4 chunks on ``ranks`` ranks."""
    import dataclasses

    from layerdag.simulator.cluster import Cluster
    from layerdag.simulator.config import (
        Congestion,
        NetworkConfig,
        RunOptions,
        SystemConfig,
        Topology,
    )
    from layerdag.simulator.run import simulate
    from layerdag.traces.builder import NodeSpec, build_trace
    from layerdag.traces.trace import Attribute, NodeType, Wire, Workload

    attributes = (
        Attribute("comm_type", Wire.INT64, 0),
        Attribute("comm_size", Wire.INT64, 1 << 26),
    )
    trace = build_trace([NodeSpec(0, "all_reduce", NodeType.COMM_COLL, attributes=attributes)])
    topology = Topology.SWITCH if algorithm == "halvingDoubling" else Topology.RING
    system = SystemConfig.uniform(algorithm)
    system = dataclasses.replace(system, preferred_dataset_splits=4, local_mem_bw_gb=1600.0)
    start = time.process_time()
    result = simulate(
        Workload((trace,) * ranks),
        Cluster(
            NetworkConfig.single(topology, ranks),
            system,
            options=RunOptions(congestion=Congestion(congestion)),
        ),
    )
    seconds = round(time.process_time() - start, 4)
    return {"ranks": ranks, "makespan_ns": result.makespan_ns, "simulate_s": seconds}


def llm_in_memory(data_parallel: int, tensor_parallel: int) -> dict[str, object]:
    """Simulate a training step of about 100 nodes per rank, built in memory."""
    sys.path.insert(0, str(FOLDER))
    from llm_workload import llm_cluster, llm_workload

    from layerdag.simulator.run import simulate

    workload = llm_workload(data_parallel, tensor_parallel)
    result = simulate(workload, llm_cluster(data_parallel, tensor_parallel))
    return {"ranks": result.num_ranks, "nodes": result.num_nodes, "makespan_ns": result.makespan_ns}


def llm_from_files(prefix: str, data_parallel: int, tensor_parallel: int) -> dict[str, object]:
    """The same, read from one ``.et`` file per rank."""
    sys.path.insert(0, str(FOLDER))
    from llm_workload import llm_cluster

    from layerdag.simulator.run import simulate
    from layerdag.traces.chakra.workload import read_workload

    result = simulate(read_workload(prefix), llm_cluster(data_parallel, tensor_parallel))
    return {"ranks": result.num_ranks, "nodes": result.num_nodes, "makespan_ns": result.makespan_ns}


def described(name: str) -> dict[str, object]:
    """Build and simulate a job of ``DESCRIBED``, from a model's name to ticks."""
    from layerdag.simulator.run import simulate
    from layerdag.workloads.by_name import workload

    model, _, ranks = name.partition(" on ")
    data = int(ranks) // 128
    plan = {"tensor": 8, "pipeline": 16, "data": data, "micro_batches": 16, "batch": 16 * data}
    result = simulate(workload(model, **plan, **DESCRIBED[name]), compute="h100")
    ran = len(result.outcome.ranks.rank_K)
    sizes = {"ranks": result.num_ranks, "ranks_run": ran, "nodes": result.num_nodes}
    return {**sizes, "makespan_ns": result.makespan_ns}


def compute_chain(nodes: int) -> dict[str, object]:
    """Simulate ``nodes`` compute nodes on one rank; the trace is not part of the time."""
    sys.path.insert(0, str(FOLDER))
    from llm_workload import chain

    from layerdag.simulator.cluster import Cluster
    from layerdag.simulator.config import NetworkConfig, SystemConfig, Topology
    from layerdag.simulator.run import simulate

    workload = chain(nodes)
    start = time.process_time()
    simulate(workload, Cluster(NetworkConfig.single(Topology.SWITCH, 1), SystemConfig.uniform()))
    seconds = time.process_time() - start
    return {"nodes": nodes, "nodes_per_s": round(nodes / seconds)}


def write_llm(prefix: str, data_parallel: int, tensor_parallel: int) -> dict[str, object]:
    """Write the input of ``llm_from_files``."""
    sys.path.insert(0, str(FOLDER))
    from llm_workload import llm_workload

    from layerdag.traces.chakra.workload import write_workload

    write_workload(llm_workload(data_parallel, tensor_parallel), prefix)
    return {}


def write_ring(folder: str, ranks: int) -> dict[str, object]:
    """Write a 64 MiB all-reduce of ``ranks`` ranks, one file each, with its configuration."""
    from layerdag.traces.builder import NodeSpec, build_trace
    from layerdag.traces.chakra.workload import write_workload
    from layerdag.traces.trace import Attribute, NodeType, Wire, Workload

    values = {"comm_type": 0, "comm_size": 1 << 26}
    attributes = tuple(Attribute(name, Wire.INT64, value) for name, value in values.items())
    trace = build_trace([NodeSpec(0, "all_reduce", NodeType.COMM_COLL, attributes=attributes)])
    write_workload(Workload((trace,) * ranks), Path(folder) / "workload")
    system = {
        "preferred-dataset-splits": 4,
        "collective-optimization": "localBWAware",
        "all-reduce-implementation": ["ring"],
        "local-mem-bw": 1600,
    }
    (Path(folder) / "system.json").write_text(json.dumps(system))
    network = f"topology: [Ring]\nnpus_count: [{ranks}]\nbandwidth: [50]\nlatency: [500]\n"
    (Path(folder) / "network.yml").write_text(network)
    return {}


def whole_command(command: str, folder: str, repeats: int, congestion: str) -> dict[str, object]:
    """Time ``layerdag simulate`` on the files of ``write_ring``, as a user would start it."""
    words = [command, "simulate", "--workload", f"{folder}/workload", "--json"]
    words += ["--system", f"{folder}/system.json", "--network", f"{folder}/network.yml"]
    words += ["--congestion", congestion]
    seconds = []
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        done = subprocess.run(words, capture_output=True, check=True)
        seconds.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
    found = json.loads(done.stdout)
    return {
        "ranks": found["ranks"],
        "makespan_ns": found["makespan"],
        "repeats": repeats,
        "user_s_min": round(min(seconds), 3),
        "user_s_median": round(statistics.median(seconds), 3),
    }


def equality(folder: str) -> dict[str, object]:
    """Count the recorded cases whose every tick is equal."""
    from astra_cases import differences

    cases = sorted(path.parent for path in Path(folder).glob("*/case.json"))
    with tempfile.TemporaryDirectory() as out:
        wrong = [case.name for case in cases if differences(case, Path(out))]
    return {"cases": len(cases), "equal": len(cases) - len(wrong), "different": wrong}


def measured(function: str, *arguments: object) -> dict[str, object]:
    """Run one of the functions above in a fresh process; add user seconds and peak memory."""
    code = (
        f"import json, resource, sys; sys.path.insert(0, {str(FOLDER)!r}); import simulator as b; "
        f"r = b.{function}(*{arguments!r}); u = resource.getrusage(resource.RUSAGE_SELF); "
        "r['user_s'] = round(u.ru_utime, 3); r['peak_mb'] = round(u.ru_maxrss / 1024); "
        "sys.stdout.flush(); print('RESULT' + json.dumps(r))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    answer: dict[str, object] = json.loads(done.rsplit("RESULT", 1)[1])
    return answer


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reference", help="folder of recorded reference cases")
    parser.add_argument("--max-ranks", type=int, default=32768)
    parser.add_argument("--plot", help="write the scaling curve as a picture")
    parser.add_argument("--repeats", type=int, default=5, help="runs of the whole command")
    parser.add_argument(
        "--command",
        default=str(Path(sys.executable).with_name("layerdag")),
        help="the installed command to time, e.g. that of a wheel in another environment",
    )
    args = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as layerdag simulate sets it for itself
    report: dict[str, object] = {}
    for name, found in results(args):
        print(json.dumps({name: found}), file=sys.stderr, flush=True)
        report[name] = found
    print(json.dumps(report, indent=1))
    if args.plot:
        plot(report, args.plot)


def results(args: argparse.Namespace) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield every measurement with its name, as it is made."""
    if args.reference:
        yield "equality", measured("equality", args.reference)
    for algorithm, ranks, congestion in COLLECTIVES:
        name = f"{algorithm} {ranks}" + (" aware" if congestion == "aware" else "")
        quoted = {"reference_user_s": REFERENCE_SECONDS.get(name)}
        yield name, measured("single_collective", algorithm, ranks, congestion) | quoted
    with tempfile.TemporaryDirectory() as folder:
        measured("write_ring", folder, 1024)
        for way in ("unaware", "aware"):
            name = f"whole command, ring 1024 from files, {way}"
            yield name, whole_command(args.command, folder, args.repeats, way)
    for name in DESCRIBED:
        yield name, measured("described", name)
    yield "compute", measured("compute_chain", 1_000_000)
    for ranks in (1024, 32768):
        if ranks <= args.max_ranks:
            yield f"llm {ranks} from files", from_files(ranks)
    ranks = 8
    while ranks <= args.max_ranks:
        yield f"{IN_MEMORY} {ranks}", measured("llm_in_memory", ranks // 4, 4)
        ranks *= 4


def from_files(ranks: int) -> dict[str, object]:
    """Write a training step of ``ranks`` ranks into a temporary folder, then time reading it."""
    with tempfile.TemporaryDirectory() as folder:
        prefix = str(Path(folder) / "llm")
        measured("write_llm", prefix, ranks // 4, 4)
        megabytes = sum(path.stat().st_size for path in Path(folder).iterdir()) / 1e6
        found = measured("llm_from_files", prefix, ranks // 4, 4)
    quoted = {"reference_user_s": REFERENCE_LLM_SECONDS} if ranks == 1024 else {}
    return {**found, "input_mb": round(megabytes), **quoted}


def plot(report: dict[str, Any], path: str) -> None:
    """Draw user seconds over ranks."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    scaling = [row for name, row in report.items() if name.startswith(IN_MEMORY)]
    figure, axes = pyplot.subplots(figsize=(5, 3.5))
    axes.loglog([row["ranks"] for row in scaling], [row["user_s"] for row in scaling], "o-")
    axes.set_xlabel("ranks (96 nodes each)")
    axes.set_ylabel("user seconds, start-up included")
    axes.grid(visible=True, which="both", alpha=0.3)
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    main()
