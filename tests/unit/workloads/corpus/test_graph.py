"""The graph of a point stands for its whole job."""

import itertools

import numpy as np
import pytest
from small_spaces import small_space

from layerdag.codec import EDGE_TYPES, OTHER, unfold_sampled
from layerdag.codec.blocks import REPEATS, is_rolled, unrolled
from layerdag.simulator import simulate
from layerdag.workloads.corpus import CorpusPoint, draw_points, point_graph
from layerdag.workloads.corpus._graph import has_its_layers, labelled

POINTS = [*itertools.islice(draw_points(small_space(), 0), 12)]


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.job.plan.ranks)
def test_the_unrolled_graph_takes_as_long_as_the_job(point: CorpusPoint) -> None:
    machine = small_space().machine
    graph = labelled(point_graph(point), point, machine)
    ranks = point.job.plan.ranks
    cluster = machine.cluster(ranks)
    again = simulate(
        unfold_sampled(unrolled(graph, EDGE_TYPES), ranks).workload,
        cluster.simulated,
        compute=cluster.compute(0),
    )
    assert again.makespan_ns / 1e9 == pytest.approx(graph.conditions["label"], rel=1e-3)


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.job.plan.ranks)
def test_blocks_are_the_layers_of_a_stage(point: CorpusPoint) -> None:
    graph = point_graph(point)
    assert is_rolled(graph, EDGE_TYPES)
    assert has_its_layers(graph, point)
    assert graph.conditions[REPEATS] == point.job.shape.layers / point.job.plan.pipeline
    whole = unrolled(graph, EDGE_TYPES)
    attention = whole.categories["op"].count("attention.F")
    assert attention == point.job.shape.layers * point.job.step.micro_batches


def test_operators_are_public_words_and_sums_are_kept() -> None:
    point = next(p for p in POINTS if p.job.plan.ranks > 1)
    graph = point_graph(point)
    words = set(graph.categories["op"])
    assert OTHER not in words
    assert {"mm.qkv.F", "mm.qkv.B.dx", "adam", "loss.F"} <= words
    assert words & {"c10d::all_reduce", "c10d::send"}
    assert "duration" not in graph.numbers
    ranks = point.job.plan.ranks // point.job.plan.pipeline
    flops = float(np.nansum(unrolled(graph, EDGE_TYPES).numbers["flops"])) * ranks
    assert flops == pytest.approx(point.job.summary()["flops"], rel=1e-12)


def test_the_graph_is_as_large_for_more_layers() -> None:
    sizes = set()
    for layers in (4, 12, 40):
        space = small_space(
            models={"llama3": "llama3-8b"}, layers=[layers], hidden=[1024], sequence=[256],
            micro_batch_size=[1], tensor=[2], pipeline=[1], rounds=[1], world_size=[8], zero=[1],
            sequence_parallel=[True], recompute=["none"],
        )  # fmt: skip
        point = next(draw_points(space, 0))
        graph = point_graph(point)
        assert has_its_layers(graph, point)
        sizes.add(graph.num_nodes)
    assert len(sizes) == 1
    assert max(sizes) < 80
