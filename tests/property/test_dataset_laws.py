import json
from collections.abc import Set
from dataclasses import asdict, replace
from itertools import combinations

import numpy as np
import torch
from hypothesis import assume, example, given, strategies as st
from laws import tried
from random_graphs import random_dag
from random_jobs import random_job
from simulator_traces import small_cluster

from layerdag.codec.folding import (
    EDGE_TYPES,
    NONE,
    OPEN_VOCABULARIES,
    VOCABULARIES,
    job_graph,
    rank_classes,
)
from layerdag.codec.placement import TYPES, fitting_ranks
from layerdag.codec.unfolding import Unfolded, unfold, unfold_sampled
from layerdag.dag.dag import layers_of
from layerdag.dag.statistics import GraphStatistics
from layerdag.datasets.splits import content_key
from layerdag.evaluation.validity import check_structure
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.runtime.json_shape import from_json
from layerdag.schema.attributes import NumericAttribute
from layerdag.schema.schema import GraphSchema
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.config import (
    Dimension,
    MemoryConfig,
    MemoryKind,
    NetworkConfig,
    RunOptions,
    Topology,
)
from layerdag.simulator.run import PowerLawNoise, Variation, simulate
from layerdag.traces.analysis import match_communication
from layerdag.traces.trace import NodeType, Trace, Workload, dependency_edges
from layerdag.validation.checking import check_workload
from layerdag.validation.whole_program import WHOLE_PROGRAM_RULES

SEEDS = st.integers(0, 2**32 - 1)
VALUES = st.one_of(
    st.integers(-50, 5000).map(float),
    st.floats(-1e12, 1e12, allow_subnormal=False).map(lambda v: 0.0 if abs(v) < 1e-9 else v),
    st.sampled_from([float("nan"), 4096.0, 65536.0]),
)


# Warnings about what a job computes, which hold of real jobs too; unfolding does not change it.
OF_THE_WORK = {
    "compute-off-cpu", "costed-compute", "broadcast-is-replayed", "ranks-communicate",
    *WHOLE_PROGRAM_RULES,
}  # fmt: skip
WORDS = {
    "op": ("aten::mm", "c10d::send", "c10d::recv", "c10d::barrier", "<other>"),
    "type": TYPES,
    "collective": VOCABULARIES["collective"],
    "group": (NONE, "world", "stage", "contiguous1", "contiguous2", "strided3", "<other>"),
    "device": ("host", "cpu", "cuda", NONE),
    "dtype": ("float32", NONE),
}


def any_words(seed: int, stages: int) -> AttributedGraph:
    """Return a graph in whose schema every attribute has all kinds of words."""
    size = 64
    words = WORDS | dict.fromkeys(("stage", "peer"), (*map(str, range(stages)), "all", NONE))
    rng = np.random.default_rng(seed)
    sizes = np.where(rng.random(size) < 0.2, np.nan, rng.integers(0, 10**9, size).astype(float))
    return AttributedGraph(
        name="words",
        categories={
            name: rng.permutation(np.resize(known, size)).tolist() for name, known in words.items()
        },
        numbers=dict.fromkeys(("flops", "bytes", "comm_bytes", "duration"), sizes),
        edge_index_2E=np.stack([np.arange(size - 1), np.arange(1, size)]),
        edge_type_E=np.arange(size - 1) % 2,
        edge_type_names=EDGE_TYPES,
        conditions={"world_size": str(stages)},
        open_vocabularies=OPEN_VOCABULARIES,
        vocabularies=VOCABULARIES,
    )


def folded(unfolded: Unfolded) -> AttributedGraph:
    workload = unfolded.workload
    return job_graph("job", rank_classes(workload), workload.groups, {})


@given(values=st.lists(VALUES, min_size=1, max_size=200), num_bins=st.integers(1, 20))
@tried(150)
def test_a_training_value_comes_back_from_its_bin(values, num_bins):
    value_N = np.array(values)
    attribute = NumericAttribute.fit("x", "1", value_N, num_bins)
    again = from_json(NumericAttribute, json.loads(json.dumps(asdict(attribute))))
    again.check()
    assert again == attribute
    codes, positions = attribute.encode(value_N)
    assert ((codes == 0) == np.isnan(value_N)).all()
    assert ((positions >= 0) & (positions < 1)).all()
    decoded = attribute.decode(codes, positions)
    for code, value, back in zip(codes.tolist(), values, decoded.tolist(), strict=True):
        if code:
            low, high = attribute.bins[code - 1][0], attribute.bins[code - 1][-1]
            width = high - low
            assert low - 1e-9 * abs(low) <= back <= high + 1e-9 * abs(high)
            # Bins are rounded to three digits, positions are single precision.
            assert abs(back - value) <= 0.01 * abs(value) + 1e-4 * width


