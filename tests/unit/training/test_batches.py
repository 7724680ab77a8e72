import os
import socket
import subprocess
import sys
from dataclasses import fields

import pytest
import torch
import torch.distributed as dist

from layerdag.dag.dag import DAGBatch
from layerdag.errors import ConfigError
from layerdag.training.batches import BucketedSource, ProcessGroup, joined_world, take_graphs
from layerdag.training.checkpoint import load_checkpoint


def test_batches_hold_every_graph_once_and_to_the_number_of_nodes(data):
    plan = BucketedSource(data, batch_graphs=5, batch_nodes=1000, seed=0).epoch_batches(3)
    assert torch.cat(plan).sort().values.tolist() == list(range(12))
    assert max(len(graphs) for graphs in plan) == 5
    sizes = data.node_ptr.diff()
    limit = int(sizes.max())
    for graphs in BucketedSource(data, 12, limit, seed=0).epoch_batches(0):
        assert sizes[graphs].sum() <= limit
    plan = BucketedSource(data, 12, batch_nodes=1, seed=0).epoch_batches(0)
    assert [len(graphs) for graphs in plan] == [1] * 12


def test_the_plan_depends_on_seed_and_epoch_alone(data):
    def flat(seed: int, epoch: int) -> list[int]:
        return torch.cat(BucketedSource(data, 3, 1000, seed).epoch_batches(epoch)).tolist()

    assert flat(0, 1) == flat(0, 1)
    assert flat(0, 1) != flat(0, 2)
    assert flat(0, 1) != flat(1, 1)


def test_taking_graphs_equals_collating_them(data):
    whole = take_graphs(data, torch.arange(12))
    for column in fields(DAGBatch):
        assert torch.equal(getattr(whole, column.name), getattr(data, column.name))


def test_taken_graphs_keep_their_own_nodes_and_edges(data):
    taken = take_graphs(data, torch.tensor([7, 2]))
    for place, graph in enumerate((7, 2)):
        nodes = slice(data.node_ptr[graph], data.node_ptr[graph + 1])
        edges = slice(data.edge_ptr[graph], data.edge_ptr[graph + 1])
        new_nodes = slice(taken.node_ptr[place], taken.node_ptr[place + 1])
        new_edges = slice(taken.edge_ptr[place], taken.edge_ptr[place + 1])
        assert torch.equal(taken.x_NA[new_nodes], data.x_NA[nodes])
        old_pairs = data.edge_index_2E[:, edges] - data.node_ptr[graph]
        new_pairs = taken.edge_index_2E[:, new_edges] - taken.node_ptr[place]
        assert torch.equal(new_pairs, old_pairs)
        assert torch.equal(taken.numeric_BC[place], data.numeric_BC[graph])


def test_an_empty_data_set_is_refused(data):
    with pytest.raises(ConfigError, match="no graph"):
        BucketedSource(take_graphs(data, torch.zeros(0, dtype=torch.int64)), 1, 1, 0)


SCRIPT = """
import sys
from pathlib import Path

import numpy as np
import torch

from layerdag.dag.dag import DAGBatch, GraphSizes
from layerdag.dag.statistics import GraphStatistics
from random_graphs import random_dag
from layerdag.models.spec import ModelSpec
from layerdag.training.run import TrainingRun
from layerdag.training.settings import TrainSettings
from layerdag.training.batches import joined_world
from layerdag.training.loop import train

rng = np.random.default_rng(0)
dags = [random_dag(rng, [2, 3, 1], [4, 2], num_edge_types=2) for _ in range(16)]
none = torch.zeros(16, 0)
data = DAGBatch.from_dags(dags, none, none.long())
sizes = GraphSizes((4, 2), edge_types=2)
arguments = {
    "layer_size": {"width": 8}, "node": {"width": 8, "heads": 2}, "edge": {"width": 8},
}
spec = ModelSpec("reference", sizes, GraphStatistics.measure(dags, sizes), arguments)
job = TrainingRun(spec, data, data, Path(sys.argv[1]))
settings = TrainSettings(
    max_steps=6, evaluate_every=3, batch_graphs=2, accumulate=int(sys.argv[2]), precision="float32"
)
with joined_world(torch.device("cpu")) as world:
    result = train(job, settings, world=world)
    assert result.step == 6
"""


FAILING = SCRIPT.replace(
    "with joined_world",
    """
import time

import torch.distributed as dist

def fails(model, step):
    raise RuntimeError("this callback fails")

# As NCCL: leaving the group waits for the others.
dist.destroy_process_group = lambda: time.sleep(3600)
with joined_world""",
).replace("world=world)", "world=world, callback=fails)")


