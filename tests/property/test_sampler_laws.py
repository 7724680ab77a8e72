"""The samplers in C and in torch draw the same, with encoders of users, too."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st
from laws import tried
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

from layerdag.dag.neighbors import neighbor_kinds
from layerdag.models.base import SampleResult
from layerdag.models.config import ConditioningConfig, HeadsConfig
from layerdag.models.fast.model import FastLayerDAG
from layerdag.models.fast.neighbor_kinds import NeighborKinds
from layerdag.models.fast.tensor_sampler import TensorSampler

WAYS = (
    sampling_side_by_side,
    sampling_in_torch,
    sampling_as_on_a_gpu,
)
MODELS: tuple[dict[str, Any], ...] = (
    {},
    {"predict_out_degree": False},
    {"heads": HeadsConfig(chosen_parents="all")},
    {"heads": HeadsConfig(parent_features="none", attributes="independent")},
    {"conditioning": ConditioningConfig(remaining_sizes="encoded")},
)


def model_of(options: dict[str, Any], block: int, seed: int, listed: bool) -> FastLayerDAG:
    dags = small_dags(6, seed=seed)
    model = small_model(dags, block=block, **options)
    if listed:
        parents, children = neighbor_kinds(dags, SIZES.attributes[0], 1)
        statistics = replace(model.statistics, parents=parents, children=children)
        model.neighbors = NeighborKinds(statistics)
    return model


models = st.builds(
    model_of,
    st.sampled_from(MODELS),
    block=st.sampled_from([2, 3, 4, 8, 64]),
    seed=st.integers(0, 50),
    listed=st.booleans(),
)
requests = st.fixed_dictionaries(
    {
        "max_nodes": st.sampled_from([1, 5, 17, 40]),
        "max_layers": st.sampled_from([1, 4, 10_000]),
        "guidance": st.sampled_from([1.0, 1.0, 0.0, 1.5, 3.0]),
        "temperature": st.sampled_from([1.0, 0.5, 2.0]),
        "best_of": st.sampled_from([1, 1, 2, 5]),
        "check": st.sampled_from([False, False, True]),
    }
)


@tried(16)
@given(
    models,
    requests,
    st.integers(1, 4),
    st.integers(-(2**62), 2**64 - 2**40),
    st.sampled_from([1, 4, 100]),
    st.sampled_from(WAYS),
)
def test_samplers_draw_the_same_graphs_in_every_way(model, asked, count, seed, rows, way):
    seeds = tuple(seed + number * 7919 for number in range(count))
    has_check = asked.pop("check")

    def drawn() -> SampleResult:
        check = OddKinds() if has_check else None
        plain = {"seeds": seeds, "check": check}
        return model.sample(request(count, **asked, **plain))

    expected = content(drawn())
    with pytest.MonkeyPatch.context() as patch:
        way(patch.setattr)
        patch.setattr(TensorSampler, "_rows_in_memory", lambda sampler: rows)
        assert content(drawn()) == expected
