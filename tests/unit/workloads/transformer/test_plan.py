"""Ranks as coordinates: which ranks are in a group, and who is a neighbor."""

import itertools

import numpy as np
import pytest
from symbolic_jobs import GPT, LLAMA, MIXTURE, small

from layerdag.codec.folding import job_graph, rank_classes
from layerdag.errors import ConfigError, UsageError
from layerdag.plan import PRECISIONS, Plan, Step
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.run import simulate
from layerdag.traces.chakra.files import encode_trace, normalize
from layerdag.traces.chakra.workload import read_workload, write_workload
from layerdag.traces.trace import Workload
from layerdag.workloads.transformer.job import transformer_job
from layerdag.workloads.transformer.mesh import ROLES, peer_R, rank_groups
from layerdag.workloads.transformer.schedule import (
    Task,
    layers_of_chunks,
    layers_of_stage,
    stage_tasks,
)

PLANS = [
    Plan(),
    Plan(tensor=4),
    Plan(data=3),
    Plan(pipeline=3, tensor=2),
    Plan(tensor=2, context=3, data=2, pipeline=2, expert=6),
    Plan(data=4, context=2, expert=4),
    Plan(data=3, tensor=2, pipeline=2, expert=6, expert_tensor=1, sequence_parallel=True),
]


def place(plan: Plan, rank: int) -> tuple[int, int, int, int]:
    """Return (stage, data, context, tensor) of a rank, tensor fastest."""
    rest, tensor = divmod(rank, plan.tensor)
    rest, context = divmod(rest, plan.context)
    stage, data = divmod(rest, plan.data)
    return stage, data, context, tensor


