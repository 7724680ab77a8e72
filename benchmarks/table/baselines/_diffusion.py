"""One-shot discrete diffusion of kinds and edges, with an encoder that knows their direction.

All nodes and edges of a graph are noised at once toward their marginals and denoised together, as
in DiGress (Vignac et al., ICLR 2023); the encoder passes messages along and against the noisy
edges, as Directo (arXiv 2506.16404) does in its way. Nodes keep their place in layer order, and
edges go from earlier to later places, so that no sample has a cycle: the "one-shot" variant of the
LayerDAG paper.

Shape letters: B graphs, D width, K categories, N nodes.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset
from layerdag.runtime.rng import derive_seed, numpy_generator

from ._base import Orders, dag_of, graphs_within, most_nodes, padded, parameters_of, train

SAMPLED_CELLS = 1_000_000
"""Pairs of nodes that are drawn side by side at most; each takes some kilobytes."""


class Denoiser(nn.Module):
    """Logits of the clean kinds and edges from noisy ones.

    Args:
        kinds: Number of kinds.
        length: Nodes of a graph at most.
        width: Of a node's state.
        rounds: Of message passing.
    """

    def __init__(self, kinds: int, length: int, width: int, rounds: int) -> None:
        super().__init__()
        self.kind, self.place = nn.Embedding(kinds, width), nn.Embedding(length, width)
        self.globals = nn.Linear(2, width)
        self.mix = nn.ModuleList(nn.Linear(6 * width, width) for _ in range(rounds))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(rounds))
        self.kind_readout = nn.Linear(width, kinds)
        self.child, self.parent = nn.Linear(width, width), nn.Linear(width, width)
        self.edge = nn.Embedding(2, width)
        self.edge_readout = nn.Sequential(
            nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1)
        )

    def forward(
        self, kind_BN: Tensor, edge_BNN: Tensor, mask_BN: Tensor, time_B: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return logits of kinds (B, N, K) and of edges (B, N, N)."""
        count_B = mask_BN.sum(1)
        place_N = torch.arange(kind_BN.shape[1])
        context_BD = self.globals(torch.stack([time_B, count_B / 50], dim=1))
        state_BND = self.kind(kind_BN) + self.place(place_N) + context_BD[:, None]
        along_BNN = edge_BNN / edge_BNN.sum(2, keepdim=True).clamp(min=1)
        against_BNN = edge_BNN.mT / edge_BNN.mT.sum(2, keepdim=True).clamp(min=1)
        for mix, norm in zip(self.mix, self.norms, strict=True):
            whole_BND = (state_BND * mask_BN[..., None]).sum(1, keepdim=True) / count_B[
                :, None, None
            ]
            parts = [
                state_BND,
                along_BNN @ state_BND,
                against_BNN @ state_BND,
                edge_BNN @ state_BND / 4,  # sums tell numbers of parents of a kind apart
                edge_BNN.mT @ state_BND / 4,
                whole_BND.expand_as(state_BND),
            ]
            state_BND = state_BND + F.gelu(mix(norm_all(norm, parts)))
        pairs = self.child(state_BND)[:, :, None] + self.parent(state_BND)[:, None]
        pairs = pairs + self.edge(edge_BNN.long())
        return self.kind_readout(state_BND), self.edge_readout(pairs)[..., 0]


def norm_all(norm: nn.Module, parts: list[Tensor]) -> Tensor:
    """Return the parts, each normalized, side by side."""
    return torch.cat([norm(part) for part in parts], dim=-1)


