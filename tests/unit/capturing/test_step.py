"""What is captured: operators, collectives, sizes, dependencies."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import layerdag as ld
from layerdag.capturing.captured_step import CapturedStep
from layerdag.capturing.step import capture_model, capture_step
from layerdag.capturing.user_code import load_user_model
from layerdag.errors import LayerdagError, UsageError
from layerdag.traces.chakra.files import encode_trace
from layerdag.traces.trace import NodeType
from layerdag.workloads.transformer.job import transformer_job
from layerdag.workloads.transformer.shapes import ModelShape

LLAMA = ModelShape("tiny", 1, 32, 4, 64, 96, 4, gated=True, norm="rms", biases="none")
GPT = ModelShape("tiny-gpt", 1, 32, 4, 128, 96, positions=32, tied=True)
PARAMETERS = 9 + 3


def capture(shape: ModelShape = LLAMA, **settings: object) -> CapturedStep:
    return capture_model(shape, **{"sequence": 16, **settings})


def counts(step: CapturedStep) -> dict[str, int]:
    return {name: held["count"] for name, held in step.summary()["collectives"].items()}


def sizes(step: CapturedStep) -> dict[str, int]:
    return {name: held["bytes"] for name, held in step.summary()["collectives"].items()}


@pytest.mark.parametrize("shape", [LLAMA, GPT], ids=["llama", "gpt"])
def test_a_training_step_has_three_products_for_each_matrix(shape):
    found = capture(shape).summary()
    matrices = shape.layers * (7 if shape.gated else 6) + 1
    assert found["operators"]["gemm"] == 3 * matrices
    assert found["operators"]["attention"] == 2 * shape.layers
    assert found["parameters"] == shape.parameters


def test_an_inference_step_is_the_forward_pass_alone():
    found = capture(phase="inference").summary()
    assert (found["operators"]["gemm"], found["operators"]["attention"]) == (8, 1)
    assert set(found["phases"]) == {"forward"}


def test_tensor_ranks_sum_twice_forward_and_once_for_each_input_of_a_matrix():
    step = capture(tensor=2)
    assert counts(step) == {"all_reduce:tensor": 2 + 5}
    assert sizes(step) == {"all_reduce:tensor": 7 * 16 * 32 * 2}
    assert step.summary()["operators"]["gemm"] == 24


def test_sequence_parallel_gathers_shards_and_scatters_the_whole():
    step = capture(tensor=2, sequence_parallel=True)
    stream = 16 * 32 * 2
    gathered, scattered = (2 + 2) + 2, 2 + 2
    assert counts(step)["all_gather:tensor"] == gathered
    assert counts(step)["reduce_scatter:tensor"] == scattered
    assert sizes(step)["all_gather:tensor"] == gathered * stream // 2
    assert sizes(step)["reduce_scatter:tensor"] == scattered * stream


def test_fsdp_gathers_layers_twice_and_the_rest_once():
    step = capture(fsdp=2)
    assert counts(step) == {"all_gather:fsdp": 2 + 1, "reduce_scatter:fsdp": 1 + 1}
    assert sizes(step)["reduce_scatter:fsdp"] == 2 * LLAMA.parameters


def test_fsdp_by_module_gathers_each_parameter():
    step = capture(fsdp=2, fsdp_unit="module")
    assert counts(step) == {"all_gather:fsdp": 2 * PARAMETERS, "reduce_scatter:fsdp": PARAMETERS}
    kept = capture(fsdp=2, fsdp_unit="module", keep_gathered=True)
    assert counts(kept)["all_gather:fsdp"] == PARAMETERS


def test_replicas_sum_gradients_in_buckets_or_alone():
    step = capture(data=2)
    assert counts(step) == {"all_reduce:data": 1}
    alone = capture(data=2, bucket_bytes=0)
    assert counts(alone) == {"all_reduce:data": PARAMETERS}
    assert sizes(alone) == sizes(step) == {"all_reduce:data": 2 * LLAMA.parameters}


def test_all_dimensions_together_have_groups_of_their_own():
    step = capture(tensor=2, fsdp=2, data=2)
    work = step.workload()
    assert counts(step)["all_reduce:tensor"] == 7
    assert counts(step)["all_reduce:data"] == counts(step)["reduce_scatter:fsdp"] == 2
    assert work.num_ranks == 8
    assert sorted(map(sorted, work.groups.values())) == [
        *([0, 1], [0, 2], [0, 4], [1, 3], [1, 5], [2, 3]),
        *([2, 6], [3, 7], [4, 5], [4, 6], [5, 7], [6, 7]),
    ]
    for rank, trace in enumerate(work.traces):
        texts, stated_N = trace.texts("pg_name")
        used = {text for text, stated in zip(texts, stated_N, strict=True) if stated}
        assert all(rank in work.groups[name] for name in used)


def test_a_captured_job_runs_in_the_simulator():
    result = ld.simulate(capture(tensor=2, fsdp=2).workload(), ld.Cluster("small"), compute="h100")
    assert result.makespan_ns > 0


def test_a_world_of_any_size_takes_the_program_of_one_rank():
    step = capture(tensor=2, data=4096, phase="inference")
    assert step.world.size == 8192
    assert step.trace.num_nodes == capture(tensor=2, phase="inference").trace.num_nodes


def test_two_captures_in_one_process_are_the_same():
    first, second = (capture(tensor=2, fsdp=2) for _ in range(2))
    assert encode_trace(first.trace) == encode_trace(second.trace)
    assert not torch.distributed.is_initialized()


def test_no_mesh_is_left_in_the_caches_of_dtensor():
    from torch.distributed.tensor import DTensor

    capture(tensor=2, phase="inference")
    cache = DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding.cache
    assert cache.cache_info().currsize == 0


def test_flops_are_those_of_pytorchs_counter():
    from torch.utils.flop_counter import FlopCounterMode

    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    x = torch.zeros(3, 8)
    with FlopCounterMode(display=False) as counter:
        model(x).sum().backward()
    found = capture_model(model, (x,), optimizer="none").summary()
    assert found["matrix_flops"] == counter.get_total_flops()


def test_matrix_products_agree_with_the_symbolic_workload():
    found = capture(fsdp=2, batch=4).summary()
    tokens, dense = 2 * 16, LLAMA.attention_parameters + LLAMA.expert_parameters
    products = 6 * tokens * (dense + 96 * 32)
    attention = (4 + 10) * tokens * 16 * 32  # PyTorch counts five products backward, not four
    assert found["matrix_flops"] == products + attention
    told = transformer_job(LLAMA, data=2, batch=4, sequence=16, zero=3).summary()
    assert told["matrix_flops"] // 2 == products + (4 + 8) * tokens * 16 * 32


def test_nodes_know_their_module_and_phase():
    program = capture().trace
    modules, phases = program.texts("module")[0], program.texts("phase")[0]
    rows = [row for row, name in enumerate(program.names()) if name == "aten::mm"]
    up = [phases[row] for row in rows if modules[row] == "layers.0.feed_forward.up"]
    assert up == ["forward", "backward", "backward"]
    assert phases == sorted(phases, key=["forward", "backward", "optimizer"].index)


def test_dependencies_pass_through_views_and_waits():
    program = capture(tensor=2, phase="inference").trace
    spoken = [row for row in range(program.num_nodes) if program.type_N[row] == NodeType.COMM_COLL]
    names = program.names()
    for row in spoken:
        assert [names[parent] for parent in program.data_deps.of(row)] == ["aten::mm"]
    users = [row for row in range(program.num_nodes) if spoken[0] in program.data_deps.of(row)]
    assert names[users[0]] == "aten::add"


def test_parameters_of_the_users_module_are_left_alone():
    model = nn.Linear(4, 4)
    before = model.weight.detach().clone()
    capture_model(model, (torch.ones(2, 4),))
    assert model.weight.grad is None
    assert torch.equal(model.weight, before)


def test_a_module_with_a_tensor_plan_is_split():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    step = capture_model(model, [torch.zeros(2, 8)], tensor=4,
                         tensor_plan={"0": "colwise", "2": "rowwise"})  # fmt: skip
    assert counts(step)["all_reduce:tensor"] == 1
    assert step.summary()["phases"]["backward"] > 0


def test_the_loss_may_be_given():
    model = nn.Linear(4, 2)
    step = capture_model(model, (torch.ones(3, 4),), loss=lambda out: out.square().sum())
    assert "aten::pow" in step.trace.names()


def test_outputs_with_a_loss_or_in_a_dictionary_are_differentiated():
    class Named(nn.Linear):
        def forward(self, x: torch.Tensor) -> dict[str, list[torch.Tensor]]:
            return {"out": [super().forward(x)]}

    assert "backward" in capture_model(Named(4, 2), (torch.ones(3, 4),)).summary()["phases"]


def test_a_function_may_run_the_step_itself():
    def step() -> None:
        x = torch.ones(4, 4)
        torch.distributed.all_reduce(x @ x)

    found = capture_step(step, data=4)
    assert counts(found) == {"all_reduce:data": 1}
    assert found.workload().groups == {}


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) if x.sum() > 0 else x


def test_control_flow_on_values_is_refused_with_module_and_operator():
    with pytest.raises(UsageError, match=r"Branching: .*captured after operator aten\..*values"):
        capture_model(Branching(), (torch.ones(2, 2),))


def test_a_world_in_use_is_left_alone(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    with pytest.raises(UsageError, match="in use"):
        capture(data=2)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"tensor": 3}, "cannot be split evenly"),
        ({"fsdp": 4, "batch": 6}, "cannot be split evenly"),
        ({"data": 0}, "whole number"),
        ({"tensr": 2}, "Did you mean 'tensor'"),
        ({"phase": "trainin"}, "Did you mean 'training'"),
        ({"sequence_parallel": True}, "tensor=2"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, told):
    with pytest.raises(LayerdagError, match=told):
        capture(**settings)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"tensor": 2}, "tensor plan"),
        ({"tensor": 2, "tensor_plan": {"0": "colwize"}}, "colwise"),
        ({"tensor": 3, "tensor_plan": {"0": "colwise"}}, "evenly over 3"),
        ({"tensor": 2, "tensor_plan": {"0": "colwise"}, "sequence_parallel": True}, "known models"),
        ({"tensor": 2, "tensor_plan": {"1": "colwise"}}, "does not fit"),
        ({"batch": 2}, "follows from the module"),
    ],
)
def test_plans_that_do_not_fit_a_module_are_refused(given, told):
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
    with pytest.raises(UsageError, match=told):
        capture_model(model, (torch.zeros(2, 8),), **given)


def test_what_cannot_be_captured_is_said():
    with pytest.raises(UsageError, match="mixture"):
        capture_model("mixtral-8x7b", layers=1)
    with pytest.raises(UsageError, match="deepseek-v3: has latent attention, shared experts"):
        capture_model("deepseek-v3")
    with pytest.raises(UsageError, match="vit-b16: reads images, which only 'layerdag workload'"):
        capture_model("vit-b16")
    with pytest.raises(UsageError, match="positions"):
        capture_model(GPT, sequence=64)
    with pytest.raises(UsageError, match="no scalar"):
        capture_model(nn.Identity(), (3,), optimizer="none")
    with pytest.raises(UsageError, match="no parameter"):
        capture_model(nn.ReLU(), (torch.zeros(2),))
    with pytest.raises(UsageError, match="no operator"):
        capture_step(lambda: None)
    with pytest.raises(UsageError, match="decides on batch"):
        capture_step(lambda: None, batch=2)


def test_a_group_beside_the_mesh_is_refused():
    def step() -> None:
        group = torch.distributed.new_group([0, 3], use_local_synchronization=True)
        torch.distributed.all_reduce(torch.ones(4), group=group)

    with pytest.raises(UsageError, match="no dimension of the mesh"):
        capture_step(step, data=4)


MODEL = """
import torch
from torch import nn

