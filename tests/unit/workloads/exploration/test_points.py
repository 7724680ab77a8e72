"""Every plan that splits the model over the cluster, once."""

from small_studies import study

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
