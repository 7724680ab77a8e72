"""Numbers that follow from others: real jobs keep theirs, and get them back."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from layerdag.codec.folding import EDGE_TYPES
from layerdag.datasets.corpus import run_graph
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.sampling.computed_numbers import Computed, ComputedNumbers
from layerdag.sampling.generated import as_workload
from layerdag.schema.costs import COST_NAMES, CostTable
from layerdag.traces.chakra.corpus import embedded_corpus, read_index, read_runs
from layerdag.training.checkpoint import checkpoint_path
from layerdag.validation.whole_program import judge_program

RUNS = (
    "0683_gpt_ddp_ws4",
    "0743_gpt_fsdp2_ws2",
    "0851_gpt_tp_ws2",
    "0920_gpt_pp_ws4",
    "0149_gpt_single_ws1",
)


@cache
def jobs() -> dict[str, AttributedGraph]:
    records = [record for record in read_index(embedded_corpus()) if record.run in RUNS]
    return {run.record.run: run_graph(run) for run in read_runs(embedded_corpus(), records)}


@cache
def steps() -> dict[tuple[str, str], dict[float, float]]:
    schema = json.loads((checkpoint_path("pretrained") / "schema.json").read_text())
    return dict(CostTable.from_dict(schema["costs"]).step_shares)


def computed(job: AttributedGraph) -> Computed:
    return ComputedNumbers(job, steps()).computed()


def broken(job: AttributedGraph) -> set[str]:
    verdicts = judge_program(as_workload(job).workload)
    return {name for name, verdict in verdicts.items() if not verdict.holds}


@pytest.mark.parametrize("run", RUNS)
def test_real_jobs_keep_their_numbers(run):
    job = jobs()[run]
    found = computed(job)
    assert (found.edges, found.changed) == ((), {})
    for name in COST_NAMES:
        np.testing.assert_array_equal(found.numbers[name], job.numbers[name])


FUNCTIONS = {
    "0683_gpt_ddp_ws4": ("aten::add", "aten::_softmax_backward_data", "aten::native_layer_norm",
        "aten::threshold_backward", "c10d::all_reduce", "aten::_foreach_add_"),
    "0743_gpt_fsdp2_ws2": ("fsdp::chunk_cat", "c10d::reduce_scatter", "c10d::all_gather",
        "aten::copy_", "aten::native_layer_norm_backward", "aten::_foreach_addcdiv_"),
    "0851_gpt_tp_ws2": ("aten::mean", "aten::rsqrt", "c10d::all_reduce"),
}  # fmt: skip


@pytest.mark.parametrize("run", FUNCTIONS)
def test_numbers_that_are_functions_of_others_come_back(run):
    job = jobs()[run]
    for op in FUNCTIONS[run]:
        node = job.categories["op"].index(op)
        numbers = {name: values.copy() for name, values in job.numbers.items()}
        for name in COST_NAMES:
            numbers[name][node] *= 2
        found = computed(replace(job, numbers=numbers))
        assert sum(found.changed.values()) == 1, op
        for name in COST_NAMES:
            np.testing.assert_array_equal(found.numbers[name], job.numbers[name], op)


@pytest.mark.parametrize("run", RUNS)
def test_jobs_with_numbers_that_contradict_others_keep_all_rules_again(run, rng):
    job = jobs()[run]
    wrong_N = rng.random(job.num_nodes) < 0.05
    numbers = {
        name: np.where(wrong_N & (values > 64), 2 * values, values)
        for name, values in job.numbers.items()
    }
    spoiled = replace(job, numbers=numbers)
    assert broken(spoiled)
    assert broken(replace(job, numbers={**numbers, **computed(spoiled).numbers})) == set()


def test_a_gradient_that_nothing_uses_is_used_as_the_others_are():
    job = jobs()["0743_gpt_fsdp2_ws2"]
    sums = [node for node, op in enumerate(job.categories["op"]) if op == "aten::sum"]
    cut_E = np.isin(job.edge_index_2E[0], sums)
    cut = replace(
        job, edge_index_2E=job.edge_index_2E[:, ~cut_E], edge_type_E=job.edge_type_E[~cut_E]
    )
    found = computed(cut)
    taking = {job.categories["op"][target] for _, target in found.edges}
    assert taking == {"fsdp::chunk_cat"}
    assert found.changed["gradients used"] == len({source for source, _ in found.edges})


def test_operators_that_are_not_pytorchs_keep_what_was_drawn():
    job = jobs()["0683_gpt_ddp_ws4"]
    foreign = replace(job, categories={**job.categories, "op": ["op"] * job.num_nodes})
    numbers = {**job.numbers, "flops": job.numbers["flops"] * 3}
    found = computed(replace(foreign, numbers=numbers))
    assert found.changed == {}
    np.testing.assert_array_equal(found.numbers["flops"], numbers["flops"])


def test_a_gradient_that_waits_for_the_optimizer_is_not_given_to_it_twice():
    words = ["aten::mm", "aten::threshold_backward", *["aten::sum"] * 3, "aten::_foreach_add_"]
    edges = ((0, 1), (1, 2), (1, 3), (1, 4), (2, 5), (3, 5), (4, 5))
    kinds = np.array([0, 0, 0, 0, 0, 0, 1])  # the last gradient only runs before the kernel
    job = AttributedGraph(
        "job", {"op": words, "dtype": ["float32"] * 6},
        {name: np.full(6, 64.0) for name in COST_NAMES},
        np.array(edges).T, kinds, edge_type_names=EDGE_TYPES,
    )  # fmt: skip
    assert ComputedNumbers(job, {}).computed().edges == ()
    loose = replace(job, edge_index_2E=job.edge_index_2E[:, :-1], edge_type_E=kinds[:-1])
    assert ComputedNumbers(loose, {}).computed().edges == ((4, 5),)
