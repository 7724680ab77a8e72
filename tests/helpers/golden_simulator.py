"""Run a golden case of the simulator through the command line, from files to files."""

import contextlib
import csv
import io
import json
from pathlib import Path

from layerdag.cli.main import main
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.chakra.workload import write_workload
from layerdag.traces.trace import Attribute, NodeType, Wire, Workload

_WIRES = {bool: Wire.BOOL, int: Wire.INT64, str: Wire.STRING, list: Wire.BOOL + 1}


def node_of(row: dict) -> NodeSpec:
    """Return one node of a case."""
    fields = {"id", "type", "deps", "duration_micros"}
    attributes = tuple(
        Attribute(name, _WIRES[type(value)], tuple(value) if isinstance(value, list) else value)
        for name, value in row.items()
        if name not in fields
    )
    return NodeSpec(
        row["id"],
        f"n{row['id']}",
        NodeType[row["type"]],
        data_deps=tuple(row["deps"]),
        duration_us=row.get("duration_micros", 0),
        attributes=attributes,
    )


def run_case(case: dict, folder: Path) -> dict:
    """Return finish and exposed communication of each rank, and [rank, id, start, end] by node."""
    traces = tuple(build_trace([node_of(row) for row in nodes]) for nodes in case["ranks"])
    groups = {name: tuple(ranks) for name, ranks in case["groups"].items()}
    write_workload(Workload(traces, groups), folder / "job")
    for name in ("system", "memory"):
        (folder / f"{name}.json").write_text(json.dumps(case[name]))
    # JSON is YAML as well.
    (folder / "network.yml").write_text(json.dumps(case["network"]))
    words = ["simulate", "--reference-semantics", *case["flags"]]
    words += ["--workload", str(folder / "job")]
    words += [f"--{name}={folder / name}.json" for name in ("system", "memory")]
    words += [f"--network={folder / 'network.yml'}", "--json"]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main([*words, f"--nodes={folder / 'nodes.csv'}"]) == 0
    result = json.loads(out.getvalue())
    with (folder / "nodes.csv").open() as file:
        rows = [[int(row[i]) for i in (0, 1, 3, 4)] for row in list(csv.reader(file))[1:]]
    return {
        "finish": list(result["finish"].values()),
        "exposed": list(result["exposed_comm"].values()),
        "ticks": rows,
    }