@given(seed=SEEDS, stages=st.integers(1, 4), ranks=st.integers(2, 3))
@tried(30)
def test_an_unfolded_job_matches_runs_to_its_end_and_folds_back(seed, stages, ranks):
    job = random_job(seed, stages)
    unfolded = unfold(job, stages * ranks)
    assert not match_communication(unfolded.workload).mismatches
    result = simulate(unfolded.workload, Cluster("small").with_ranks(stages * ranks))
    assert (result.finish_ns >= 0).all()
    back = folded(unfolded)
    again = folded(unfold(back, stages * ranks))
    assert content_key(again) == content_key(back)
    for name in ("type", "op", "collective", "dtype"):
        assert sorted(back.categories[name]) == sorted(job.categories[name])
    for name, values in job.numbers.items():
        present = np.sort(values[~np.isnan(values)])
        found = np.sort(back.numbers[name][~np.isnan(back.numbers[name])])
        assert np.array_equal(present, found)


ANY_CODES = given(
    seed=SEEDS,
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    stages=st.integers(1, 4),
    ranks=st.integers(1, 9),
)
# Remote memory whose accesses take no longer than their bytes need.
MEMORY = MemoryConfig(kind=MemoryKind.PER_NPU, latency_ns=0, bandwidth_bytes_per_ns=1000.0)
# Two ranks of one stage entered two independent collectives in different order.
DEADLOCK_OF_ONE_STAGE = example(seed=2, shape=[2, 3, 4, 6, 6, 6], stages=1, ranks=2)


def any_job(seed: int, shape: list[int], stages: int) -> AttributedGraph:
    """Return the job that codes drawn without any model decode to."""
    schema = GraphSchema.fit("trace", [any_words(seed, stages), random_job(seed, stages)])
    sizes = schema.sizes()
    rng = np.random.default_rng(seed)
    dag = random_dag(
        rng, shape, list(sizes.attributes), extra_edges=0.8, num_edge_types=sizes.edge_types
    )
    dag = replace(dag, u_NA=torch.rand(dag.x_NA.shape, generator=torch.manual_seed(seed)))
    assert check_structure([dag], GraphStatistics.measure([dag], sizes)).validity == 1
    return schema.decode(dag)


def any_timed_workload(seed: int, shape: list[int], stages: int, ranks: int) -> Workload:
    """Return what `any_job` unfolds to, of which some compute node has a duration.

    A job that computes without any duration or cost is refused, and codes may decode to one.
    """
    job = any_job(seed, shape, stages)
    workload = unfold_sampled(job, fitting_ranks(job, ranks)).workload
    durations = [trace.duration_us_N[trace.type_N == NodeType.COMP] for trace in workload.traces]
    duration_us_M = np.concatenate(durations)
    assume(duration_us_M.size == 0 or duration_us_M.any())
    return workload


def unordered_pairs(trace: Trace, prompt: Set[int]) -> list[tuple[int, int]]:
    """Return the ids of two nodes that hold the communication slot of which the second, in the
    order of issue, does not wait for the first, and that are not both prompt sends.

    Args:
        trace: Of one rank.
        prompt: Tags of the messages that every receiver takes from the start.
    """
    source_E, target_E = dependency_edges(trace)[0]
    waits_NN = np.eye(trace.num_nodes, dtype=bool)
    for target in range(trace.num_nodes):
        waits_NN[target] |= waits_NN[source_E[target_E == target]].any(axis=0)
    holds_N = ~np.isin(trace.type_N, (NodeType.COMP, NodeType.COMM_RECV))
    row_H = np.flatnonzero(holds_N).tolist()
    prompt_N = np.isin(trace.integers("comm_tag")[0], [*prompt])
    prompt_N &= trace.type_N == NodeType.COMM_SEND
    return [
        (int(trace.id_N[first]), int(trace.id_N[second]))
        for first, second in combinations(row_H, 2)
        if not waits_NN[second, first] and not (prompt_N[first] and prompt_N[second])
    ]


def received_from_the_start(workload: Workload) -> set[int]:
    """Return the tags of the messages whose receives depend on nothing, on any rank."""
    prompt, late = set(), set()
    for trace in workload.traces:
        waiting = set(dependency_edges(trace)[0][1].tolist())
        tag_N = trace.integers("comm_tag")[0]
        for row in np.flatnonzero(trace.type_N == NodeType.COMM_RECV).tolist():
            (late if row in waiting else prompt).add(int(tag_N[row]))
    return prompt - late


