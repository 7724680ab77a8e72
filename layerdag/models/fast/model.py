"""The fast model: every decision of every graph of a batch in one causal pass.

Shape letters: A node attributes, B graphs, C numeric conditions, D width of a state, F
feature columns, J position buckets, K codes, M categorical conditions, T tokens.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layerdag.dag.dag import DAGBatch, on_device
from layerdag.errors import UsageError
from layerdag.models.base import DAGModel, LossTerm, SampleRequest, SampleResult, require_request
from layerdag.models.best_of import resample
from layerdag.models.conditions import Conditions
from layerdag.models.fast.compiled_sampler import CompiledSampler
from layerdag.models.fast.decisions import layer_size_loss, node_and_edge_losses
from layerdag.models.fast.encoder import WindowEncoder
from layerdag.models.fast.networks import FastNetworks
from layerdag.models.fast.padding import padded, padded_sizes
from layerdag.models.fast.targets import Targets
from layerdag.models.fast.tensor_sampler import TensorSampler
from layerdag.models.fast.tokens import at_tokens, drop_conditions, noisy_sizes
from layerdag.models.layers import dropout, row_dropout
from layerdag.runtime.native import set_openmp_passive

GRAPH_OBJECTIVES = ("layer_size", "node", "edge")
POSTERIOR_OBJECTIVES = ("condition",)
# Log of the ratio of violations (nodes whose out-degree no training node of their kind has) in
# samples and in real graphs: 4.5 % of the nodes of samples, .2 % of those of validation jobs
# (docs/explanation/fast-model.md).
_NATS_PER_VIOLATION = 3.0
# Of the distance of the logarithms of a size found and asked for (docs/dev/decisions.md,
# "Sizes").
_NATS_PER_LOG_SIZE = 20.0


class FastLayerDAG(FastNetworks, DAGModel):
    """Layerwise autoregressive model with one shared causal encoder.

    docs/explanation/fast-model.md describes it.
    """

    def objective_parameters(self) -> dict[tuple[str, ...], list[nn.Parameter]]:
        """Return the parameters of the generator and, separately, those of the posterior."""
        if self.posterior is None:
            return {GRAPH_OBJECTIVES: list(self.parameters())}
        posterior = list(self.posterior.parameters())
        own = {id(parameter) for parameter in posterior}
        generator = [parameter for parameter in self.parameters() if id(parameter) not in own]
        return {GRAPH_OBJECTIVES: generator, POSTERIOR_OBJECTIVES: posterior}

    def posterior_objectives(self) -> tuple[str, ...]:
        """Return the objective of the posterior."""
        return () if self.posterior is None else POSTERIOR_OBJECTIVES

    def losses(self, batch: DAGBatch, generator: torch.Generator) -> dict[str, LossTerm]:
        """Return the negative log-likelihood in nats: "layer_size", "node", "edge", "condition".

        The first three sums add up to -log p(graph, order inside layers | conditions), the last is
        -log p(conditions | graph), present if the data set has conditions. The terms count layers
        ("layer_size"), nodes ("node", "edge") and graphs ("condition").
        """
        noise = generator if self.training else None
        asked_B2 = None if self.remaining is None else noisy_sizes(_sizes(batch), noise)
        targets = batch.derived
        if not isinstance(targets, Targets):
            targets = on_device(self._targets(batch), self.tokens.start_A.device)
        encoded_TD = self._encode(batch, targets, noise, asked_B2)
        encoded_TD = dropout(encoded_TD, self.config.encoder.dropout, noise)
        node, edge = node_and_edge_losses(self.heads, encoded_TD, targets)
        totals = {
            "layer_size": layer_size_loss(self.heads, encoded_TD, targets),
            "node": node,
            "edge": edge,
        }
        if self.posterior is not None:
            totals["condition"] = -self.posterior.log_likelihood(batch, noise).sum()
        return {name: LossTerm(total, targets.counts[name]) for name, total in totals.items()}

    def derived(self, batch: DAGBatch) -> DAGBatch:
        """Return a batch of the host with the targets of teacher forcing."""
        return batch.carrying(self._targets(batch))

    @property
    def pads_batches(self) -> bool:
        """Every size that differs from batch to batch can be padded."""
        return True

    def padded_sizes(self, derived: DAGBatch) -> Mapping[str, int]:
        """Return the sizes of everything whose number differs from batch to batch."""
        return padded_sizes(derived, _targets_of(derived))

    def padded(self, derived: DAGBatch, sizes: Mapping[str, int]) -> DAGBatch:
        """Return a batch of these sizes, none below its own, with the same losses."""
        return padded(derived, _targets_of(derived), sizes)

    def decisions(self, derived: DAGBatch) -> Mapping[str, float]:
        """Return the layers, nodes and graphs of a batch by objective."""
        return _targets_of(derived).counts

    @property
    def is_sum_over_graphs(self) -> bool:
        """They are, but a model or encoder of one's own may draw from PyTorch's generator."""
        return type(self) is FastLayerDAG and type(self.encoder) is WindowEncoder

    def _targets(self, batch: DAGBatch) -> Targets:
        return Targets.from_batch(
            batch.to("cpu"),
            self.block,
            self.tokens.codes,
            self.conditions.bucket,
            self.heads.pointer.dynamic,
            self.heads.count_codes,
        )

    def _encode(
        self,
        batch: DAGBatch,
        targets: Targets,
        noise: torch.Generator | None,
        asked_B2: Tensor | None,
    ) -> Tensor:
        """Return the encoder's output for every token.

        Without a generator of noise there is no dropout; ``asked_B2`` are the numbers of nodes and
        layers that the graphs are said to be asked for.
        """
        graph_T, rates = targets.graph_T, self.config.encoder
        conditions = Conditions(batch.numeric_BC, batch.category_BM, asked_B2)
        if noise is not None:
            rate = self.config.conditioning.dropout
            conditions = drop_conditions(conditions, rate, noise)
        vectors = self.conditions(conditions)
        x_TD = self.tokens.embedding(targets.token_codes_TF)
        x_TD = row_dropout(x_TD, rates.token_dropout, noise)
        before_TD = at_tokens(vectors.before_BJD, graph_T, targets.bucket_T)
        after_TD = at_tokens(vectors.after_BJD, graph_T, targets.bucket_T)
        if self.remaining is not None:
            sizes_T2 = vectors.sizes_B2[graph_T]
            remaining_TD = self.remaining(targets.position_T, targets.layer_T, sizes_T2)
            before_TD, after_TD = before_TD + remaining_TD[0], after_TD + remaining_TD[1]
        x_TD = dropout(x_TD + before_TD, rates.dropout, noise)
        encoded_TD: Tensor = self.last_norm(self.encoder.full(x_TD, targets))
        return encoded_TD + after_TD

    @property
    def has_temperature(self) -> bool:
        """Every decision is drawn from logits, which a temperature divides."""
        return True

    @property
    def default_best_of(self) -> int:
        """8 where neighbors are listed, else 4, beyond which little is gained.

        Without conditions nothing holds against the deep, narrow graphs that lists of neighbors
        prefer, and it is 1 (docs/explanation/fast-model.md, "Neighborhoods").
        """
        if not self.neighbors.any_listed:
            return 4
        return 1 if self.posterior is None else 8

    @property
    def default_batch_size(self) -> int | None:
        """1,024 on a GPU, where rows of finished graphs take the next ones; None elsewhere."""
        on_gpu = self.constraints.source_K.device.type == "cuda"
        return 1024 if on_gpu and type(self.encoder) is WindowEncoder else None

    def require_options(self, *, steps: int | None, best_of: int, temperature: float = 1.0) -> None:
        """Refuse denoising steps, which this model has none of, and no draw at all."""
        if not 0 < temperature < math.inf:
            raise UsageError(f"'temperature' must be above 0, found {temperature:g}.")
        if steps is not None:
            raise UsageError(
                "The model 'fast' draws every node in one step, so 'steps' would change nothing; "
                "leave it out."
            )
        if best_of < 1:
            raise UsageError(f"'best_of' must be at least 1, found {best_of}.")

    def sample(self, request: SampleRequest) -> SampleResult:
        """Sample one graph per seed, node by node, many graphs side by side.

        With several candidates, one is chosen by its ``_score``.

        Raises:
            UsageError: If a limit of the request is below 1, or it has denoising steps.
        """
        require_request(request)
        set_openmp_passive()
        self.require_options(
            steps=request.steps, best_of=request.best_of, temperature=request.temperature
        )
        if min(request.max_nodes, request.max_layers) < 1:
            raise UsageError(
                "A graph has at least one node and one layer; found limits of "
                f"{request.max_nodes} nodes and {request.max_layers} layers."
            )
        if not request.seeds:
            return SampleResult((), ())
        once = partial(self._sample_once, request.best_of)
        return once(request) if request.best_of == 1 else resample(self._score, request, once)

    def _score(self, batch: DAGBatch, request: SampleRequest) -> Float[Tensor, " B"]:
        """Return the log weight of finished graphs for resampling, nats, shape (B,).

        It is the posterior log-likelihood of the conditions, less ``_NATS_PER_VIOLATION`` for each
        node with more or fewer children than any training node of its kind, and less
        ``_NATS_PER_LOG_SIZE`` times the distances to the numbers of nodes and of layers asked for.
        The number of violations is scaled to the mean size of the candidates, so that small graphs,
        which have fewer nodes that can violate a constraint, are not preferred.
        """
        batch = batch.to(self.constraints.source_K.device)
        candidates = request.best_of
        with torch.inference_mode():
            sizes_B2 = _sizes(batch).float()
            nodes_B = sizes_B2[:, 0]
            mean_B = nodes_B.unflatten(0, (-1, candidates)).mean(1).repeat_interleave(candidates)
            log_weight_B = self.neighbors.log_weight(batch)
            log_weight_B = log_weight_B - _NATS_PER_VIOLATION * self.constraints.violations(batch)
            score_B = log_weight_B * mean_B / nodes_B
            asked_B2 = request.sizes_B2.to(sizes_B2.device).repeat_interleave(candidates, dim=0)
            distance_B2 = (sizes_B2 / asked_B2.clamp(min=1)).log().abs()
            # Nothing is asked for where it is NaN.
            score_B = score_B - _NATS_PER_LOG_SIZE * distance_B2.nan_to_num(nan=0.0).sum(1)
            found_B = self.log_posterior(batch)
            return score_B if found_B is None else score_B + found_B

    def log_posterior(self, batch: DAGBatch) -> Float[Tensor, " B"] | None:
        """Return log p(conditions | graph) of each graph, nats, shape (B,)."""
        if self.posterior is None:
            return None
        with torch.inference_mode():
            return self.posterior.log_likelihood(batch)

    def predict_numeric_conditions(self, batch: DAGBatch) -> Float[Tensor, "B C"] | None:
        """Return the posterior mean of each numeric condition, shape (B, C)."""
        if self.posterior is None:
            return None
        with torch.inference_mode():
            return self.posterior.means(batch)

    def _sample_once(self, particles: int, request: SampleRequest) -> SampleResult:
        """Sample one graph per seed; consecutive ``particles`` ones are particles of one graph."""
        with torch.inference_mode():
            once = replace(request, best_of=particles)
            if CompiledSampler.supports(self):
                return CompiledSampler(self, once).run()
            return TensorSampler(self, once).run()


def _targets_of(derived: DAGBatch) -> Targets:
    assert isinstance(derived.derived, Targets), "DAGModel.derived() comes first"
    return derived.derived


def _sizes(batch: DAGBatch) -> Int[Tensor, "B 2"]:
    return torch.stack([batch.node_ptr.diff(), batch.num_layers()], dim=1)
