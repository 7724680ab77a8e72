"""Cases that the reference simulator was run on, and how our outcomes differ from what it recorded.

``tests/reference`` requires that all are equal.
"""

import contextlib
import csv
import gzip
import io
import json
from pathlib import Path

from layerdag.cli.main import main


def flags_of(folder: Path, out: Path) -> list[str]:
    """Return the command line of one case, with the flags that the reference was given."""
    case = json.loads((folder / "case.json").read_text())
    flags = ["simulate", f"--workload={folder / 'workload'}", f"--congestion={case['backend']}"]
    flags += [f"--system={folder / 'system.json'}", f"--network={folder / 'network.yml'}"]
    flags += [f"--memory={folder / 'memory.json'}", *case["args"]]
    if case["has_comm"]:
        flags.append(f"--comm-group={folder / 'comm_group.json'}")
    # One case has fewer implementations than dimensions, which is refused unless asked for.
    flags += ["--missing-implementations=skip", "--reference-semantics"]
    return [*flags, "--json", f"--nodes={out / 'nodes.csv'}"]


def differences(folder: Path, out: Path) -> list[str]:
    """Return in which respects our outcome of a case differs from the recorded one."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(flags_of(folder, out)) == 0
    expected = json.loads((folder / "expected.json").read_text())
    found = json.loads(printed.getvalue())
    keys = ("finish", "exposed_comm", "makespan")
    wrong = [f"{folder.name}: {key}" for key in keys if found[key] != expected[key]]
    with gzip.open(folder / "nodes.csv.gz", "rt") as file:
        recorded = sorted(map(tuple, csv.reader(file)))
    with (out / "nodes.csv").open() as file:
        ours = sorted(tuple(row[:5]) for row in csv.reader(file))
    return wrong + ([] if ours == recorded else [f"{folder.name}: ticks of nodes"])
