"""The fast model: every decision of every graph of a batch in one causal pass."""

import torch
from torch import Tensor, nn

from layerdag._runtime import wait_briefly
from layerdag.errors import ConfigError, UsageError
from layerdag.graph import DAGBatch, GraphSizes, GraphStatistics
from layerdag.models import (
    MAX_DEPTH,
    MAX_WIDTH,
    DAGModel,
    Judge,
    LossTerm,
    SampleRequest,
    SampleResult,
    require_between,
    resample,
)
from layerdag.models.autoregressive._conditioning import (
    ConditionEncoder,
    at_tokens,
    drop_conditions,
)
from layerdag.models.autoregressive._constraints import Arity
from layerdag.models.autoregressive._encoder import (
    Scope,
    TrunkBlock,
    attention_biases,
    dropout,
    hide_tokens,
)
from layerdag.models.autoregressive._heads import Heads
from layerdag.models.autoregressive._layout import Blocks, Edges, Layout
from layerdag.models.autoregressive._losses import Truth, layer_size_loss, node_and_edge_losses
from layerdag.models.autoregressive._tokens import Place, TokenEmbedding
from layerdag.models.autoregressive.sampling import Parts, Sampler

_HEAD_WIDTH = 32
GRAPH_OBJECTIVES = ("layer_size", "node", "edge")
JUDGE_OBJECTIVES = ("condition",)
# Log of how much rarer a node with an unheard-of number of children is among real graphs than among
# samples: .2 % of the nodes of validation jobs, 4.5 % of those of samples
# (docs/explanation/fast-model.md).
_NATS_A_BREACH = 3.0


