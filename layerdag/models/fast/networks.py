"""The networks and tables of the fast model, which training and both samplers use."""

from torch import nn

from layerdag.dag.dag import GraphSizes
from layerdag.dag.statistics import GraphStatistics
from layerdag.models.config import HEAD_WIDTH, FastConfig
from layerdag.models.fast.allowed_codes import AllowedCodes
from layerdag.models.fast.decisions import Heads
from layerdag.models.fast.degree_constraints import DegreeConstraints
from layerdag.models.fast.edge_type_sets import EdgeTypeSets
from layerdag.models.fast.encoder import ENCODERS
from layerdag.models.fast.neighbor_kinds import NeighborKinds
from layerdag.models.fast.tokens import ConditionEncoder, RemainingSizes, TokenEmbedding
from layerdag.models.posterior import Posterior


class FastNetworks(nn.Module):
    """Embeddings, encoder, readouts and posterior, and what training graphs allow.

    Settings are by default those of configs/model/fast.yaml.
    """

    def __init__(
        self, sizes: GraphSizes, statistics: GraphStatistics, config: FastConfig | None = None
    ) -> None:
        super().__init__()
        config = config or FastConfig()
        width = config.width
        self.sizes, self.statistics, self.config = sizes, statistics, config
        self.block = config.encoder.block
        self.tokens = TokenEmbedding(sizes, width)
        self.conditions = ConditionEncoder(sizes, width, config.conditioning.position_buckets)
        counts_down = config.conditioning.remaining_sizes == "encoded"
        self.remaining = RemainingSizes(width) if counts_down else None
        self.encoder = ENCODERS.get(config.encoder.kind)(width, config.depth, config.encoder)
        self.last_norm = nn.LayerNorm(width, bias=False)
        plans = config.predict_out_degree is not False
        self.heads = Heads(sizes, statistics, width, HEAD_WIDTH, plans=plans, config=config.heads)
        self.constraints = DegreeConstraints(statistics, config.constraints)
        listed = config.constraints.neighbors != "unlimited"
        self.neighbors = NeighborKinds(statistics, listed=listed)
        limited = config.constraints.attributes != "unlimited"
        self.allowed = AllowedCodes(sizes, statistics if limited else None)
        listed = config.constraints.edge_types != "unlimited"
        self.type_sets = EdgeTypeSets(sizes, statistics.edge_type_sets if listed else ())
        self.posterior: Posterior | None = None
        if sizes.numeric_conditions or sizes.category_conditions:
            rounds, rate = config.posterior.rounds, config.posterior.dropout
            self.posterior = Posterior(
                sizes, width=config.posterior_width, rounds=rounds, rate=rate
            )
