"""Make the golden cases of the simulator: ``python tests/golden/make_simulator_cases.py FOLDER``.

A case is one JSON file with everything that a run reads (system, network, memory, groups, flags,
the nodes of each rank) and what came out (finish and exposed communication of each rank, ticks of
each node). The cases were drawn at random here; what came out is that of layerdag at commit
a04ec85, which agrees in every tick with ASTRA-sim on the 162 recorded cases of ``tests/reference``.
Run it with the package of a trusted version first on PYTHONPATH; it changes no file that exists.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

TOPOLOGIES = ("Ring", "FullyConnected", "Switch")
COLLECTIVES = {"ALL_REDUCE": 0, "ALL_GATHER": 2, "ALL_TO_ALL": 6, "REDUCE_SCATTER": 7}
NUM_CASES = 40


def main(folder: Path) -> None:
    """Write the cases that ``folder`` lacks."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(NUM_CASES):
        path = folder / f"case-{seed:02d}.json"
        if path.exists():
            continue
        case = random_case(np.random.default_rng(seed), seed)
        path.write_text(as_text({**case, "expected": outcome(case)}))


def as_text(case: dict) -> str:
    """Return a case as JSON with one line for each node and each row of ticks."""
    long = {"ranks", "expected"}
    lines = [f" {json.dumps(key)}: {json.dumps(case[key])}" for key in case if key not in long]
    rows = ["  [\n" + ",\n".join(f"   {json.dumps(node)}" for node in rank) + "\n  ]"
            for rank in case["ranks"]]  # fmt: skip
    lines.append(' "ranks": [\n' + ",\n".join(rows) + "\n ]")
    lines.append(f' "expected": {json.dumps(case["expected"])}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def outcome(case: dict) -> dict:
    """Return finish, exposed communication and ticks as the package on the path finds them."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
    from golden_simulator import run_case

    with tempfile.TemporaryDirectory() as name:
        return run_case(case, Path(name))


def random_case(rng: np.random.Generator, seed: int) -> dict:
    """Return one case without its outcome."""

    def pick(*choices):
        return choices[int(rng.integers(len(choices)))]

    aware = seed % 4 == 3
    count = 1 if aware else pick(1, 1, 2, 2, 3)
    sizes = [pick(4, 5, 6, 8) if count == 1 else pick(2, 3, 4) for _ in range(count)]
    if seed % 4 == 1:
        sizes = [pick(4, 8)] if count == 1 else [pick(2, 4) for _ in range(count)]
    powers = all(size & (size - 1) == 0 for size in sizes)
    topologies = [pick(*TOPOLOGIES) for _ in sizes]
    if aware and topologies == ["Ring"]:
        sizes = [max(sizes[0], 3)]
    system = {
        "scheduling-policy": pick("LIFO", "FIFO"),
        "endpoint-delay": pick(1, 10, 25),
        "active-chunks-per-dimension": pick(1, 2, 4),
        "preferred-dataset-splits": pick(1, 2, 4),
        "collective-optimization": pick("localBWAware", "baseline"),
        "local-mem-bw": pick(100, 1600),
        "peak-perf": 50,
        "roofline-enabled": pick(0, 1),
    }
    for name in COLLECTIVES:
        known = ["ring", "direct", "direct2"]
        if powers and name != "ALL_TO_ALL":
            known += ["halvingDoubling"] * 3
        if powers and name == "ALL_REDUCE":
            known.append("doubleBinaryTree")
        key = name.lower().replace("_", "-") + "-implementation"
        system[key] = [pick(*known) for _ in sizes]
    network = {
        "topology": topologies,
        "npus_count": sizes,
        "bandwidth": [pick(12.5, 50.0, 200.0) for _ in sizes],
        "latency": [pick(10.0, 250.0, 500.5) for _ in sizes],
    }
    flags = ["--congestion", "aware" if aware else "unaware"]
    flags += pick([], [], ["--num-queues-per-dim", "2"])
    flags += pick([], [], [], ["--rendezvous-protocol", "true"])
    flags += pick([], [], ["--injection-scale", "2"])
    memory = {"memory-type": "NO_MEMORY_EXPANSION"}
    if seed % 5 == 0:
        kind = pick("PER_NPU_MEMORY_EXPANSION", "MEMORY_POOL")
        memory = {"memory-type": kind, "remote-mem-latency": 300, "remote-mem-bw": 64}
    ranks, groups = random_ranks(rng, int(np.prod(sizes)), len(sizes), memory)
    return {
        "about": f"{'x'.join(map(str, sizes))} {'+'.join(topologies)}",
        "system": system,
        "network": network,
        "memory": memory,
        "groups": groups,
        "flags": flags,
        "ranks": ranks,
    }


def random_ranks(
    rng: np.random.Generator, num_ranks: int, dims: int, memory: dict
) -> tuple[list[list[dict]], dict[str, list[int]]]:
    """Return the nodes of each rank, and the groups that they use.

    All ranks enter the same events in one order, so nothing can deadlock; compute nodes between
    them differ, so ranks come late.
    """
    order = rng.permutation(num_ranks).tolist()
    half = num_ranks // 2
    groups = {"3": order[:half], "8": order[half:]} if num_ranks > 3 else {}
    ranks: list[list[dict]] = [[] for _ in range(num_ranks)]
    last: list[int | None] = [None] * num_ranks
    for event in range(int(rng.integers(3, 6))):
        for rank in range(num_ranks):
            deps = [] if last[rank] is None or rng.random() < 0.3 else [last[rank]]
            node = {
                "id": 10 * event, "type": "COMP", "deps": deps,
                "duration_micros": int(rng.integers(1, 9)),
                "num_ops": int(rng.integers(10**4, 10**7)),
                "tensor_size": int(rng.integers(10**4, 10**6)),
            }  # fmt: skip
            if rng.random() < 0.2:
                node["is_cpu_op"] = True
            if memory["memory-type"] != "NO_MEMORY_EXPANSION" and rng.random() < 0.4:
                node["type"] = "MEM_LOAD"
                node.pop("is_cpu_op", None)
            ranks[rank].append(node)
        common = random_event(rng, num_ranks, dims, groups)
        for rank, what in common.items():
            before = [10 * event] if last[rank] is None else [10 * event, last[rank]]
            ranks[rank].append({"id": 10 * event + 1, "deps": before, **what})
            last[rank] = 10 * event + 1
    return ranks, groups


def random_event(
    rng: np.random.Generator, num_ranks: int, dims: int, groups: dict[str, list[int]]
) -> dict[int, dict]:
    """Return the communication node of each rank that takes part in one event."""
    size = int(rng.integers(1, 40)) * int(rng.choice([64, 1000, 65536, 262144]))
    kind = list(COLLECTIVES.values())[int(rng.integers(len(COLLECTIVES)))]
    collective = {"type": "COMM_COLL", "comm_type": kind, "comm_size": size}
    draw = rng.random()
    if draw < 0.3:
        source = int(rng.integers(num_ranks))
        target = (source + int(rng.integers(1, num_ranks))) % num_ranks
        tag = int(rng.integers(100))
        ends = {"comm_src": source, "comm_dst": target, "comm_size": size, "comm_tag": tag}
        return {source: {"type": "COMM_SEND", **ends}, target: {"type": "COMM_RECV", **ends}}
    if draw < 0.45 and groups:
        # All groups at once: collectives of all ranks meet after equally many others only. A group
        # has no tree, so it gathers.
        collective["comm_type"] = COLLECTIVES["ALL_GATHER"]
        of_rank = {rank: name for name, ranks in groups.items() for rank in ranks}
        return {rank: {**collective, "pg_name": of_rank[rank]} for rank in range(num_ranks)}
    if draw < 0.6 and dims > 1:
        involved = [bool(rng.integers(2)) for _ in range(dims)]
        involved[int(rng.integers(dims))] = True
        return {rank: {**collective, "involved_dim": involved} for rank in range(num_ranks)}
    return {rank: collective for rank in range(num_ranks)}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
