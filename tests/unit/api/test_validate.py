from dataclasses import replace
from pathlib import Path

import torch
from raw_graphs import chain
from small_workloads import compute, job
from tiny_checkpoints import chain_checkpoint, job_checkpoint

import layerdag as ld

SOUND = job((compute(1), compute(2, 1)))
BROKEN = job((compute(1, 7),))


def rules(thing: object) -> set[str]:
    return {finding.rule.id for finding in ld.validate(thing)}


def test_workloads_traces_and_paths_are_checked(tmp_path: Path) -> None:
    ld.write(SOUND, tmp_path / "run")
    for fine in (SOUND, SOUND.traces[0], tmp_path / "run"):
        assert ld.validate(fine) == ()
    broken = rules(BROKEN)
    assert broken
    assert rules(BROKEN.traces[0]) == broken
    assert rules([SOUND, BROKEN]) == broken


def test_graphs_are_checked_whether_attributed_or_coded(tmp_path: Path) -> None:
    graph = chain("g", "abc")
    assert ld.validate(graph) == ()
    twice = replace(graph, edge_index_2E=graph.edge_index_2E[:, [0, 0]])
    assert "no-double-edge" in rules(twice)
    dag = ld.DAG.build(torch.zeros((2, 1), dtype=torch.int64), torch.tensor([[0, 1], [1, 0]]))
    assert "acyclic" in rules(dag)


def test_samples_are_checked_as_what_they_become(tmp_path: Path) -> None:
    jobs = ld.sample(job_checkpoint(tmp_path / "jobs"), num=2, max_nodes=10, best_of=2)
    assert not any(f.rule.severity.value == "error" for f in ld.validate(jobs))
    chains = ld.validate(ld.sample(chain_checkpoint(tmp_path / "chains"), num=2, max_nodes=6))
    assert all(finding.sampled and "sample-0000" in finding.where for finding in chains)
