from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from costed_jobs import EDGES, ROWS, costed_job, costed_jobs

from layerdag.datasets.schema import GraphSchema, NumericAttribute
from layerdag.datasets.schema.costs import COST_NAMES, Cost
from layerdag.sampling.numbers import CostAssigner

SCHEMA = GraphSchema.fit("trace", costed_jobs([8, 16, 32] * 20), num_bins=1)
ONE_BIN = {name: NumericAttribute(name, "1", ((1.0, 1e2, 1e4, 1e6, 1e8),)) for name in COST_NAMES}
ASSIGNER = CostAssigner(SCHEMA.costs, ONE_BIN)


def assigned(seed: int, operators: list[str] | None = None) -> Mapping[str, np.ndarray]:
    """Return the costs of a job of which every number may be any."""
    graph = costed_job(8)
    if operators:
        graph = replace(graph, categories={**graph.categories, "op": operators})
    codes = {name: (~np.isnan(graph.numbers[name])).astype(int) for name in COST_NAMES}
    return ASSIGNER.assigned(graph, codes, np.random.default_rng(seed))


def test_sizes_change_along_dependencies_as_they_do_in_training() -> None:
    operators = costed_job(8).categories["op"]
    unseen = 0
    for seed in range(30):
        found = assigned(seed)
        sizes = np.where(np.isnan(found["flops"]), found["comm_bytes"], found["flops"])
        for parent, child in EDGES:
            known = SCHEMA.costs.step_shares[operators[parent], operators[child]]
            unseen += sizes[child] / sizes[parent] not in known
        assert found["bytes"][1] == 8 * found["flops"][1]
        assert found["bytes"][4] == 2 * found["comm_bytes"][4]
    # Drawn apart, half of the 120 would be.
    assert unseen <= 5


def test_all_sizes_of_training_occur() -> None:
    widths = {int(assigned(seed)["flops"][1]) // ROWS for seed in range(30)}
    assert widths == {8, 16, 32}


def test_the_seed_alone_decides() -> None:
    first, again = assigned(3), assigned(3)
    assert all(np.array_equal(first[name], again[name], equal_nan=True) for name in COST_NAMES)


def test_operators_without_costs_get_whole_elements() -> None:
    found = assigned(0, ["aten::new"] * 5)
    known = found["bytes"][np.isfinite(found["bytes"])]
    assert not (known % 4).any()
    assert np.isnan(found["comm_bytes"][:4]).all()


def test_nodes_get_no_cost_that_they_may_not_have() -> None:
    graph = costed_job(8)
    codes = {name: (~np.isnan(graph.numbers[name])).astype(int) for name in COST_NAMES}
    usual = {int(assigned(seed)["flops"][1]) for seed in range(10)}
    asked: set[int] = set()

    def allows(node: int, costs: Sequence[Cost]) -> Sequence[bool]:
        asked.add(node)
        return [node != 1 or cost[0] not in usual for cost in costs]

    for seed in range(10):
        found = ASSIGNER.assigned(graph, codes, np.random.default_rng(seed), allows=allows)
        assert int(found["flops"][1]) not in usual
        assert int(found["flops"][2]) in usual
    assert asked == set(range(graph.num_nodes))


def test_kept_nodes_keep_their_costs_wherever_they_are() -> None:
    graph = costed_job(8)
    codes = {name: (~np.isnan(graph.numbers[name])).astype(int) for name in COST_NAMES}
    numbers = {**graph.numbers, "flops": graph.numbers["flops"] + 1}
    odd = replace(graph, numbers=numbers)
    found = ASSIGNER.assigned(odd, codes, np.random.default_rng(0), [0, 2])
    assert found["flops"][2] == numbers["flops"][2] != found["flops"][1]
    assert found["flops"][1] != numbers["flops"][1]
