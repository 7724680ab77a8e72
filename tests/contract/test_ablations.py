"""Every ablation is a YAML file that composes, builds a model, and trains it one step."""

from pathlib import Path

import pytest
import torch

from layerdag.cli.compose import compose, to_plain_dict
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.latent_preferential import load_latent_preferential
from layerdag.datasets.settings import LatentPreferentialConfig
from layerdag.errors import ConfigError
from layerdag.models.base import SampleRequest
from layerdag.models.fast.model import FastLayerDAG
from layerdag.models.spec import build_model, model_config
from layerdag.training.model_spec import spec_for

pytestmark = pytest.mark.usefixtures("few_redraws")

FOLDER = Path(__file__).resolve().parents[2] / "configs" / "experiment" / "ablation"
ABLATIONS = sorted(path.stem for path in FOLDER.glob("*.yaml"))
SMALL = ["model.width=32", "model.depth=1"]


@pytest.fixture(scope="module")
def data() -> GraphDataset:
    return load_latent_preferential(LatentPreferentialConfig(num_train=6, num_val=2, num_test=2))


def model_of(name: str, data: GraphDataset) -> FastLayerDAG:
    """Return the small model of an ablation."""
    config = compose("train", [f"experiment=ablation/{name}", *SMALL])
    if config.conditions is not None:
        data = data.conditioned_on(list(config.conditions))
    settings = to_plain_dict(config.model)
    model = build_model(spec_for(data, settings.pop("name"), settings))
    assert isinstance(model, FastLayerDAG)
    return model


def test_there_are_ablations():
    assert len(ABLATIONS) > 10


@pytest.mark.parametrize("name", ABLATIONS)
def test_an_ablation_trains_and_samples(name, data):
    model = model_of(name, data).train()
    conditions = 0 if name == "no_conditions" else 1
    batch = data.batch("train") if conditions else data.conditioned_on([]).batch("train")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    terms = model.losses(batch, torch.Generator().manual_seed(0))
    loss = torch.stack([term.total for term in terms.values()]).sum()
    loss.backward()
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)
    optimizer.step()
    none = torch.zeros(2, batch.category_BM.shape[1], dtype=torch.int64)
    request = SampleRequest(torch.zeros(2, batch.numeric_BC.shape[1]), none, (0, 1), max_nodes=12)
    for dag in model.eval().sample(request).dags:
        dag.check()


@pytest.fixture(scope="module")
def whole(data) -> FastLayerDAG:
    return model_of("full", data)


@pytest.mark.parametrize("name", [name for name in ABLATIONS if name != "full"])
def test_an_ablation_changes_the_model(name, data, whole):
    without = model_of(name, data)
    same = (whole.config, whole.sizes) == (without.config, without.sizes)
    # Of flow graphs the numbers of children are predicted as it is.
    assert same == (name == "out_degree")


def test_attention_and_messages_each_change_the_likelihood(data):
    batch, seen = data.batch("val"), set()
    for name in ("full", "no_attention", "no_messages"):
        terms = model_of(name, data).eval().losses(batch, torch.Generator())
        seen.add(round(float(terms["node"].total.detach()), 3))
    assert len(seen) == 3


def test_a_word_that_is_no_choice_is_refused():
    with pytest.raises(ConfigError, match=r"'model\.encoder\.attention' must be 'window'"):
        model_config("fast", {"encoder": {"attention": "windw"}})
    with pytest.raises(ConfigError, match=r"Did you mean 'model\.encoder\.block'"):
        model_config("fast", {"encoder": {"blok": 3}})