def make():
    return nn.Linear(4, 4), torch.zeros(2, 4)

def split():
    return nn.Linear(4, 4), (torch.zeros(2, 4),), {"": "colwise"}

def step():
    return lambda: torch.zeros(2) + 1

def number():
    return 3

def broken():
    raise RuntimeError("no weights")
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MODEL)
    return path


def test_a_function_returns_a_module_with_inputs_or_a_step(file):
    made = load_user_model(f"{file}:make")
    assert isinstance(made.model, nn.Linear)
    assert (len(made.inputs), made.tensor_plan) == (1, None)
    assert load_user_model(f"{file}:split").tensor_plan == {"": "colwise"}
    assert not isinstance(load_user_model(f"{file}:step").model, nn.Module)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("mak", "Did you mean 'make'"),
        ("number", "returns int"),
        ("broken", "RuntimeError: no weights"),
    ],
)
def test_functions_that_give_no_model_are_refused(file, name, told):
    with pytest.raises(UsageError, match=told):
        load_user_model(f"{file}:{name}")


def test_files_that_are_no_program_are_refused(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        load_user_model(f"{tmp_path}/none.py:make")
    wrong = tmp_path / "wrong.py"
    wrong.write_text("raise SystemExit")
    with pytest.raises(UsageError, match="failed: SystemExit"):
        load_user_model(f"{wrong}:make")
    wrong.write_text("1 +")
    with pytest.raises(UsageError, match="SyntaxError"):
        load_user_model(f"{wrong}:make")
    note = tmp_path / "note.txt"
    note.write_text("hello")
    with pytest.raises(UsageError, match="no Python file"):
        load_user_model(f"{note}:make")


def test_a_mode_around_a_capture_sees_its_operators():
    with FlopCounterMode(display=False) as counter:
        ld.capture_model(nn.Linear(8, 4), (torch.ones(3, 8),), data=2)
    assert counter.get_total_flops() > 0
