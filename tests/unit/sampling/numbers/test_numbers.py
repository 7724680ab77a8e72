from dataclasses import replace

import numpy as np
import pytest
from costed_jobs import costed_job, costed_jobs

from layerdag.datasets.schema import GraphSchema
from layerdag.datasets.schema.costs import COST_NAMES
from layerdag.sampling import GeneratedGraph
from layerdag.sampling.numbers import GivenNumbers, NumberAssigner

JOBS = costed_jobs([8, 16, 32] * 84)
SCHEMA = GraphSchema.fit("trace", JOBS, num_bins=4)
BEFORE = replace(SCHEMA, costs=replace(SCHEMA.costs, durations=None))


def test_real_jobs_of_shared_sizes_keep_their_costs() -> None:
    for job in JOBS[:3]:
        found = NumberAssigner(SCHEMA).numbers(SCHEMA.encode(job), 0)
        for name in COST_NAMES:
            np.testing.assert_array_equal(found[name], job.numbers[name])


def test_a_schema_of_before_keeps_proportions_of_durations_and_gives_them_a_usual_sum() -> None:
    job = replace(JOBS[1], conditions={**JOBS[1].conditions, "label": JOBS[0].conditions["label"]})
    dag = SCHEMA.encode(job)
    drawn = SCHEMA.decode(dag).numbers["duration"]
    found = NumberAssigner(BEFORE).numbers(dag, 0)["duration"]
    assert drawn.sum() / 5 < found.sum() < drawn.sum() / 1.5
    least = SCHEMA.attributes[-1].bins[0][0]
    assert (found >= least).all()
    free = found > least
    assert found[free] / drawn[free] == pytest.approx((found / drawn)[free][0], rel=0.01)


def test_without_a_label_or_a_relation_durations_are_those_drawn() -> None:
    dag = SCHEMA.encode(costed_job(8))
    drawn = SCHEMA.decode(dag).numbers["duration"]
    found = NumberAssigner(BEFORE).numbers(dag, 0)
    np.testing.assert_allclose(found["duration"], drawn, atol=0.5)
    untimed = replace(BEFORE, costs=replace(BEFORE.costs, time=None))
    assert "duration" not in NumberAssigner(untimed).numbers(dag, 0)


def test_durations_go_with_the_costs_that_nodes_were_given() -> None:
    dag = SCHEMA.encode(costed_job(8, ns_per_flop=50.0))
    found = NumberAssigner(SCHEMA).numbers(dag, 0)
    assert found["duration"][:4] == pytest.approx(found["flops"][:4] * 1.2, rel=0.25)
    again = NumberAssigner(SCHEMA).numbers(dag, 0)
    np.testing.assert_array_equal(found["duration"], again["duration"])


def test_given_durations_stay() -> None:
    job = JOBS[0]
    given = {name: value[:2] for name, value in job.numbers.items()}
    found = NumberAssigner(SCHEMA).numbers(SCHEMA.encode(job), 0, GivenNumbers.of_first(given))
    np.testing.assert_array_equal(found["duration"][:2], given["duration"])


def test_a_graph_with_numbers_has_them_exactly_and_in_its_codes() -> None:
    dag = SCHEMA.encode(JOBS[0])
    plain = GeneratedGraph("s", 0, dag, False, SCHEMA)
    numbers = {"flops": JOBS[2].numbers["flops"]}
    changed = plain.with_numbers(numbers)
    np.testing.assert_array_equal(changed.graph.numbers["flops"], numbers["flops"])
    np.testing.assert_array_equal(changed.graph.numbers["bytes"], plain.graph.numbers["bytes"])
    decoded = SCHEMA.decode(changed.dag).numbers["flops"]
    np.testing.assert_allclose(decoded, numbers["flops"], rtol=1e-3)
    assert changed.dag.conditions == dag.conditions
