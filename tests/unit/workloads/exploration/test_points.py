"""Every plan that splits the model over the cluster, once."""

import pytest
from small_studies import cluster, study

from layerdag.workloads.exploration import read_study
from layerdag.workloads.exploration._points import points_of


def test_replicas_take_the_ranks_that_are_left() -> None:
    found = points_of(read_study(study()))
    plans = [point.job.plan for point in found.possible]
    assert {plan.ranks for plan in plans} == {4}
    degrees = {(plan.data, plan.tensor, plan.pipeline, plan.zero) for plan in plans}
    assert degrees == {
        (4, 1, 1, 0), (4, 1, 1, 3), (2, 2, 1, 0), (2, 2, 1, 3), (2, 1, 2, 0), (2, 1, 2, 3),
        (1, 2, 2, 0), (1, 2, 2, 3),
    }  # fmt: skip
    assert len(plans) == 2 * len(degrees)  # on each cluster


def test_what_cannot_be_split_is_counted_by_its_reason() -> None:
    found = points_of(read_study(study()))
    # tensor 3 with one and with two stages, two ZeRO stages, on two clusters
    assert found.left_out == {
        "tensor x pipeline x context = 3 do not divide 4 ranks.": 4,
        "tensor x pipeline x context = 6 do not divide 4 ranks.": 4,
    }
    wide = study(plans={"pipeline": [1, 4]}, step={"batch": 2, "sequence": 32})
    assert list(points_of(read_study(wide)).left_out) == [
        "tiny: a number of 2 sequences cannot be split evenly over 4 data ranks x micro-batches; "
        "choose numbers that divide."
    ]


def test_values_that_stand_twice_are_tried_once() -> None:
    twice = points_of(read_study(study(plans={"tensor": [2, 2, 2]}))).possible
    assert len(twice) == 2


def test_every_model_meets_every_cluster() -> None:
    found = points_of(read_study(study(model=["gpt2", "gpt2-xl"], plans={})))
    assert [(point.job.shape.name, point.cluster) for point in found.possible] == [
        ("gpt2", "near"), ("gpt2-xl", "near"), ("gpt2", "far"), ("gpt2-xl", "far")
    ]  # fmt: skip


@pytest.mark.parametrize("ranks", [1, 2, 6, 8])
def test_degrees_always_multiply_to_the_ranks_of_the_cluster(ranks: int) -> None:
    ring = [{"topology": "Ring", "ranks": ranks, "gb_per_s": 1.0}]
    plans = {"tensor": [1, 2, 4], "pipeline": [1, 2], "context": [1, 2]}
    step = {"batch": 48, "sequence": 32}
    clusters = {"one": cluster(network=ring)}
    found = points_of(read_study(study(plans=plans, step=step, clusters=clusters)))
    assert found.possible
    for point in found.possible:
        plan = point.job.plan
        assert plan.data * plan.tensor * plan.pipeline * plan.context == ranks
    assert len(found.possible) + sum(found.left_out.values()) == 3 * 2 * 2


def test_a_cluster_of_one_rank_has_one_plan() -> None:
    alone = cluster(network=[{"topology": "Ring", "ranks": 1, "gb_per_s": 1.0}])
    found = points_of(read_study(study(clusters={"alone": alone})))
    assert {point.job.plan.ranks for point in found.possible} == {1}
    assert len(found.possible) == 2  # ZeRO 0 and 3
    # tensor x pipeline of 2, 3, 2 x 2 and 3 x 2, each with two ZeRO stages
    assert sum(found.left_out.values()) == 2 + 2 + 2 + 2 + 2


def test_reasons_come_with_the_most_frequent_first() -> None:
    plans = {"tensor": [3, 8], "pipeline": [1, 3], "zero": [0, 1]}
    counts = list(points_of(read_study(study(plans=plans))).left_out.values())
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) == 2 * 2 * 2 * 2


def test_the_step_is_that_of_the_study_with_the_micro_batches_of_the_plan() -> None:
    step = {"batch": 16, "sequence": 64, "precision": "fp32", "causal": "half"}
    found = points_of(read_study(study(step=step, plans={"micro_batches": [1, 4]})))
    near = [point.job.step for point in found.possible if point.cluster == "near"]
    assert [step.micro_batches for step in near] == [1, 4]
    assert {(s.batch, s.sequence, s.precision, s.causal) for s in near} == {
        (16, 64, "fp32", "half")
    }


def test_images_have_as_many_tokens_as_they_have() -> None:
    found = points_of(read_study(study(model="vit-b16", plans={})))
    for point in found.possible:
        assert point.job.shape.image is not None
        assert point.job.step.sequence == point.job.shape.image.tokens != 32
