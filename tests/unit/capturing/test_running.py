import gc
import json
from functools import partial

import pytest
import torch
from torch import nn

from layerdag.capturing.running import capture, collect_step, record
from layerdag.errors import TraceError, UsageError
from layerdag.traces.chakra.files import read_trace


@pytest.fixture
def step():
    """One training step of a small perceptron, warmed up."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)

    def run() -> None:
        optimizer.zero_grad()
        model(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()

    run()
    return run


def test_a_step_becomes_a_data_flow_graph_with_durations(step):
    with record() as captured:
        step()
    result = captured.imported()
    names = result.trace.names()
    assert names.count("aten::addmm") == 2
    assert names.count("aten::mm") == 3
    assert names[-1] == "aten::add_"
    assert result.joined_fraction == 1
    relu = names.index("aten::relu")
    second_layer = names.index("aten::addmm", relu)
    assert relu in result.trace.data_deps.of(second_layer)
    first_update = names.index("aten::add_")
    assert result.trace.data_deps.of(first_update).size


def test_the_same_step_gives_the_same_structure_twice(step):
    structures = []
    for _ in range(2):
        with record() as captured:
            step()
        trace = captured.imported().trace
        structures.append((trace.names(), trace.data_deps.values.tolist()))
    assert structures[0] == structures[1]


def test_capture_writes_one_file_a_rank(step, tmp_path):
    with capture(tmp_path / "mine") as captured:
        step()
    assert captured.path == tmp_path / "mine.0.et"
    assert read_trace(captured.path).names() == captured.imported().trace.names()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.0.et"]


def test_nothing_is_written_for_a_block_without_work(tmp_path):
    with pytest.raises(TraceError, match="computes or communicates"), capture(tmp_path / "mine"):
        json.dumps({})
    assert list(tmp_path.iterdir()) == []


def test_an_error_in_the_block_is_passed_on(tmp_path):
    with pytest.raises(ZeroDivisionError), capture(tmp_path / "mine"):
        _ = 1 / 0
    assert list(tmp_path.iterdir()) == []


def test_the_result_is_not_there_before_the_end(step):
    with record() as captured:
        step()
        with pytest.raises(TraceError, match="has not ended"):
            captured.imported()


def test_a_workload_that_lies_there_is_not_replaced_unasked(step, tmp_path):
    for name in ("mine.0.et", "mine.1.et"):
        (tmp_path / name).write_text("precious")
    entered = []
    with (
        pytest.raises(UsageError, match="a workload lies there already"),
        capture(tmp_path / "mine"),
    ):
        entered.append(step())
    assert not entered
    with capture(tmp_path / "mine", overwrite=True):
        step()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.0.et"]


SCRIPT = """
from pathlib import Path
import torch

class Group:
    def __del__(self, gone=Path({gone!r})):
        gone.touch()

group, model = Group(), torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range({steps}):
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
{end}
"""


@pytest.mark.parametrize(
    ("steps", "end"), [(9, ""), (4, ""), (4, "raise SystemExit"), (4, "raise ValueError('late')")]
)
def test_what_a_script_leaves_is_not_taken_apart_while_its_step_is_held(steps, end, tmp_path):
    """Torch may wait for ever where ranks take their modules apart."""
    script, gone = tmp_path / "script.py", tmp_path / "gone"
    script.write_text(SCRIPT.format(gone=str(gone), steps=steps, end=end))
    step = collect_step(script, [], partial(capture, tmp_path / "mine"), 3, repeats=5)
    gc.collect()
    assert not gone.exists()
    del step
    gc.collect()
    assert gone.exists()