class FastLayerDAG(DAGModel):
    """Layerwise autoregressive model with one shared causal encoder.

    docs/explanation/fast-model.md describes it.

    Args:
        sizes: Counts of the data set's schema.
        statistics: Measured on the training graphs; fixes the arity limits and count bins.
        width: Width of the trunk, a multiple of 32 (one attention head each).
        depth: Number of trunk blocks.
        block: Tokens of an attention block.
        dropout: Share of trunk inputs and readout states dropped in training.
        token_dropout: Share of tokens of which the trunk reads nothing in training: with a few
            hundred graphs a prefix would be known by heart from any one of them.
        condition_dropout: Share of conditions hidden in training, for guidance.
        plans: Whether every node announces the number of its children. It pays where that number
            follows from what comes before, as in TPU Tile's kernels, and costs more than it gives
            where it does not, as in training jobs (docs/explanation/fast-model.md, "What each part
            is worth").
    """

    def __init__(  # noqa: PLR0913 - each is a key of configs/model/fast.yaml
        self,
        sizes: GraphSizes,
        statistics: GraphStatistics,
        *,
        width: int = 128,
        depth: int = 3,
        block: int = 64,
        dropout: float = 0.1,
        token_dropout: float = 0.15,
        condition_dropout: float = 0.1,
        plans: bool = True,
    ) -> None:
        super().__init__()
        self.sizes, self.statistics = sizes, statistics
        require_between("fast", 1, MAX_WIDTH, width=width, block=block)
        require_between("fast", 1, MAX_DEPTH, depth=depth)
        require_between("fast", 0, 1, dropout=dropout, token_dropout=token_dropout,
                        condition_dropout=condition_dropout)  # fmt: skip
        if width % _HEAD_WIDTH:
            raise ConfigError(
                f"The fast model needs a width that is a multiple of {_HEAD_WIDTH}, found {width}."
            )
        self.num_heads, self.block = width // _HEAD_WIDTH, block
        self.dropout, self.token_dropout = dropout, token_dropout
        self.condition_dropout = condition_dropout
        self.tokens = TokenEmbedding(sizes, width)
        self.conditions = ConditionEncoder(sizes, width)
        self.trunk = nn.ModuleList(TrunkBlock(width, self.num_heads) for _ in range(depth))
        self.last_norm = nn.LayerNorm(width, bias=False)
        self.heads = Heads(sizes, statistics, width, _HEAD_WIDTH, plans=plans)
        self.arity = Arity(statistics)
        has_conditions = sizes.numeric_conditions or sizes.category_conditions
        self.judge = Judge(sizes, width=3 * width // 4) if has_conditions else None

    def objective_parameters(self) -> dict[tuple[str, ...], list[nn.Parameter]]:
        """Return the generator's parameters, and apart from them the judge's."""
        if self.judge is None:
            return {GRAPH_OBJECTIVES: list(self.parameters())}
        judge = list(self.judge.parameters())
        own = {id(parameter) for parameter in judge}
        generator = [parameter for parameter in self.parameters() if id(parameter) not in own]
        return {GRAPH_OBJECTIVES: generator, JUDGE_OBJECTIVES: judge}

    def judging_objectives(self) -> tuple[str, ...]:
        """Return the judge's objective."""
        return () if self.judge is None else JUDGE_OBJECTIVES

    def losses(self, batch: DAGBatch, generator: torch.Generator) -> dict[str, LossTerm]:
        """Return the negative log-likelihood in nats: "layer_size", "node", "edge", "condition".

        The first three sums add up to -log p(graph, order inside layers | conditions), the last is
        -log p(conditions | graph), there if the data set has conditions. Counts are layers for
        "layer_size", nodes for the next two and graphs for the last.
        """
        noise = generator if self.training else None
        layout = Layout.of(batch)
        edges = Edges.of(batch, layout)
        planned_T = edges.out_degree_T
        if self.heads.plan is None:
            planned_T = torch.zeros_like(planned_T)
        place = Place.of(layout, edges, planned_T)
        truth = Truth(batch.x_NA, layout, edges, place, Blocks.of(layout, self.block))
        encoded_TD = dropout(self._encode(batch, truth, noise), self.dropout, noise)
        node, edge = node_and_edge_losses(self.heads, encoded_TD, truth)
        terms = {
            "layer_size": layer_size_loss(self.heads, encoded_TD, layout),
            "node": node,
            "edge": edge,
        }
        if self.judge is not None:
            terms["condition"] = self.judge.loss(batch, noise)
        return terms

    def _encode(self, batch: DAGBatch, truth: Truth, noise: torch.Generator | None) -> Tensor:
        """Return the trunk's output for every token, shape (T, D)."""
        layout, edges = truth.layout, truth.edges
        conditions = (batch.numeric_BC, batch.category_BM)
        if noise is not None:
            conditions = drop_conditions(batch, self.condition_dropout, noise)
        vectors = self.conditions(*conditions)
        stage_T = self.conditions.stage(truth.place.position_T)
        x_TA = self.tokens.start_A.repeat(layout.num_tokens, 1)
        x_TA[layout.token_N] = batch.x_NA
        x_TD = hide_tokens(self.tokens(x_TA, truth.place), self.token_dropout, noise)
        x_TD = x_TD + at_tokens(vectors.before_BSD, layout.graph_T, stage_T)
        x_TD = dropout(x_TD, self.dropout, noise)
        scope = Scope(
            truth.blocks,
            *attention_biases(truth.blocks, self.num_heads),
            edges.parent_E,
            edges.child_E,
            truth.place.degree_T,
        )
        for level in self._levels():
            x_TD = level(x_TD, scope)
        encoded_TD: Tensor = self.last_norm(x_TD)
        return encoded_TD + at_tokens(vectors.after_BSD, layout.graph_T, stage_T)

    def _levels(self) -> tuple[TrunkBlock, ...]:
        """Return the trunk's blocks with their type."""
        return tuple(level for level in self.trunk if isinstance(level, TrunkBlock))

    def sample(self, request: SampleRequest) -> SampleResult:
        """Sample one graph per seed, one node of every graph per step.

        A node is drawn in one step given all before it, so there is no number of steps to choose:
        ``request.steps`` is not used. With several candidates, one is chosen by its ``_score``.

        Raises:
            UsageError: If a limit of the request is below 1.
        """
        if min(request.max_nodes, request.max_layers, request.candidates) < 1:
            raise UsageError(
                "A graph has at least one node and one layer and is drawn at least once; found "
                f"limits of {request.max_nodes} nodes and {request.max_layers} layers, and "
                f"{request.candidates} candidates."
            )
        if not request.seeds:
            return SampleResult((), ())
        wait_briefly()
        if request.candidates > 1:
            return resample(self._score, request, self._sample_once)
        return self._sample_once(request)

    def _score(self, batch: DAGBatch, candidates: int) -> Tensor:
        """Return how well finished graphs fit their conditions and the training graphs, nats (B,).

        The judge's likelihood of the conditions; and ``_NATS_A_BREACH`` less for each node with
        more or fewer children than any of its kind has in training. A small graph has fewer nodes
        to be wrong with, and is no better for it: so breaches are counted as of a graph of the mean
        size of the candidates with the same share of breaches.
        """
        batch = batch.to(self.arity.starts_K.device)
        with torch.inference_mode():
            nodes_B = batch.node_ptr.diff().float()
            mean_B = nodes_B.unflatten(0, (-1, candidates)).mean(1).repeat_interleave(candidates)
            score_B = -_NATS_A_BREACH * self.arity.breaches(batch) * mean_B / nodes_B
            return score_B if self.judge is None else score_B + self.judge.log_likelihood(batch)

    def judged_numbers(self, batch: DAGBatch) -> Tensor | None:
        """Return the judge's mean of each numeric condition, shape (B, C)."""
        if self.judge is None:
            return None
        with torch.inference_mode():
            return self.judge.means(batch)

    def _sample_once(self, request: SampleRequest) -> SampleResult:
        """Sample one graph per seed, without a choice."""
        parts = Parts(
            self.tokens,
            self.conditions,
            self._levels(),
            self.last_norm,
            self.heads,
            self.arity,
            self.block,
        )
        with torch.inference_mode():
            return Sampler(parts, request).run()
