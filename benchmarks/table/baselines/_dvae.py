"""A variational autoencoder of DAGs (D-VAE, Zhang et al., NeurIPS 2019, arXiv 1904.11088).

The encoder follows the edges, once along and once against them: the state of a node is that of a
gated recurrent unit that reads its kind and starts from a gated sum over its parents' states; the
states of an end, to which all sinks lead, give mean and spread of the graph's code. The decoder
adds nodes in layer order, each with its kind and then its edges, from the nearest earlier node on;
the node's state is renewed after each edge.

Otherwise than there, every sum of the decoder starts from the code, not the first node's alone; the
next kind follows from the mean and number of the states so far, too, not from the last one alone;
and codes are drawn from a normal distribution with the mean and spread of the training codes.

Shape letters: B graphs, D width, M nodes of all graphs, Z code.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset
from layerdag.runtime.rng import derive_seed, numpy_generator

from ._base import Orders, graphs_within, most_nodes, parameters_of, train
from ._dvae_decoder import Decoder
from ._gated import Flat, GatedUnit

KL_WEIGHT = 0.005
"""As in D-VAE's code."""


class Encoder(nn.Module):
    """Mean and logarithm of the variance of graphs' codes."""

    def __init__(self, kinds: int, width: int, code: int) -> None:
        super().__init__()
        self.end = kinds
        self.along, self.against = GatedUnit(kinds + 1, width), GatedUnit(kinds + 1, width)
        self.readout = nn.Linear(2 * width, 2 * code)

    def forward(self, flat: Flat) -> tuple[Tensor, Tensor]:
        """Return both, of shape (B, code)."""
        sides = [self._end(self.along, flat), self._end(self.against, flat.flipped())]
        mean_BZ, logvar_BZ = self.readout(torch.cat(sides, dim=1)).chunk(2, dim=1)
        return mean_BZ, logvar_BZ

    def _end(self, unit: GatedUnit, flat: Flat) -> Tensor:
        """Return the state of an end that all sinks lead to, for each graph."""
        nodes = len(flat.kind_M)
        message_MD = unit.message(unit.states(flat, torch.zeros(nodes, unit.width)))
        is_sink_M = torch.bincount(flat.edge_index_2E[0], minlength=nodes) == 0
        sum_BD = torch.zeros(flat.graphs, unit.width)
        sum_BD = sum_BD.index_add(0, flat.graph_M[is_sink_M], message_MD[is_sink_M])
        state_BD: Tensor = unit(torch.full((flat.graphs,), self.end), sum_BD)
        return state_BD


class FittedDvae:
    """A trained decoder with the distribution of training codes."""

    def __init__(
        self, decoder: Decoder, moments: tuple[Tensor, Tensor], length: int, sizes: tuple[int, int]
    ) -> None:
        self.decoder, self.moments, self.length = decoder, moments, length
        self.parameters, self.steps = sizes

    def sample(self, num: int, seed: int) -> list[DAG | None]:
        """Return graphs; None where training ran away, so that there is nothing to draw from."""
        if not all(bool(weight.isfinite().all()) for weight in self.decoder.parameters()):
            return [None] * num
        generator = torch.Generator().manual_seed(derive_seed(seed, "dvae"))
        mean_Z, spread_Z = self.moments
        code_BZ = mean_Z + spread_Z * torch.randn(num, len(mean_Z), generator=generator)
        return self.decoder.draw(code_BZ, self.length, generator)


def fit_dvae(
    data: GraphDataset,
    seconds: float,
    seed: int,
    *,
    width: int = 96,
    code: int = 32,
    learning_rate: float = 2e-3,
    batch: int = 16,
    **settings: Any,
) -> FittedDvae:
    """Train encoder and decoder together."""
    torch.manual_seed(derive_seed(seed, "dvae"))
    kinds, dags = data.schema.sizes().attributes[0], data.graphs["train"]
    encoder, decoder = Encoder(kinds, width, code), Decoder(kinds, width, code)
    orders = Orders(dags, numpy_generator(seed, "dvae"))
    count = graphs_within(data, batch)

    def loss() -> Tensor:
        drawn = orders.draw(count)
        flat = Flat.of(drawn)
        mean_BZ, logvar_BZ = encoder(flat)
        code_BZ = mean_BZ + (logvar_BZ / 2).exp() * torch.randn_like(mean_BZ)
        divergence = (mean_BZ**2 + logvar_BZ.exp() - logvar_BZ - 1).sum() / 2
        return decoder.loss(drawn, flat, code_BZ) + KL_WEIGHT * divergence / len(flat.kind_M)

    both = nn.ModuleList([encoder, decoder])
    steps = train(both, loss, seconds, learning_rate)
    moments = _moments(encoder, orders.draw(200))
    return FittedDvae(decoder, moments, 2 * most_nodes(data), (parameters_of(both), steps))


@torch.inference_mode()
def _moments(encoder: Encoder, dags: Sequence[DAG]) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of codes of graphs."""
    mean_BZ, logvar_BZ = encoder(Flat.of(dags))
    variance_Z = mean_BZ.var(0, correction=0) + logvar_BZ.exp().mean(0)
    return mean_BZ.mean(0), variance_Z.sqrt()