@pytest.mark.parametrize("plan", PLANS, ids=str)
@pytest.mark.parametrize(
    ("role", "free"), [("tensor", (3,)), ("context", (2,)), ("data", (1, 2))], ids=str
)
def test_members_of_a_group_differ_in_the_coordinates_of_its_role_alone(role, free, plan):
    for members in rank_groups(plan, role).tolist():
        places = [place(plan, rank) for rank in members]
        for axis in range(4):
            if axis not in free:
                assert len({one[axis] for one in places}) == 1
        assert len(set(places)) == len(members)


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_groups_have_the_size_of_their_degree(plan):
    sizes = {role: rank_groups(plan, role).shape[1] for role in ROLES}
    assert sizes == {
        "tensor": plan.tensor,
        "context": plan.context,
        "data": plan.data * plan.context,
        "expert": plan.expert,
        "expert_data": plan.experts_over // plan.expert,
        "embedding": 2 if plan.pipeline > 1 else 1,
    }


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_expert_ranks_and_their_replicas_make_up_the_data_ranks(plan):
    """Each pair of ranks that share dense weights shares experts, or shares tokens of experts."""
    same = {
        role: {
            pair
            for members in rank_groups(plan, role).tolist()
            for pair in itertools.permutations(members, 2)
        }
        for role in ("data", "expert", "expert_data")
    }
    assert not same["expert"] & same["expert_data"]
    if plan.expert_sharers < plan.tensor:  # experts are spread over the tensor ranks, too
        each = plan.ranks // plan.pipeline
        assert all(a // each == b // each for a, b in same["expert"] | same["expert_data"])
        return
    assert same["expert"] | same["expert_data"] <= same["data"]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_neighbors_are_one_stage_away_at_the_same_place(plan):
    after = peer_R(plan, "next")
    for rank, other in enumerate(after.tolist()):
        stage, *rest = place(plan, rank)
        assert place(plan, other) == ((stage + 1) % plan.pipeline, *rest)
    assert peer_R(plan, "previous")[after].tolist() == list(range(plan.ranks))


def test_tied_embeddings_join_the_first_and_the_last_stage_and_no_other():
    groups = rank_groups(Plan(pipeline=4, tensor=2), "embedding")
    np.testing.assert_array_equal(groups, [[0, 6], [1, 7]])


@pytest.mark.parametrize(
    ("shape", "settings", "sentence"),
    [
        (LLAMA, {"tensor": 0}, "tensor is 0; it must be a whole number, at least 1"),
        (LLAMA, {"tensor": 3}, "8 query heads cannot be split evenly over 3 tensor ranks"),
        (LLAMA, {"tensor": 8}, "4 key heads cannot be split evenly over 8 tensor ranks"),
        (LLAMA, {"data": 3}, "8 sequences cannot be split evenly over 3 data ranks"),
        (LLAMA, {"micro_batches": 3}, "8 sequences cannot be split"),
        (LLAMA, {"context": 3}, "128 tokens of a sequence cannot be split evenly over 3"),
        (LLAMA, {"pipeline": 5}, "4 layers do not fill 5 pipeline stages"),
        (LLAMA, {"data": 2, "expert": 2}, "has no experts to be split"),
        (MIXTURE, {"data": 2, "expert": 4}, "4 expert ranks do not divide data x context = 2"),
        (LLAMA, {"zero": 4}, "ZeRO stages are 0"),
        (LLAMA, {"zero": True}, "zero is True; ZeRO stages are 0"),
        (LLAMA, {"data": True}, "data is True; it must be a whole number"),
        (LLAMA, {"batch": 0}, "batch is 0; it must be a whole number, at least 1"),
        (LLAMA, {"tokens": -1}, "tokens is -1; it must be a whole number"),
        (MIXTURE, {"data": 8, "expert": 8}, "4 experts cannot be split evenly over 8 expert ranks"),
        (GPT, {"tensor": 8, "sequence": 100, "sequence_parallel": True},
         "100 tokens of a sequence cannot be split evenly over 8 context ranks"),
        (LLAMA, {"phase": "inference", "recompute": "full"}, "inference has no optimizer and no"),
        (LLAMA, {"phase": "decode", "tensor": 2, "sequence_parallel": True},
         "leave context and sequence_parallel out"),
        (LLAMA, {"precision": "bf17"}, "precision is 'bf17'. Did you mean 'bf16'"),
        (LLAMA, {"phase": "decode", "context": 2}, "one token a sequence, which cannot be split"),
        (LLAMA, {"phase": "prefill", "zero": 1}, "prefill has no optimizer"),
        (LLAMA, {"tensr": 2}, "no setting 'tensr'. Did you mean 'tensor'"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(shape, settings, sentence):
    with pytest.raises(UsageError, match=sentence):
        small(shape, **settings)


def test_a_micro_batch_has_one_sequence_unless_told_otherwise():
    made = transformer_job(LLAMA, data=2, micro_batches=3, sequence=64)
    assert (made.step.batch, made.tokens) == (6, 6 * 64)


def test_the_ranks_of_a_plan_are_the_product_of_its_degrees_but_for_experts():
    plan = Plan(data=4, tensor=2, pipeline=3, context=5, expert=10)
    assert plan.ranks == 4 * 2 * 3 * 5
    assert plan.replicas == 4 * 5  # contexts hold the same weights as well
    assert plan.expert_replicas == 20 // 10


def test_every_precision_of_two_bytes_keeps_a_copy_of_four_and_both_moments():
    """ZeRO's 16 bytes per parameter; 18 with gradients of four bytes."""
    held = {name: p.weights + p.gradients + p.optimizer for name, p in PRECISIONS.items()}
    assert held.pop("bf16-fp32-gradients") == 18
    assert set(held.values()) == {16}
    assert Step(precision="fp32").numbers is PRECISIONS["fp32"]


@pytest.mark.parametrize(
    ("where", "name", "word", "nearest"),
    [
        ("step", "phase", "trainin", "training"),
        ("step", "causal", "hal", "half"),
        ("plan", "schedule", "1f1", "1f1b"),
        ("plan", "recompute", "ful", "full"),
        ("plan", "attention", "flsh", "flash"),
    ],
)
def test_an_unknown_word_is_told_with_the_nearest_one_and_all_that_are_known(
    where, name, word, nearest
):
    """Plans of the command line hold words of any kind, which types do not refuse there."""
    kind = {"plan": Plan, "step": Step}[where]
    sentence = rf"{where}: {name} is '{word}'\. Did you mean '{nearest}'\? Known: .*{nearest}"
    with pytest.raises(ConfigError, match=sentence):
        kind(**{name: word})
    assert getattr(kind(**{name: nearest}), name) == nearest


SINGLE = [
    (Plan(pipeline=stages, schedule=schedule), count)
    for schedule in ("1f1b", "gpipe", "zb-h1")
    for stages, count in itertools.product((1, 2, 3, 5, 8), (1, 2, 3, 7, 8, 16))
]
INTERLEAVED = [
    (Plan(pipeline=stages, virtual_stages=virtual), stages * groups)
    for stages, virtual, groups in itertools.product((2, 3, 4, 8), (2, 3, 5), (1, 2, 3))
]
Key = tuple[str, int, int]


def _waits_for(task: Task, place: int, places: int) -> list[Key]:
    """Return the passes that a pass needs, as (kind, virtual stage, micro-batch)."""
    if task.kind == "forward":
        return [("forward", place - 1, task.micro_batch)] if place else []
    if task.kind == "weights":
        return [("backward", place, task.micro_batch)]
    needed = [("forward", place, task.micro_batch)]
    if place + 1 < places:
        needed.append(("backward", place + 1, task.micro_batch))
    return needed


def _run(plan: Plan, count: int, times: dict[str, int]) -> list[int]:
    """Run all stages, each in its own order; return when each is done."""
    left = [stage_tasks(plan, stage, count) for stage in range(plan.pipeline)]
    done: dict[Key, int] = {}
    clock = [0] * plan.pipeline
    while any(left):
        before = len(done)
        for stage, tasks in enumerate(left):
            while tasks:
                task = tasks[0]
                place = task.chunk * plan.pipeline + stage
                needed = _waits_for(task, place, plan.pipeline * plan.virtual_stages)
                if any(key not in done for key in needed):
                    break
                clock[stage] = max([clock[stage], *(done[key] for key in needed)])
                clock[stage] += times[task.kind]
                done[(task.kind, place, task.micro_batch)] = clock[stage]
                tasks.pop(0)
        assert len(done) > before, "no stage can go on"
    return clock


def _in_flight(tasks: list[Task], last: str) -> int:
    """Return the most passes whose activations a stage holds at once."""
    return max(itertools.accumulate((t.kind == "forward") - (t.kind == last) for t in tasks))


@pytest.mark.parametrize(("plan", "count"), SINGLE + INTERLEAVED)
def test_all_stages_run_every_pass_to_the_end_each_in_its_own_order(plan, count):
    kinds = ("forward", "backward", "weights")[: 3 if plan.schedule == "zb-h1" else 2]
    for stage in range(plan.pipeline):
        tasks = stage_tasks(plan, stage, count)
        every = itertools.product(range(count), kinds, range(plan.virtual_stages))
        assert sorted(tasks, key=str) == sorted((Task(*each) for each in every), key=str)
    _run(plan, count, {"forward": 1, "backward": 2, "weights": 1})


@pytest.mark.parametrize(("stages", "virtual", "count"), [(4, 1, 8), (4, 2, 8), (8, 3, 16)])
def test_interleaving_divides_the_idle_share_by_the_virtual_stages(stages, virtual, count):
    """(p - 1) / (m v): Narayanan et al. 2021, section 2.2.2."""
    plan = Plan(pipeline=stages, virtual_stages=virtual)
    ideal = count * virtual * (1 + 2)
    idle = max(_run(plan, count, {"forward": 1, "backward": 2})) - ideal
    assert idle / ideal == pytest.approx((stages - 1) / (count * virtual))


@pytest.mark.parametrize("times", [(1, 1, 1), (3, 4, 3), (5, 6, 4)])
@pytest.mark.parametrize(("stages", "count"), [(2, 2), (4, 8), (8, 8), (4, 13)])
def test_zb_h1_is_idle_for_f_plus_b_minus_w(stages, count, times):
    """(p - 1)(F + B - W): Qi et al. 2024, table 2; 1F1B has (p - 1)(F + B + W)."""
    f, b, w = times
    split = Plan(pipeline=stages, schedule="zb-h1")
    ends = _run(split, count, {"forward": f, "backward": b, "weights": w})
    assert max(ends) - count * (f + b + w) == (stages - 1) * (f + b - w)
    whole = _run(Plan(pipeline=stages), count, {"forward": f, "backward": b + w})
    assert max(whole) - count * (f + b + w) == (stages - 1) * (f + b + w)


@pytest.mark.parametrize(("stages", "count"), [(4, 8), (4, 2), (1, 4), (8, 8)])
def test_in_flight_are_the_stages_left_and_under_zb_h1_as_many_as_the_first_stage_has(
    stages, count
):
    for stage in range(stages):
        tasks = stage_tasks(Plan(pipeline=stages), stage, count)
        assert _in_flight(tasks, "backward") == min(stages - stage, count)
        tasks = stage_tasks(Plan(pipeline=stages, schedule="zb-h1"), stage, count)
        assert _in_flight(tasks, "weights") == min(stages, count)


@pytest.mark.parametrize(("stages", "virtual", "count"), [(4, 2, 8), (2, 4, 4), (8, 3, 16)])
def test_interleaved_passes_in_flight_are_those_of_megatron(stages, virtual, count):
    """Of the first stage (1 + (p - 1) / (p v)) times those of 1F1B: Korthikanti et al. 2022."""
    plan = Plan(pipeline=stages, virtual_stages=virtual)
    for stage in range(stages):
        found = _in_flight(stage_tasks(plan, stage, count), "backward")
        assert found == min((virtual - 1) * stages + 2 * (stages - stage - 1) + 1, count * virtual)
    first = _in_flight(stage_tasks(plan, 0, count), "backward") / virtual
    assert first == pytest.approx(stages * (1 + (stages - 1) / (stages * virtual)))


def test_layers_are_spread_evenly_the_remainder_over_early_stages():
    assert [list(layers_of_stage(6, s, 4)) for s in range(4)] == [[0, 1], [2, 3], [4], [5]]
    chunks = layers_of_chunks(8, Plan(pipeline=2, virtual_stages=2), 1)
    assert [list(layers) for layers in chunks] == [[2, 3], [6, 7]]


def _with_role(workload: Workload, rank: int) -> dict[str, tuple[int, ...]]:
    """Return the groups that a rank uses, by their ranks."""
    texts, named_N = workload.traces[rank].texts("pg_name")
    return {texts[row]: workload.groups[texts[row]] for row in np.flatnonzero(named_N).tolist()}


def test_each_rank_is_in_one_group_of_each_role():
    plan = Plan(tensor=2, context=2, data=4, pipeline=3, expert=4)
    for role in ROLES:
        member = np.sort(rank_groups(plan, role).reshape(-1))
        if role == "embedding":  # first and last stage only
            assert member.tolist() == [*range(16), *range(32, 48)]
        else:
            assert member.tolist() == list(range(48))


def test_ranks_communicate_in_groups_that_hold_them_and_nobody_else():
    workload = small(GPT, tensor=2, data=2, pipeline=2, micro_batches=2).workload()
    for rank in range(workload.num_ranks):
        groups = _with_role(workload, rank)
        assert len(groups) == 3  # tensor, data, tied embedding
        assert all(rank in members for members in groups.values())


def test_a_file_is_what_encoding_the_trace_of_its_rank_gives():
    """With numbers of one to three digits and of one and two bytes."""
    workload = small(MIXTURE, tensor=2, data=64, expert=4, pipeline=2, batch=64).workload()
    assert len(workload.groups) > 100
    assert workload.num_ranks == 256
    ranks = []
    for rank, data in workload.traces.files():
        ranks.append(rank)
        if rank % 7 == 0 or rank > 250:
            assert data == encode_trace(normalize(workload.traces[rank]))
    assert ranks == list(reversed(range(256)))


def test_a_written_workload_reads_as_it_was(tmp_path):
    workload = small(LLAMA, tensor=2, data=2, pipeline=2).workload()
    write_workload(workload, tmp_path / "w")
    read = read_workload(tmp_path / "w")
    assert read.groups == workload.groups
    for mine, theirs in zip(read.traces, workload.traces, strict=True):
        assert encode_trace(mine) == encode_trace(theirs)
        assert mine.metadata[0].value == "bfloat16"


def test_traces_are_made_once_and_share_their_columns():
    traces = small(LLAMA, tensor=2, data=2).workload().traces
    assert traces[3] is traces[-1]
    assert len(traces) == 4
    assert traces[0].id_N is traces[3].id_N
    assert traces[0].strings != traces[3].strings
    assert traces[1:3] == (traces[1], traces[2])


def test_the_number_format_of_the_trace_holds_for_its_nodes():
    trace = small(LLAMA).stages[0]
    assert set(trace.dtypes()) == {"bfloat16"}
    assert set(small(LLAMA, precision="fp32").stages[0].dtypes()) == {"float32"}
    fast, slow = (
        simulate(
            small(LLAMA, precision=name).workload(), Cluster("small"), compute="h100"
        ).makespan_ns
        for name in ("bf16", "fp32")
    )
    assert fast < slow


def test_a_job_folds_into_one_class_of_ranks_a_stage():
    workload = small(LLAMA, tensor=2, pipeline=2, data=2, micro_batches=2).workload()
    classes = rank_classes(workload)
    assert [found.ranks for found in classes] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    graph = job_graph("job", classes, workload.groups, {})
    assert set(graph.categories["dtype"]) == {"bfloat16"}


@pytest.mark.parametrize(
    ("plan", "layers", "counts"),
    [
        (Plan(pipeline=16, virtual_stages=8, ends_as_layers=True), 126, [7, *[8] * 14, 7]),
        (Plan(pipeline=4, first_layers=5, last_layers=3), 22, [5, 7, 7, 3]),
        (Plan(pipeline=4, virtual_stages=2, last_layers=4), 16, [4, 4, 4, 4]),
    ],
    ids=str,
)
def test_stages_hold_every_layer_once_and_as_many_as_the_plan_says(plan, layers, counts):
    chunks = [layers_of_chunks(layers, plan, stage) for stage in range(plan.pipeline)]
    assert [sum(map(len, held)) for held in chunks] == counts
    in_order = [layer for chunk in zip(*chunks, strict=True) for part in chunk for layer in part]
    assert in_order == list(range(layers))


@pytest.mark.parametrize("precision", ["bf16", "nvfp4"])
def test_experts_spread_over_tensor_ranks_do_the_work_of_experts_that_are_split(precision):
    """The same products in all; each expert rank holds more experts, none of them cut."""
    plan = {"data": 2, "tensor": 2, "expert": 2, "sequence_parallel": True, "batch": 4}
    split = small(MIXTURE, precision=precision, **plan)
    spread = small(MIXTURE, precision=precision, **{**plan, "expert": 4}, expert_tensor=1)
    figures, other = split.summary(), spread.summary()
    assert other["matrix_flops"] == figures["matrix_flops"]
    assert other["memory"][0]["weights"] == figures["memory"][0]["weights"]
    assert "reduce_scatter:tensor" in other["communication"]
    exchanged = "all_to_all:expert"
    assert other["communication"][exchanged] == figures["communication"][exchanged]
    assert simulate(spread.workload(), "small", compute="h100").makespan_ns > 0
    with pytest.raises(ConfigError, match="sequence_parallel"):
        small(MIXTURE, tensor=2, expert=2, expert_tensor=1)


def test_products_of_layers_run_in_the_format_of_the_precision_and_others_do_not():
    (trace,) = small(GPT, precision="mxfp8").stages
    formats = dict(zip(trace.names(), trace.dtypes(), strict=True))
    assert formats["mm.qkv.0.F0"] == formats["mm.down.0.B0.dw"] == "mxfp8"
    assert formats["mm.logits.F0"] == formats["attention.0.F0"] == "bfloat16"


@pytest.mark.parametrize("phase", ["training", "inference"])
def test_tokens_are_refused_where_a_step_makes_none(phase):
    with pytest.raises(ConfigError, match="makes none"):
        Step(phase=phase, tokens=4)
    assert Step(phase="decode", tokens=4).tokens == 4
