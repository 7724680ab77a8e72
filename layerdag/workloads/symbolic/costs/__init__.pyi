from ._condition import condition as condition, condition_back as condition_back
from ._costs import ADAM as ADAM, ELEMENTWISE as ELEMENTWISE, Costs as Costs
from ._latent_costs import LatentCosts as LatentCosts
from ._linear import Linear as Linear
from ._memory import (
    RankMemory as RankMemory,
    layer_activations as layer_activations,
    rank_memory as rank_memory,
    rank_parameters as rank_parameters,
)