class Diffusion:
    """Noise toward marginals on a cosine schedule, and its reversal.

    Args:
        model: Denoiser.
        kind_K: Marginal of the kinds.
        density: Share of pairs with an edge.
        sizes: Numbers of nodes of training graphs.
        steps: Of the chain.
    """

    def __init__(
        self, model: Denoiser, kind_K: Tensor, density: float, sizes: np.ndarray, steps: int
    ) -> None:
        self.model, self.steps, self.sizes = model, steps, sizes
        self.marginals = (kind_K, torch.tensor([1 - density, density]))

    def keep(self, step_B: Tensor) -> Tensor:
        """Return the share of the signal that is left after each step."""
        angle_B = (step_B / self.steps + 0.008) / 1.008 * math.pi / 2
        found: Tensor = angle_B.cos() ** 2
        return found

    def loss(self, dags: list[DAG]) -> Tensor:
        """Return the cross entropy of clean kinds and edges at random steps."""
        kind_BN, edge_BNN, mask_BN = padded(dags, max(dag.num_nodes for dag in dags))
        step_B = torch.randint(1, self.steps + 1, (len(dags),))
        keep_B = self.keep(step_B.float())
        noisy_BN = _noised(kind_BN, keep_B[:, None], self.marginals[0])
        pairs_BNN = _pairs(mask_BN)
        noisy_BNN = _noised(edge_BNN.long(), keep_B[:, None, None], self.marginals[1])
        noisy_BNN = noisy_BNN * pairs_BNN
        kinds, edges = self.model(noisy_BN, noisy_BNN.float(), mask_BN, step_B / self.steps)
        loss = F.cross_entropy(kinds[mask_BN], kind_BN[mask_BN])
        return loss + 5 * F.binary_cross_entropy_with_logits(edges[pairs_BNN], edge_BNN[pairs_BNN])

    @torch.inference_mode()
    def draw(self, num: int, generator: torch.Generator) -> list[DAG | None]:
        """Return sampled graphs."""
        index_B = torch.randint(len(self.sizes), (num,), generator=generator)
        size_B = torch.from_numpy(self.sizes)[index_B]
        mask_BN = torch.arange(int(size_B.max())) < size_B[:, None]
        pairs_BNN = _pairs(mask_BN)
        kind_BN = _drawn(self.marginals[0].expand(*mask_BN.shape, -1), generator)
        edge_BNN = _drawn(self.marginals[1].expand(*pairs_BNN.shape, -1), generator) * pairs_BNN
        for step in range(self.steps, 0, -1):
            time_B = torch.full((num,), step / self.steps)
            kinds, edges = self.model(kind_BN, edge_BNN.float(), mask_BN, time_B)
            edges_K = torch.stack([torch.zeros_like(edges), edges], dim=-1)
            kind_BN = self._earlier(kind_BN, kinds.softmax(-1), self.marginals[0], step, generator)
            edge_BNN = self._earlier(
                edge_BNN, edges_K.softmax(-1), self.marginals[1], step, generator
            )
            edge_BNN = edge_BNN * pairs_BNN
        return [dag_of(kind_BN[i, :n], edge_BNN[i, :n, :n]) for i, n in enumerate(size_B.tolist())]

    def _earlier(
        self,
        code: Tensor,
        clean_K: Tensor,
        marginal_K: Tensor,
        step: int,
        generator: torch.Generator,
    ) -> Tensor:
        """Draw codes of the step before, given the codes and the probabilities of clean ones."""
        keep = self.keep(torch.tensor([step - 1.0, float(step)]))
        one = (keep[1] / keep[0]).clamp(max=1)
        # q(x_t | x_s) q(x_s | x_0), summed over x_0.
        now_K = F.one_hot(code, marginal_K.shape[0])
        forward_K = one * now_K + (1 - one) * marginal_K[code][..., None]
        before_K = keep[0] * clean_K + (1 - keep[0]) * marginal_K
        return _drawn(forward_K * before_K, generator)


def _pairs(mask_BN: Tensor) -> Tensor:
    """Return which (child, parent) pairs are possible edges."""
    both_BNN = mask_BN[:, :, None] & mask_BN[:, None]
    return both_BNN & torch.ones(both_BNN.shape[1:], dtype=torch.bool).tril(-1)


def _noised(code: Tensor, keep: Tensor, marginal_K: Tensor) -> Tensor:
    """Return each code with the probability ``keep``, otherwise one of the marginal."""
    other = torch.multinomial(marginal_K, code.numel(), replacement=True).view(code.shape)
    return torch.where(torch.rand(code.shape) < keep, code, other)


def _drawn(weight_K: Tensor, generator: torch.Generator) -> Tensor:
    """Draw codes in proportion to weights, over all leading dimensions."""
    flat = weight_K.reshape(-1, weight_K.shape[-1])
    return torch.multinomial(flat, 1, generator=generator).view(weight_K.shape[:-1])


class FittedDiffusion:
    """A trained denoiser."""

    def __init__(self, chain: Diffusion, steps: int, together: int) -> None:
        self.chain, self.steps, self.parameters = chain, steps, parameters_of(chain.model)
        self.together = together

    def sample(self, num: int, seed: int) -> list[DAG | None]:
        """Return graphs."""
        generator = torch.Generator().manual_seed(derive_seed(seed, "diffusion"))
        counts = [min(self.together, num - first) for first in range(0, num, self.together)]
        return [dag for count in counts for dag in self.chain.draw(count, generator)]


def fit_diffusion(
    data: GraphDataset,
    seconds: float,
    seed: int,
    *,
    width: int = 64,
    rounds: int = 4,
    learning_rate: float = 2e-3,
    batch: int = 16,
    chain: int = 50,
    **settings: Any,
) -> FittedDiffusion:
    """Train the denoiser."""
    torch.manual_seed(derive_seed(seed, "diffusion"))
    dags = data.graphs["train"]
    kinds = data.schema.sizes().attributes[0]
    kind_K = torch.bincount(torch.cat([dag.x_NA[:, 0] for dag in dags]), minlength=kinds).float()
    pairs = sum(dag.num_nodes * (dag.num_nodes - 1) / 2 for dag in dags)
    density = sum(dag.num_edges for dag in dags) / pairs
    sizes = np.array([dag.num_nodes for dag in dags])
    model = Denoiser(kinds, most_nodes(data), width, rounds)
    diffusion = Diffusion(model, kind_K / kind_K.sum(), density, sizes, chain)
    orders = Orders(dags, numpy_generator(seed, "diffusion"))
    count = graphs_within(data, batch)
    steps = train(model, lambda: diffusion.loss(orders.draw(count)), seconds, learning_rate)
    return FittedDiffusion(diffusion, steps, graphs_within(data, 1000, SAMPLED_CELLS))
