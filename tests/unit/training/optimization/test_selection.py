import math

import pytest
import torch

from layerdag.models import DAGModel, ModelSpec, build_model
from layerdag.training.optimization._selection import best_weights, parameter_groups


@pytest.fixture
def model(spec: ModelSpec) -> DAGModel:
    return build_model(spec)


def weights_of(model: DAGModel, value: float) -> dict[str, torch.Tensor]:
    return {name: torch.full_like(p, value) for name, p in model.named_parameters()}


def test_disjoint_objectives_are_judged_apart(model: DAGModel):
    tracks = parameter_groups(model)
    assert [track.name for track in tracks] == ["layer_size", "node", "edge"]


def test_shared_parameters_are_judged_together(model: DAGModel, monkeypatch: pytest.MonkeyPatch):
    everything = {("node", "edge"): list(model.parameters())}
    monkeypatch.setattr(model, "objective_parameters", lambda: everything)
    (track,) = parameter_groups(model)
    assert track.name == "total"
    assert track.objectives == ("node", "edge")
    assert len(track.parameters) == len(list(model.parameters()))


def test_best_weights_come_from_each_track_s_own_best_step(model: DAGModel):
    size, node, edge = parameter_groups(model)
    for track, scores in ((size, (1.0, 2.0)), (node, (2.0, 1.0)), (edge, (2.0, 3.0))):
        for step, score in enumerate(scores):
            track.update(score, step, weights_of(model, float(step)), patience=0)
    best = best_weights(model, [size, node, edge])
    assert {float(best[name].mean()) for name in size.parameters} == {0.0}
    assert {float(best[name].mean()) for name in node.parameters} == {1.0}


def test_the_first_validation_is_kept_even_if_it_is_infinite(model: DAGModel):
    track = parameter_groups(model)[0]
    assert track.update(math.inf, 1, weights_of(model, 0.0), patience=0)
    assert not track.update(math.inf, 2, weights_of(model, 1.0), patience=0)


def test_patience_stops_and_freezes_one_track(model: DAGModel):
    size, node, _ = parameter_groups(model)
    for step, score in enumerate((1.0, 1.5, math.inf)):
        size.update(score, step, weights_of(model, 0.0), patience=2)
    assert size.stopped
    assert not any(p.requires_grad for p in size.parameters.values())
    assert all(p.requires_grad for p in node.parameters.values())