@ANY_CODES
@DEADLOCK_OF_ONE_STAGE
@tried(30)
def test_whatever_codes_a_model_emits_the_traces_keep_every_rule_and_run(
    seed, shape, stages, ranks
):
    workload = any_timed_workload(seed, shape, stages, ranks)
    broken = {finding.rule.id for finding in check_workload(workload)}
    assert broken <= OF_THE_WORK
    system, network = small_cluster(workload.num_ranks)
    result = simulate(workload, Cluster(network, system, memory=MEMORY))
    assert (result.finish_ns >= 0).all()


@ANY_CODES
@DEADLOCK_OF_ONE_STAGE
@tried(50)
def test_every_rank_issues_what_holds_its_communication_slot_in_the_order_of_the_graph(
    seed, shape, stages, ranks
):
    job = any_job(seed, shape, stages)
    workload = unfold_sampled(job, fitting_ranks(job, ranks)).workload
    prompt = received_from_the_start(workload)
    for trace in workload.traces:
        assert (np.diff(trace.id_N.astype(np.int64)) > 0).all()
        source_E, target_E = dependency_edges(trace)[0]
        assert (source_E < target_E).all()
        assert not unordered_pairs(trace, prompt)


@ANY_CODES
@DEADLOCK_OF_ONE_STAGE
@tried(25)
def test_no_job_deadlocks_however_long_its_nodes_last_on_each_rank(seed, shape, stages, ranks):
    workload = any_timed_workload(seed, shape, stages, ranks)
    system, _ = small_cluster(workload.num_ranks)
    ring = NetworkConfig((Dimension(Topology.RING, workload.num_ranks, 0.5, 1000.0),))
    uneven = Variation(
        time_factor={rank: float(1 + 10 * (rank % 3)) for rank in range(workload.num_ranks)},
        noise=PowerLawNoise(exponent=1.2, scale=2.0, seed=seed),
    )
    for rendezvous in (False, True):
        options = RunOptions(rendezvous=rendezvous)
        result = simulate(
            workload, Cluster(ring, system, memory=MEMORY, options=options), variation=uneven
        )
        assert (result.finish_ns >= 0).all()


@ANY_CODES
@tried(25)
def test_a_sampled_job_in_which_any_operator_has_a_cost_runs_under_the_roofline(
    seed, shape, stages, ranks
):
    job = any_job(seed, shape, stages)
    workload = unfold_sampled(job, fitting_ranks(job, ranks)).workload
    computes = [trace.type_N == NodeType.COMP for trace in workload.traces]
    costs = [
        trace.integers("num_ops")[0][computes_N]
        for trace, computes_N in zip(workload.traces, computes, strict=True)
    ]
    assume(any((cost_N > 0).any() for cost_N in costs))
    assert all((cost_N > 0).all() for cost_N in costs)
    for trace, computes_N in zip(workload.traces, computes, strict=True):
        assert (trace.integers("tensor_size")[0][computes_N] > 0).all()
    system, network = small_cluster(workload.num_ranks)
    for rate in (0.01, 16.0):
        roof = replace(
            system, roofline_enabled=True, peak_perf_tflops=rate * 1e3, local_mem_bw_gb=rate * 1e3
        )
        result = simulate(workload, Cluster(network, roof, memory=MEMORY))
        assert (result.finish_ns >= 0).all()


@given(seed=SEEDS, stages=st.integers(1, 3))
@tried(30)
def test_a_schema_survives_json_and_encodes_alike(seed, stages):
    graphs = [random_job(seed + i, stages) for i in range(3)]
    schema = GraphSchema.fit("trace", graphs)
    again = GraphSchema.from_dict(json.loads(json.dumps(schema.to_dict(), allow_nan=False)))
    for graph in graphs:
        first, second = schema.encode(graph), again.encode(graph)
        assert torch.equal(first.x_NA, second.x_NA)
        assert torch.equal(first.u_NA, second.u_NA)
        decoded = again.decode(second)
        assert content_key(AttributedGraph(**{**vars(decoded), "numbers": {}})) == content_key(
            AttributedGraph(**{**vars(graph), "numbers": {}})
        )


@given(shapes=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=6), max_size=5), seed=SEEDS)
@tried(30)
def test_layers_of_many_graphs_are_the_layers_of_each(shapes, seed):
    rng = np.random.default_rng(seed)
    dags = [random_dag(rng, shape, [2], extra_edges=0.5) for shape in shapes]
    assert all(
        torch.equal(found, dag.layers()) for found, dag in zip(layers_of(dags), dags, strict=True)
    )