def torchrun() -> list[str]:
    """Return the command that starts two processes on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
        "--master-addr=127.0.0.1", f"--master-port={port}",
    ]  # fmt: skip


def test_one_process_is_a_world_of_one():
    with joined_world(torch.device("cpu")) as world:
        assert world == ProcessGroup(0, 1)
        values = torch.tensor([1.0, 2.0])
        assert torch.equal(world.sum(values), values)


@pytest.mark.slow
def test_two_processes_train_the_same_model_as_one_with_two_micro_batches(tmp_path):
    script = tmp_path / "train_tiny.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    alone = [sys.executable, str(script), str(tmp_path / "one"), "2"]
    subprocess.run(alone, check=True, env=environment)
    subprocess.run(
        [*torchrun(), str(script), str(tmp_path / "two"), "1"], check=True, env=environment
    )
    one = load_checkpoint(tmp_path / "one" / "last")
    two = load_checkpoint(tmp_path / "two" / "last")
    for name, tensor in one.model.state_dict().items():
        torch.testing.assert_close(two.model.state_dict()[name], tensor, atol=1e-5, rtol=1e-4)
    for name, value in one.meta.metrics.items():
        assert two.meta.metrics[name] == pytest.approx(value, rel=1e-4)


@pytest.mark.slow
def test_a_hook_that_fails_in_one_process_ends_the_run(tmp_path):
    script = tmp_path / "train_failing.py"
    script.write_text(FAILING)
    done = subprocess.run(
        [*torchrun(), str(script), str(tmp_path / "out"), "1"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=400,  # the group's own timeout is 600 s
    )
    assert done.returncode != 0
    assert "Process 0 of 2 has failed" in done.stderr
    assert "RuntimeError: this callback fails" in done.stderr


@pytest.fixture
def pair(monkeypatch) -> list[str]:
    """Play a world of two in one process: the other one always has the same numbers as we."""
    calls: list[str] = []

    def all_reduce(values: torch.Tensor) -> None:
        calls.append("all_reduce")
        values *= 2

    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    monkeypatch.setattr(dist, "broadcast", lambda tensor, src: calls.append(f"broadcast {src}"))
    monkeypatch.setattr(dist, "barrier", lambda: calls.append("barrier"))
    return calls


def test_a_world_of_one_talks_to_nobody(pair):
    model = torch.nn.Linear(2, 1)
    alone, flags = ProcessGroup(), torch.tensor([1.0, 0.0])
    assert alone.average_gradients(list(model.parameters()), flags) is flags
    assert alone.sum(flags) is flags
    alone.same_weights(model)
    alone.barrier()
    assert pair == []


def test_gradients_are_means_over_processes_and_flags_are_sums(pair):
    with_one, without, frozen = (torch.nn.Parameter(torch.ones(n)) for n in (2, 3, 1))
    frozen.requires_grad_(False)
    with_one.grad = torch.tensor([3.0, -1.0])
    flags = ProcessGroup(0, 2).average_gradients(
        [with_one, without, frozen], torch.tensor([1.0, 0.0])
    )
    # Both processes have 3 and -1, so the mean is the same; one message carries everything.
    assert with_one.grad.tolist() == [3.0, -1.0]
    assert without.grad.tolist() == [0.0, 0.0, 0.0]
    assert frozen.grad is None
    assert flags.tolist() == [2.0, 0.0]
    assert pair == ["all_reduce"]


def test_a_world_of_two_adds_up_waits_and_takes_the_weights_of_the_first(pair):
    world, model = ProcessGroup(1, 2), torch.nn.Linear(2, 1)
    assert world.sum(torch.tensor([1.5])).tolist() == [3.0]
    world.same_weights(model)
    world.barrier()
    assert pair == ["all_reduce", "broadcast 0", "broadcast 0", "barrier"]


@pytest.fixture
def group(monkeypatch) -> list[str]:
    """Play torchrun's group of two processes, of which this is the second."""
    calls: list[str] = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(dist, "init_process_group", lambda backend, timeout: calls.append(backend))
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: calls.append("left"))
    return calls


@pytest.mark.parametrize(("device", "backend"), [("cpu", "gloo"), ("cuda", "nccl")])
def test_processes_join_and_leave_by_the_backend_of_their_device(group, device, backend):
    with joined_world(torch.device(device)) as world:
        assert world == ProcessGroup(1, 2)
        assert group == [backend]
    assert group == [backend, "left"]


def test_a_group_that_is_there_already_is_used_and_left_alone(group, monkeypatch):
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    with joined_world(torch.device("cpu")) as world:
        assert world == ProcessGroup(1, 2)
    assert group == []


def test_a_failed_process_says_why_and_ends_without_waiting(group, monkeypatch, capsys):
    class EndedError(BaseException):
        pass

    def ended(code: int) -> None:
        raise EndedError(code)

    monkeypatch.setattr(os, "_exit", ended)
    with pytest.raises(EndedError, match="1"), joined_world(torch.device("cpu")):
        raise ZeroDivisionError("as it is")
    told = capsys.readouterr().err
    assert "Process 1 of 2 has failed for the reason below" in told
    assert "go on from the last save with resume=RUN_FOLDER" in told
    assert "ZeroDivisionError: as it is" in told
    assert group == ["gloo"]
