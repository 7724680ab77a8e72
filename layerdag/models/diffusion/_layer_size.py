"""How many nodes the next layer has, 0 for stop.

Shape letters: I prefixes, K codes.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layerdag.graph import GraphSizes, GraphStatistics
from layerdag.models import Conditions
from layerdag.models.diffusion._config import LayerSizeConfig
from layerdag.models.diffusion._encoder import PrefixEncoder, PrefixGraphs
from layerdag.models.draws import sample_categorical
from layerdag.models.layers import MLP


class LayerSizeNet(nn.Module):
    """A classifier over the sizes 0..S seen in training, and a tail beyond the largest.

    The tail has the probability that the rule of succession gives to a record, 1 / (layers + 1),
    and a geometric excess whose mean is the mean layer size. So no width is impossible, and the
    likelihood of any graph is finite.

    Args:
        sizes: Of the data set.
        statistics: Of the training graphs.
        cardinalities: Number of codes of each node column, in-degree included.
        config: Width and rounds.
    """

    def __init__(
        self,
        sizes: GraphSizes,
        statistics: GraphStatistics,
        cardinalities: tuple[int, ...],
        config: LayerSizeConfig,
    ) -> None:
        super().__init__()
        layers = sum(count for _, count in statistics.layer_sizes)
        nodes = sum(size * count for size, count in statistics.layer_sizes)
        self.largest = statistics.max_layer_size
        self.tail_probability = 1 / (layers + 1)
        self.tail_stop_probability = layers / max(nodes, layers + 1)
        width = config.width
        self.encoder = PrefixEncoder(sizes, cardinalities, width=width, rounds=config.rounds)
        self.head = MLP(width, width, self.largest + 1)

    def forward(self, partial: PrefixGraphs, conditions: Conditions) -> Float[Tensor, "I K"]:
        """Return logits of the sizes 0..S, shape (I, S + 1)."""
        return self.head(self.encoder(partial, conditions))

    def log_probability(
        self, logits_IK: Float[Tensor, "I K"], size_I: Int[Tensor, " I"]
    ) -> Float[Tensor, " I"]:
        """Return log p(size) of each prefix, nats, shape (I,)."""
        fraction, stop = (
            torch.tensor(self.tail_probability),
            torch.tensor(self.tail_stop_probability),
        )
        inner_IK = logits_IK.log_softmax(-1) + torch.log1p(-fraction)
        inner_I = inner_IK.gather(1, size_I.clamp(max=self.largest).unsqueeze(1)).squeeze(1)
        excess_I = (size_I - self.largest - 1).clamp(min=0)
        tail_I = fraction.log() + stop.log() + excess_I * torch.log1p(-stop)
        return torch.where(size_I <= self.largest, inner_I, tail_I)

    def sample(
        self, logits_IK: Float[Tensor, "I K"], uniform_I2: Float[Tensor, "I 2"]
    ) -> Int[Tensor, " I"]:
        """Sample a size for each prefix.

        Args:
            logits_IK: From ``forward``; minus infinity forbids a size.
            uniform_I2: In (0, 1).
        """
        inner_IK = logits_IK.softmax(-1) * (1 - self.tail_probability)
        tail_I1 = torch.full_like(inner_IK[:, :1], self.tail_probability)
        size_I = sample_categorical(torch.cat([inner_IK, tail_I1], dim=1), uniform_I2[:, 0])
        beyond = torch.log1p(torch.tensor(-self.tail_stop_probability, dtype=torch.float64))
        excess_I = (uniform_I2[:, 1].log() / beyond).long()
        return torch.where(size_I > self.largest, size_I + excess_I, size_I)
