"""The samplers in C and in torch draw the same graphs, in torch in each of its ways."""

from dataclasses import replace
from functools import partial
from operator import eq
from typing import Any

import pytest
import torch
from operator_counts import request_of
from small_models import (
    SIZES,
    OddKinds,
    content,
    request,
    sampling_as_on_a_gpu,
    sampling_in_torch,
    sampling_side_by_side,
    small_dags,
    small_model,
)

from layerdag.dag.neighbors import edge_type_sets, neighbor_kinds
from layerdag.dag.shared_statistics import allowed_codes
from layerdag.models.base import JointCodeMasks, SampleResult
from layerdag.models.config import ConditioningConfig, HeadsConfig
from layerdag.models.fast import sampling_kernels
from layerdag.models.fast.allowed_codes import AllowedCodes
from layerdag.models.fast.compiled_sampler import CompiledSampler
from layerdag.models.fast.edge_type_sets import EdgeTypeSets
from layerdag.models.fast.model import FastLayerDAG
from layerdag.models.fast.neighbor_kinds import NeighborKinds
from layerdag.models.fast.sampling_inputs import SamplingTask
from layerdag.models.fast.sampling_output import OutputBuffer
from layerdag.models.fast.tensor_sampler import TensorSampler
from layerdag.sampling.settings import GenerationSettings
from layerdag.training.checkpoint import SAMPLED, checkpoint_path, load_checkpoint

DAGS = small_dags(8)


def with_lists(model: FastLayerDAG) -> FastLayerDAG:
    """Return the model with what training graphs have as neighbors and types of edges."""
    parents, children = neighbor_kinds(DAGS, SIZES.attributes[0], 1)
    statistics = replace(model.statistics, parents=parents, children=children)
    model.neighbors = NeighborKinds(statistics)
    return model


def all_ways(
    model: FastLayerDAG, count: int, patch: pytest.MonkeyPatch, **changes: object
) -> SampleResult:
    """Return what the sampler in C draws, which must be what it draws in every other way.

    As on a GPU there is room for fewer graphs than are asked for, unless a check is.
    """
    runs = []

    def watched(sampler: Any) -> SampleResult:
        runs.append(type(sampler))
        return plain[type(sampler)](sampler)

    plain = {each: each.run for each in (CompiledSampler, TensorSampler)}
    for each in plain:
        patch.setattr(each, "run", watched)
    compiled = model.sample(request(count, **changes))
    for way in (
        sampling_side_by_side,
        sampling_in_torch,
        partial(sampling_as_on_a_gpu, rows=3),
    ):
        with pytest.MonkeyPatch.context() as inside:
            way(inside.setattr)
            assert content(model.sample(request(count, **changes))) == content(compiled)
    assert runs == [CompiledSampler, *[TensorSampler] * 3]
    return compiled


VARIANTS: dict[str, dict[str, object]] = {
    "out-degrees": {},
    "no out-degrees": {"predict_out_degree": False},
    "one long block": {"block": 64},
    "blocks of two": {"block": 2},
    "all parents": {"heads": HeadsConfig(chosen_parents="all")},
    "no features of parents": {"heads": HeadsConfig(parent_features="none")},
    "independent attributes": {"heads": HeadsConfig(attributes="independent")},
    "remaining sizes": {"conditioning": ConditioningConfig(remaining_sizes="encoded")},
}


@pytest.mark.parametrize(
    ("variant", "best_of"),
    [*((variant, 3) for variant in VARIANTS), ("out-degrees", 1), ("one long block", 1)],
)
def test_the_samplers_draw_the_same_graphs(variant, best_of, monkeypatch):
    model = small_model(DAGS, **VARIANTS[variant])
    sizes = {"nodes_B": torch.full((4,), 20.0), "layers_B": torch.tensor([torch.nan] * 4)}
    asked = sizes | {"best_of": best_of, "max_nodes": 12}
    drawn = all_ways(with_lists(model), 4, monkeypatch, **asked)
    assert max(dag.num_nodes for dag in drawn.dags) > 8


def test_they_keep_to_the_lists_of_edge_types_and_of_attributes(monkeypatch):
    model = with_lists(small_model(DAGS))
    statistics = replace(
        model.statistics,
        edge_type_sets=edge_type_sets(DAGS, SIZES),
        allowed_codes=allowed_codes(DAGS, SIZES),
    )
    model.type_sets, model.allowed = (
        EdgeTypeSets(SIZES, statistics.edge_type_sets),
        AllowedCodes(SIZES, statistics),
    )
    generator = torch.Generator().manual_seed(1)
    possible = JointCodeMasks(
        torch.rand((12, 12), generator=generator) < 0.9,
        torch.rand((4, 12), generator=generator) < 0.8,
    )
    asked = {"best_of": 2, "possible": possible, "temperature": 0.7}
    asked["max_nodes"] = 14
    all_ways(model, 4, monkeypatch, **asked)


@pytest.mark.parametrize(("attention", "messages"), [("none", "mean"), ("window", "none")])
def test_they_leave_out_what_the_encoder_does_not_read(attention, messages, monkeypatch):
    model = small_model(DAGS)
    for block in model.encoder.encoder_blocks:
        block.attends = attention == "window"
        block.reads_parents = messages == "mean"
    all_ways(model, 4, monkeypatch)


def test_they_replace_particles_that_fail_a_check(monkeypatch):
    model = with_lists(small_model(DAGS))
    branched = []
    branch = OutputBuffer.branch
    monkeypatch.setattr(OutputBuffer, "branch", lambda *a: (branched.append(1), branch(*a))[1])
    all_ways(model, 5, monkeypatch, best_of=4, check=OddKinds())
    assert branched


def test_memory_for_more_positions_comes_when_they_do(monkeypatch):
    model = with_lists(small_model(DAGS))
    whole = content(model.sample(request(40, best_of=2, max_nodes=150)))
    monkeypatch.setattr(sampling_kernels, "RESERVED_NUMBERS", 1)
    grown = content(model.sample(request(40, best_of=2, max_nodes=150)))
    assert grown == whole
    assert max(len(graph[4]) for graph, _ in whole) > 64


@pytest.mark.parametrize(("guidance", "best_of"), [(0.0, 1), (1.5, 3)])
def test_they_draw_the_same_graphs_under_guidance(guidance, best_of, monkeypatch):
    model = with_lists(small_model(DAGS, block=2))
    all_ways(model, 4, monkeypatch, guidance=guidance, best_of=best_of, max_nodes=12)


@pytest.mark.parametrize(("listed", "options"), [(False, 1), (True, 8)])
def test_there_are_several_candidates_for_a_node_where_neighbors_are_listed(listed, options):
    model = small_model(DAGS)
    modules, asked = (with_lists(model) if listed else model), request(2, best_of=2)
    with torch.inference_mode():
        assert TensorSampler(modules, asked).task.options == options
        assert SamplingTask.of(modules, asked).options == options
        assert SamplingTask.of(modules, replace(asked, best_of=1)).options == 1


def test_programs_of_the_shipped_checkpoint_are_the_same(monkeypatch):
    """Sums in another order may round a probability otherwise: a decision in a million differs."""
    checkpoint = load_checkpoint(checkpoint_path(SAMPLED))
    asked = replace(request_of(checkpoint, GenerationSettings(num=8)), max_nodes=60, check=None)
    model = checkpoint.model
    compiled = content(model.sample(asked))
    sampling_in_torch(monkeypatch.setattr)
    same = sum(map(eq, compiled, content(model.sample(asked))))
    assert same >= 7
