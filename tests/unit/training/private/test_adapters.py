from pathlib import Path

import pytest
import torch
from private_jobs import PrivateJobs, nats_of
from warm_starts import jobs, spec_of

from layerdag.errors import ConfigError
from layerdag.models import build_model
from layerdag.sampling import checkpoint_schema
from layerdag.training import load_checkpoint
from layerdag.training.private import Adapters


def _fresh(mine: PrivateJobs):
    return load_checkpoint(mine.base.path).model


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_nothing_changes_before_the_first_step_nor_when_merged(mine: PrivateJobs, rank: int):
    model, batch = _fresh(mine), mine.data.batch("train")
    before, names = nats_of(model, batch), set(model.state_dict())
    adapters = Adapters(model, rank, seed=0)
    assert nats_of(model, batch) == pytest.approx(before)
    merged = adapters.merge()
    assert set(merged) == names
    assert all(torch.equal(merged[n], t) for n, t in mine.base.model.state_dict().items())


def test_merged_weights_are_those_that_were_tuned(mine: PrivateJobs):
    model, batch = _fresh(mine), mine.data.batch("train")
    adapters = Adapters(model, 1, seed=0)
    adapters.set(adapters.flat() + 0.05)
    tuned = nats_of(model, batch)
    plain = build_model(mine.base.spec).eval()
    plain.load_state_dict(dict(adapters.merge()))
    assert nats_of(plain, batch) == pytest.approx(tuned, rel=1e-5)
    assert tuned != pytest.approx(nats_of(mine.base.model, batch))


def test_only_the_counted_parameters_are_tuned(mine: PrivateJobs):
    model = _fresh(mine)
    adapters = Adapters(model, 1, seed=0)
    free = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert free == adapters.count == adapters.flat().numel()
    assert adapters.count > Adapters(_fresh(mine), 0, seed=0).count


def test_the_first_matrices_depend_on_the_public_seed_alone(mine: PrivateJobs):
    def tuned(seed: int) -> dict[str, torch.Tensor]:
        adapters = Adapters(_fresh(mine), 1, seed=seed)
        adapters.set(torch.ones(adapters.count, dtype=torch.float64))
        return dict(adapters.merge())

    name = "heads.kind_readout.project.weight"
    assert torch.equal(tuned(3)[name], tuned(3)[name])
    assert not torch.equal(tuned(3)[name], tuned(4)[name])


def test_a_change_is_as_large_as_its_scale(mine: PrivateJobs):
    adapters = Adapters(_fresh(mine), 1, seed=0)
    adapters.set(torch.full((adapters.count,), 2.0, dtype=torch.float64))
    before, after = mine.base.model.state_dict(), adapters.merge()
    name = "heads.kind_readout.project.bias"
    share_K = torch.tensor(mine.base.spec.statistics.attributes[0]) + 1.0
    share_K = share_K / share_K.sum()
    wanted_K = 2 * (share_K * (1 - share_K)).sqrt()
    assert torch.allclose(after[name] - before[name], wanted_K, atol=1e-5)


def test_another_model_is_refused(mine: PrivateJobs, tmp_path: Path):
    schema = checkpoint_schema(mine.base)
    model = build_model(spec_of(schema, jobs(4), "reference"))
    with pytest.raises(ConfigError, match="start from a checkpoint of model=fast"):
        Adapters(model, 1, seed=0)
