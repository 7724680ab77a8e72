"""An encoder of one's own: registered, trained, sampled, saved by name and refused when unknown."""

from pathlib import Path

import pytest
import torch
from small_models import SIZES, collated, request, small_dags, tokens_of
from torch import Tensor, nn

import layerdag as ld
from layerdag.dag.statistics import GraphStatistics
from layerdag.errors import CheckpointError, ConfigError, UsageError
from layerdag.models.fast.config import EncoderConfig, FastConfig
from layerdag.models.fast.encoder_base import (
    ENCODERS,
    Encoder,
    NewestTokens,
    ParentList,
    TokenGraphs,
    register_encoder,
)
from layerdag.models.fast.model import FastLayerDAG


class Recurrent(Encoder):
    """A GRU over the tokens of a graph."""

    def __init__(self, width: int, depth: int, config: EncoderConfig) -> None:
        super().__init__(width, depth, config)
        self.cell = nn.GRU(width, width, depth, batch_first=True)

    def full(self, x_TD: Tensor, tokens: TokenGraphs) -> Tensor:
        return tokens.flat(self.cell(tokens.padded(x_TD))[0])

    def start(self, like_RD: Tensor) -> Tensor:
        return like_RD.new_zeros(like_RD.shape[0], self.depth, self.width)

    def step(self, x_RD: Tensor, newest: NewestTokens, memory: Tensor) -> tuple[Tensor, Tensor]:
        found, memory = self.cell(x_RD[:, None], memory.transpose(0, 1).contiguous())
        return found[:, 0], memory.transpose(0, 1)


@pytest.fixture
def recurrent():
    register_encoder("test-gru")(Recurrent)
    yield "test-gru"
    ENCODERS.unregister("test-gru")


def test_step_after_step_gives_the_states_of_all_tokens_at_once():
    layout, tokens = tokens_of(collated(small_dags(1)), 4)
    torch.manual_seed(0)
    encoder = Recurrent(8, 2, EncoderConfig()).eval()
    x_TD = torch.randn(layout.num_tokens, 8)
    none = torch.zeros(0, dtype=torch.int64)
    memory, found = encoder.start(x_TD[:1]), []
    with torch.no_grad():
        for position in range(layout.num_tokens):
            newest = NewestTokens(position, ParentList(none, none, torch.zeros(1).long()))
            state, memory = encoder.step(x_TD[position : position + 1], newest, memory)
            found.append(state)
        torch.testing.assert_close(torch.cat(found), encoder.full(x_TD, tokens))


def test_padded_and_flat_are_inverse_and_the_means_are_those_of_parents():
    layout, tokens = tokens_of(collated(small_dags(3)), 4)
    x_TD = torch.randn(layout.num_tokens, 5)
    assert torch.equal(tokens.flat(tokens.padded(x_TD)), x_TD)
    mean_TD = tokens.parents_mean(x_TD)
    child = int(tokens.child_E[-1])
    parents = tokens.parent_E[tokens.child_E == child]
    torch.testing.assert_close(mean_TD[child], x_TD[parents].mean(0))


def test_memory_of_tensors_tuples_and_dicts_is_selected_by_rows():
    encoder = Recurrent(8, 1, EncoderConfig())
    rows, a = torch.tensor([2, 0]), torch.arange(3.0)
    kept = encoder.select({"a": a, "b": (a, [2 * a])}, rows)
    assert kept["a"].tolist() == [2, 0]
    assert kept["b"][1][0].tolist() == [4, 0]


def test_the_model_samples_valid_graphs_whatever_the_seeds_beside_them(recurrent):
    dags = small_dags()
    config = FastConfig(width=32, depth=1, encoder=EncoderConfig(kind=recurrent))
    torch.manual_seed(0)
    model = FastLayerDAG(SIZES, GraphStatistics.measure(dags, SIZES), config).eval()
    found = model.sample(request(3, best_of=2)).dags
    assert len(found) == 3
    for dag in found:
        dag.check()


def test_it_is_trained_sampled_and_saved_by_name(recurrent, tmp_path: Path):
    data = ld.load_dataset("latent_preferential", num_train=12, num_val=3, num_test=3)
    settings = ld.TrainSettings(max_steps=2)
    checkpoint = ld.train(
        data,
        width=32,
        depth=1,
        encoder={"kind": recurrent},
        settings=settings,
        out=tmp_path / "run",
    )
    assert len(ld.sample(checkpoint, num=2, max_nodes=40)) == 2
    best = tmp_path / "run/best"
    assert ld.load_checkpoint(best).spec.config.encoder.kind == recurrent
    ENCODERS.unregister(recurrent)
    with pytest.raises(CheckpointError, match=r"no encoder 'test-gru'.*Register it"):
        ld.load_checkpoint(best)


def test_names_that_nothing_has_and_things_that_are_none_are_refused():
    with pytest.raises(ConfigError, match=r"There is no encoder 'windo'\. Did you mean 'window'"):
        ENCODERS.get("windo")
    with pytest.raises(UsageError, match="encoder 'window' is one of layerdag itself"):
        register_encoder("window")(Recurrent)
    with pytest.raises(UsageError, match="must be a subclass of"):
        ENCODERS.register("os", Path)
