"""Which graphs a shadow model learns from, and what survives a stop."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layerdag.api.auditing.shadows import (
    Pool,
    ShadowSettings,
    _training,
    recipe_of,
    shadow_models,
)
from layerdag.errors import UsageError


def test_every_graph_is_left_out_by_half_and_a_stopped_audit_goes_on(
    memorizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, pool = memorizer.checkpoint, Pool.of(memorizer.data, 0)
    recipe = recipe_of(checkpoint, memorizer.data, None)
    settings = ShadowSettings(count=4, steps=1, folder=tmp_path / "kept")
    whole = _training._trained

    def stopped(*arguments: object) -> object:
        if arguments[4] == 2:
            raise KeyboardInterrupt
        return whole(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(_training, "_trained", stopped)
        with pytest.raises(KeyboardInterrupt):
            shadow_models(checkpoint, pool, recipe, settings, lambda _: None)
    files = sorted((tmp_path / "kept").glob("*.npz"))
    assert len(files) == 2
    written = [file.stat().st_mtime_ns for file in files]
    models, member_SG, planned = shadow_models(checkpoint, pool, recipe, settings, lambda _: None)
    assert (len(models), planned) == (4, 20)
    assert (member_SG.sum(axis=0) == 2).all()
    assert [file.stat().st_mtime_ns for file in files] == written
    assert len({tuple(model.loss_K.tolist()) for model in models}) == 4
    assert not list((tmp_path / "kept").glob("*.run"))


def test_a_half_has_its_own_graphs_and_what_every_model_has(memorizer: Any) -> None:
    data = replace(memorizer.data, further=frozenset({"g3"}))
    pool = Pool.of(data, 0)
    assert len(pool.graphs) == 23  # the further one is no member
    assert pool.scored_members == 11
    member_G = np.arange(23) % 2 == 0
    half = pool.half(member_G)
    assert len(half.graphs["train"]) == 1 + 12
    assert half.graphs["train"][0] is data.graphs["train"][3]
    assert {id(dag) for dag in half.graphs["val"]} < {id(dag) for dag in half.graphs["train"]}


def test_graphs_of_one_program_are_drawn_together(memorizer: Any) -> None:
    data = memorizer.data
    twice = {**data.graphs, "test": (*data.graphs["test"][:-1], data.graphs["train"][0])}
    pool = Pool.of(replace(data, graphs=twice), 0)
    assert pool.run_G[0] == pool.run_G[-1]
    assert len(set(pool.run_G.tolist())) == 23


def test_too_few_graphs_are_refused(memorizer: Any) -> None:
    few = replace(memorizer.data, graphs={**memorizer.data.graphs, "val": (), "test": ()})
    with pytest.raises(UsageError, match="at least 8 distinct training and held-out graphs"):
        Pool.of(few, 0)
