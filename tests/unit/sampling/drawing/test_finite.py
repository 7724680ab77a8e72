"""Errors of sampling: those of weights that overflowed are told as such, others pass."""

from pathlib import Path

import pytest
import torch
from tiny_checkpoints import chain_checkpoint

import layerdag.sampling._sample as sample_module
from layerdag.datasets.schema import GraphSchema
from layerdag.errors import CheckpointError, ConfigError
from layerdag.models import DAGModel, SampleRequest
from layerdag.sampling import pretrained_checkpoint
from layerdag.sampling.drawing._finite import finite_sample

REQUEST = SampleRequest(
    numeric_BC=torch.full((1, 1), torch.nan),
    category_BM=torch.zeros((1, 0), dtype=torch.int64),
    seeds=(0,),
)


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[DAGModel, GraphSchema]:
    """Return a model whose sampling fails, with the schema of its data."""
    loaded = chain_checkpoint(tmp_path)

    def fails(request: SampleRequest) -> None:
        raise ValueError("probabilities are not finite")

    monkeypatch.setattr(loaded.model, "sample", fails)
    return loaded.model, GraphSchema.from_dict(loaded.schema)


def test_a_failure_of_sound_weights_comes_out_as_it_is(broken) -> None:
    with pytest.raises(ValueError, match="probabilities are not finite"):
        finite_sample(*broken, REQUEST)


def test_a_failure_of_weights_that_overflow_names_the_checkpoint(broken) -> None:
    model, _ = broken
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(3e38)
    with pytest.raises(CheckpointError, match="no probability is finite; use an earlier one"):
        finite_sample(*broken, REQUEST)


def test_a_package_without_its_checkpoint_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (pretrained_checkpoint() / "meta.json").is_file()
    monkeypatch.setattr(sample_module, "files", lambda name: tmp_path)
    with pytest.raises(ConfigError, match="has no pretrained checkpoint; name a checkpoint's"):
        pretrained_checkpoint()
