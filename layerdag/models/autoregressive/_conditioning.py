"""What the trunk hears of a graph's conditions, stage by stage.

The first few nodes of a graph settle what it is, and are few: the gradient of a vector that is
added to every token alike is ruled by the many decisions whose answer the tokens before them hold,
and what the conditions say of the first decisions is lost in it. So a graph's positions fall into
stages of growing length, each with an addition of its own, and the conditions also reach the
decisions past the trunk. Codes enter linearly: a nonlinearity before the normalization made the
vectors of different conditions all but parallel.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from layerdag.graph import DAGBatch, GraphSizes
from layerdag.models import take_rows
from layerdag.models.autoregressive._counts import SumEmbedding

# First positions of the stages after stage 0, which is the start token alone.
STAGES = (1, 2, 3, 5, 9, 17, 33, 65, 129, 257, 513)
# A token says more of itself than the conditions do: louder ones slow learning down.
_LOUDNESS = 0.25
# Centers of the bumps, in standard deviations; their width is one.
_CENTERS = (-2.0, -1.0, 0.0, 1.0, 2.0)


@dataclass(frozen=True, eq=False)
class ConditionVectors:
    """Vectors of B graphs in S stages.

    Attributes:
        before_BSD: Added to the trunk's input.
        after_BSD: Added to the trunk's output.
    """

    before_BSD: Tensor
    after_BSD: Tensor

    def select(self, row_R: Tensor) -> "ConditionVectors":
        """Return the vectors of some graphs."""
        return ConditionVectors(self.before_BSD[row_R], self.after_BSD[row_R])


class ConditionEncoder(nn.Module):
    """Vectors from conditions; an unknown condition has a learned vector or none.

    A standardized number enters as itself and as smooth bumps a standard deviation wide. Finer
    features would tell the training graphs apart, and so be learned by heart.

    Args:
        sizes: Numbers of conditions and categories.
        width: D of the trunk.
    """

    first_position_S: Tensor
    center_F: Tensor

    def __init__(self, sizes: GraphSizes, width: int) -> None:
        super().__init__()
        self.register_buffer("first_position_S", torch.tensor(STAGES), persistent=False)
        self.register_buffer("center_F", torch.tensor(_CENTERS), persistent=False)
        features = sizes.numeric_conditions * (2 + len(_CENTERS))
        codes = [size + 1 for size in sizes.category_conditions]
        stages = len(STAGES) + 1
        self.lift = nn.Linear(features, width, bias=False) if features else None
        self.stage_lift = nn.Linear(features, stages * width, bias=False) if features else None
        self.categories = SumEmbedding(codes, width) if codes else None
        self.stage_categories = SumEmbedding(codes, stages * width) if codes else None
        self.norm = nn.LayerNorm(width, bias=False)
        self.after = nn.Linear(width, width, bias=False)
        for late in (self.stage_lift, self.stage_categories, self.after):
            if late is not None:
                nn.init.zeros_(late.weight)

    def forward(self, numeric_BC: Tensor, category_BM: Tensor) -> ConditionVectors:
        """Return the vectors of each graph at each stage."""
        shape = (numeric_BC.shape[0], len(STAGES) + 1, -1)
        code_BSD = self.after.weight.new_zeros(*shape[:2], self.after.in_features)
        if self.lift is not None and self.stage_lift is not None:
            value_BF = self._features(numeric_BC)
            code_BSD = code_BSD + self.lift(value_BF)[:, None]
            code_BSD = code_BSD + self.stage_lift(value_BF).view(shape)
        if self.categories is not None and self.stage_categories is not None:
            code_BSD = code_BSD + self.categories(category_BM + 1)[:, None]
            code_BSD = code_BSD + self.stage_categories(category_BM + 1).view(shape)
        normed_BSD = self.norm(code_BSD)
        return ConditionVectors(_LOUDNESS * normed_BSD, self.after(normed_BSD))

    def stage(self, position: Tensor) -> Tensor:
        """Return the stage of each position of a graph."""
        return torch.bucketize(position, self.first_position_S, right=True)

    def _features(self, numeric_BC: Tensor) -> Tensor:
        """Return value, bumps and whether it is known; all zero for an unknown number."""
        known_BC = ~numeric_BC.isnan()
        value_BC1 = numeric_BC.nan_to_num(0.0).clamp(-10.0, 10.0)[..., None]
        bump_BCF = (-0.5 * (value_BC1 - self.center_F).square()).exp()
        features_BCF = torch.cat([value_BC1, bump_BCF, torch.ones_like(value_BC1)], dim=2)
        return (features_BCF * known_BC[..., None]).flatten(1)


def drop_conditions(
    batch: DAGBatch, rate: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return the conditions with a share ``rate`` unknown, and all of a graph at the same rate."""
    device = batch.numeric_BC.device
    count = batch.numeric_BC.shape[1]
    total = count + batch.category_BM.shape[1]
    uniform = torch.rand(batch.num_graphs, total + 1, generator=generator, device=device)
    gone = (uniform[:, :-1] < rate) | (uniform[:, -1:] < rate)
    return (
        batch.numeric_BC.masked_fill(gone[:, :count], torch.nan),
        batch.category_BM.masked_fill(gone[:, count:], -1),
    )


def at_tokens(vector_BSD: Tensor, graph_T: Tensor, stage_T: Tensor) -> Tensor:
    """Return the vector of each token's graph at the token's stage, shape (T, D)."""
    return take_rows(vector_BSD.flatten(0, 1), graph_T * vector_BSD.shape[1] + stage_T)
