"""Everything that is wrong with a trace, a job or a graph."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import torch

from layerdag.api._read import read
from layerdag.codec import AttributedGraph
from layerdag.errors import DataError
from layerdag.evaluation.fixes import FixedWorkload, fix_workload
from layerdag.evaluation.rules import Finding, check_structure, check_workload
from layerdag.graph import DAG
from layerdag.sampling import GeneratedGraph
from layerdag.traces import Trace, Workload

Checkable = Workload | Trace | AttributedGraph | DAG | GeneratedGraph | str | Path


def validate(thing: Checkable | Iterable[Checkable]) -> tuple[Finding, ...]:
    """Return where rules are broken that consumers of traces and graphs rely on; none is fine.

    Args:
        thing: A workload, a trace, a graph, a sample, the path of one, or several of these. A
            sample of a job is checked as the traces that it becomes.

    Raises:
        DataError: If a path cannot be read, or a sampled job cannot become traces.
    """
    if isinstance(thing, Checkable):
        return tuple(_findings(thing))
    return tuple(finding for one in thing for finding in _findings(one))


def fix(thing: Workload | Trace | str | Path) -> FixedWorkload:
    """Change what breaks a rule on traces and has one safe answer; see ``fix_workload``.

    Args:
        thing: A workload, a trace, or the path of one. It is not changed.

    Returns:
        The workload with all changes, what was changed, and what is left.

    Raises:
        DataError: If a path cannot be read, or holds a graph.
    """
    found = read(thing) if isinstance(thing, str | Path) else thing
    if isinstance(found, AttributedGraph):
        raise DataError(f"{found.name}: is a graph; only traces can be fixed.")
    return fix_workload(Workload((found,), {}, found.source) if isinstance(found, Trace) else found)


def _findings(thing: Checkable) -> Iterable[Finding]:
    """Return the findings on one thing."""
    if isinstance(thing, str | Path):
        return _findings(read(thing))
    if isinstance(thing, GeneratedGraph):
        if thing.schema.kind == "trace":
            found = check_workload(replace(thing.workload(), source=thing.name))
        else:
            found = list(check_structure([thing.dag], names=[thing.name]).findings)
        return [replace(finding, sampled=True) for finding in found]
    if isinstance(thing, Trace):
        return check_workload(Workload((thing,)))
    if isinstance(thing, Workload):
        return check_workload(thing)
    if isinstance(thing, AttributedGraph):
        return check_structure([_bare(thing)], names=[thing.name]).findings
    return check_structure([thing]).findings


def _bare(graph: AttributedGraph) -> DAG:
    """Return the structure of an attributed graph."""
    x_NA = torch.zeros((graph.num_nodes, 1), dtype=torch.int64)
    return DAG.build(x_NA, torch.from_numpy(graph.edge_index_2E))
