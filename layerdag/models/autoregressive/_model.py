"""The fast model: every decision of every graph of a batch in one causal pass.

Shape letters: B graphs, C numeric conditions, M categorical conditions, N nodes, T tokens, A
attributes, S position buckets, D width of the encoder.
"""

import torch
from torch import Tensor, nn

from layerdag._runtime import takes_old_names, wait_briefly
from layerdag.errors import ConfigError, UsageError
from layerdag.graph import DAGBatch, GraphSizes, GraphStatistics
from layerdag.models import (
    MAX_DEPTH,
    MAX_WIDTH,
    Conditions,
    DAGModel,
    LossTerm,
    Posterior,
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
from layerdag.models.autoregressive._constraints import DegreeConstraints
from layerdag.models.autoregressive._encoder import (
    AttentionContext,
    EncoderBlock,
    attention_biases,
)
from layerdag.models.autoregressive._heads import Heads
from layerdag.models.autoregressive._layout import Blocks, Edges, Layout
from layerdag.models.autoregressive._losses import Targets, layer_size_loss, node_and_edge_losses
from layerdag.models.autoregressive._tokens import StructuralFeatures, TokenEmbedding
from layerdag.models.autoregressive.sampling import Sampler, SamplerModules
from layerdag.models.layers import dropout, row_dropout

_HEAD_WIDTH = 32
GRAPH_OBJECTIVES = ("layer_size", "node", "edge")
POSTERIOR_OBJECTIVES = ("condition",)
# Log of the ratio of violations (nodes whose out-degree no training node of their kind has) in
# samples and in real graphs: 4.5 % of the nodes of samples, .2 % of those of validation jobs
# (docs/explanation/fast-model.md).
_NATS_PER_VIOLATION = 3.0


@takes_old_names(plans="predict_out_degree")
class FastLayerDAG(DAGModel):
    """Layerwise autoregressive model with one shared causal encoder.

    docs/explanation/fast-model.md describes it.

    Args:
        sizes: Counts of the data set's schema.
        statistics: Measured on the training graphs; fixes the degree constraints and count bins.
        width: Width of the encoder, a multiple of 32 (one attention head each).
        depth: Number of encoder blocks.
        block: Number of tokens per attention block.
        dropout: Fraction of encoder inputs and outputs dropped in training.
        token_dropout: Fraction of tokens whose embedding is zeroed in training; with a few hundred
            graphs the model would otherwise memorize prefixes.
        condition_dropout: Fraction of conditions dropped in training, for guidance.
        predict_out_degree: Whether to predict the out-degree of every node. This helps where it
            follows from earlier nodes, as in the kernels of TPU Tile, and hurts where it does not,
            as in training jobs (docs/explanation/fast-model.md, "What each part is worth").

    The attributes ``trunk`` (encoder blocks) and ``judge`` (posterior) have the names of their
    parameters in published checkpoints.
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
        predict_out_degree: bool = True,
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
        self.trunk = nn.ModuleList(EncoderBlock(width, self.num_heads) for _ in range(depth))
        self.last_norm = nn.LayerNorm(width, bias=False)
        self.heads = Heads(sizes, statistics, width, _HEAD_WIDTH, plans=predict_out_degree)
        self.constraints = DegreeConstraints(statistics)
        has_conditions = sizes.numeric_conditions or sizes.category_conditions
        self.judge = Posterior(sizes, width=3 * width // 4) if has_conditions else None

    def objective_parameters(self) -> dict[tuple[str, ...], list[nn.Parameter]]:
        """Return the parameters of the generator and, separately, those of the posterior."""
        if self.judge is None:
            return {GRAPH_OBJECTIVES: list(self.parameters())}
        posterior = list(self.judge.parameters())
        own = {id(parameter) for parameter in posterior}
        generator = [parameter for parameter in self.parameters() if id(parameter) not in own]
        return {GRAPH_OBJECTIVES: generator, POSTERIOR_OBJECTIVES: posterior}

    def posterior_objectives(self) -> tuple[str, ...]:
        """Return the objective of the posterior."""
        return () if self.judge is None else POSTERIOR_OBJECTIVES

    def losses(self, batch: DAGBatch, generator: torch.Generator) -> dict[str, LossTerm]:
        """Return the negative log-likelihood in nats: "layer_size", "node", "edge", "condition".

        The first three sums add up to -log p(graph, order inside layers | conditions), the last is
        -log p(conditions | graph), present if the data set has conditions. The terms count layers
        ("layer_size"), nodes ("node", "edge") and graphs ("condition").
        """
        noise = generator if self.training else None
        layout = Layout.of(batch)
        edges = Edges.of(batch, layout)
        out_degree_T = edges.out_degree_T
        if self.heads.out_degree is None:
            out_degree_T = torch.zeros_like(out_degree_T)
        structure = StructuralFeatures.of(layout, edges, out_degree_T)
        targets = Targets(batch.x_NA, layout, edges, structure, Blocks.of(layout, self.block))
        encoded_TD = dropout(self._encode(batch, targets, noise), self.dropout, noise)
        node, edge = node_and_edge_losses(self.heads, encoded_TD, targets)
        terms = {
            "layer_size": layer_size_loss(self.heads, encoded_TD, layout),
            "node": node,
            "edge": edge,
        }
        if self.judge is not None:
            terms["condition"] = self.judge.loss(batch, noise)
        return terms

    def _encode(self, batch: DAGBatch, targets: Targets, noise: torch.Generator | None) -> Tensor:
        """Return the encoder's output for every token, shape (T, D)."""
        layout, edges = targets.layout, targets.edges
        conditions = Conditions(batch.numeric_BC, batch.category_BM)
        if noise is not None:
            conditions = drop_conditions(conditions, self.condition_dropout, noise)
        vectors = self.conditions(conditions)
        bucket_T = self.conditions.bucket(targets.structure.position_T)
        x_TA = self.tokens.start_A.repeat(layout.num_tokens, 1)
        x_TA[layout.token_N] = batch.x_NA
        x_TD = row_dropout(self.tokens(x_TA, targets.structure), self.token_dropout, noise)
        x_TD = x_TD + at_tokens(vectors.before_BSD, layout.graph_T, bucket_T)
        x_TD = dropout(x_TD, self.dropout, noise)
        context = AttentionContext(
            targets.blocks,
            *attention_biases(targets.blocks, self.num_heads),
            edges.parent_E,
            edges.child_E,
            targets.structure.degree_T,
        )
        for encoder_block in self._encoder_blocks():
            x_TD = encoder_block(x_TD, context)
        encoded_TD: Tensor = self.last_norm(x_TD)
        return encoded_TD + at_tokens(vectors.after_BSD, layout.graph_T, bucket_T)

    def _encoder_blocks(self) -> tuple[EncoderBlock, ...]:
        """Return the encoder blocks with their type."""
        return tuple(
            encoder_block for encoder_block in self.trunk if isinstance(encoder_block, EncoderBlock)
        )

    @property
    def usual_best_of(self) -> int:
        """4: more gains little (docs/explanation/fast-model.md)."""
        return 4

    def require_options(self, *, steps: int | None, best_of: int) -> None:
        """Refuse denoising steps, which this model has none of, and no draw at all."""
        if steps is not None:
            raise UsageError(
                "The model 'fast' draws every node in one step, so 'steps' would change nothing; "
                "leave it out."
            )
        if best_of < 1:
            raise UsageError(f"'best_of' must be at least 1, found {best_of}.")

    def sample(self, request: SampleRequest) -> SampleResult:
        """Sample one graph per seed, one node of every graph per step.

        With several candidates, one is chosen by its ``_score``.

        Raises:
            UsageError: If a limit of the request is below 1, or it has denoising steps.
        """
        wait_briefly()
        self.require_options(steps=request.steps, best_of=request.best_of)
        if min(request.max_nodes, request.max_layers) < 1:
            raise UsageError(
                "A graph has at least one node and one layer; found limits of "
                f"{request.max_nodes} nodes and {request.max_layers} layers."
            )
        if not request.seeds:
            return SampleResult((), ())
        if request.best_of > 1:
            return resample(self._score, request, self._sample_once)
        return self._sample_once(request)

    def _score(self, batch: DAGBatch, candidates: int) -> Tensor:
        """Return the log weight of finished graphs for resampling, nats, shape (B,).

        It is the posterior log-likelihood of the conditions, less ``_NATS_PER_VIOLATION`` for each
        node with more or fewer children than any training node of its kind. The number of
        violations is scaled to the mean size of the candidates, so that small graphs, which have
        fewer nodes that can violate a constraint, are not preferred.
        """
        batch = batch.to(self.constraints.source_K.device)
        with torch.inference_mode():
            nodes_B = batch.node_ptr.diff().float()
            mean_B = nodes_B.unflatten(0, (-1, candidates)).mean(1).repeat_interleave(candidates)
            score_B = -_NATS_PER_VIOLATION * self.constraints.violations(batch) * mean_B / nodes_B
            found_B = self.log_posterior(batch)
            return score_B if found_B is None else score_B + found_B

    def log_posterior(self, batch: DAGBatch) -> Tensor | None:
        """Return log p(conditions | graph) of each graph, nats, shape (B,)."""
        if self.judge is None:
            return None
        with torch.inference_mode():
            return self.judge.log_likelihood(batch)

    def predict_numeric_conditions(self, batch: DAGBatch) -> Tensor | None:
        """Return the posterior mean of each numeric condition, shape (B, C)."""
        if self.judge is None:
            return None
        with torch.inference_mode():
            return self.judge.means(batch)

    def _sample_once(self, request: SampleRequest) -> SampleResult:
        """Sample one graph per seed, without resampling."""
        modules = SamplerModules(
            self.tokens,
            self.conditions,
            self._encoder_blocks(),
            self.last_norm,
            self.heads,
            self.constraints,
            self.block,
        )
        with torch.inference_mode():
            return Sampler(modules, request).run()
