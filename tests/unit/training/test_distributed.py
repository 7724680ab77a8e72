import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from layerdag.training import World, joined_world, load_checkpoint, local_device

SCRIPT = """
import sys
from pathlib import Path

import numpy as np
import torch

from layerdag.graph import DAGBatch, GraphSizes, GraphStatistics, random_dag
from layerdag.models import ModelSpec
from layerdag.training import TrainJob, TrainSettings, joined_world, train

rng = np.random.default_rng(0)
dags = [random_dag(rng, [2, 3, 1], [4, 2], num_edge_types=2) for _ in range(16)]
none = torch.zeros(16, 0)
data = DAGBatch.collate(dags, [dag.layers() for dag in dags], none, none.long())
sizes = GraphSizes((4, 2), edge_types=2)
arguments = {
    "layer_size": {"width": 8}, "node": {"width": 8, "heads": 2}, "edge": {"width": 8},
}
spec = ModelSpec("reference", sizes, GraphStatistics.measure(dags, sizes), arguments)
job = TrainJob(spec, data, data, Path(sys.argv[1]))
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
    raise RuntimeError("this hook fails")

# As NCCL: leaving the group waits for the others.
dist.destroy_process_group = lambda: time.sleep(3600)
with joined_world""",
).replace("world=world)", "world=world, hook=fails)")


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
        assert world == World(0, 1)
        values = torch.tensor([1.0, 2.0])
        assert torch.equal(world.sum(values), values)


def test_a_device_can_be_named():
    assert local_device("cpu") == torch.device("cpu")
    assert local_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.slow
def test_two_processes_train_the_same_model_as_one_with_two_micro_batches(tmp_path: Path):
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
def test_a_hook_that_fails_in_one_process_ends_the_run(tmp_path: Path):
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
    assert "RuntimeError: this hook fails" in done.stderr
