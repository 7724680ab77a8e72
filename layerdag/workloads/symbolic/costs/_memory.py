"""Memory of a rank: weights, gradients, optimizer states, activations, KV cache."""

from dataclasses import dataclass

from layerdag.workloads.symbolic.costs._costs import Costs
from layerdag.workloads.symbolic.plans import layers_held, layers_of_chunks, stage_tasks


@dataclass(frozen=True)
class RankMemory:
    """Peak memory of one rank in bytes, by what it holds.

    Attributes:
        weights: Weights that the rank keeps.
        gathered: Weights of two layers, gathered for the time of their use (ZeRO 3).
        gradients: Gradients that the rank keeps.
        optimizer: States of the optimizer.
        activations: What forward passes keep for backward passes, at its peak.
        kv_cache: Keys and values of all sequences (inference).
    """

    weights: int
    gathered: int
    gradients: int
    optimizer: int
    activations: int
    kv_cache: int

    @property
    def total(self) -> int:
        """All of it."""
        kept = self.weights + self.gathered + self.gradients + self.optimizer
        return kept + self.activations + self.kv_cache


def rank_memory(costs: Costs, stage: int) -> RankMemory:
    """Return the memory of the ranks of a pipeline stage.

    States follow the ZeRO paper (Rajbhandari et al. 2020, 16 bytes a parameter in mixed precision),
    activations Korthikanti et al. 2022, extended to grouped heads, gates, experts and contexts;
    the number of micro-batches in flight is counted along the schedule.
    """
    plan, numbers, training = costs.plan, costs.step.numbers, costs.step.training
    dense, experts = rank_parameters(costs, stage)

    def shared(from_stage: int) -> int:
        if plan.zero < from_stage:
            return dense + experts
        return -(-dense // plan.replicas) + -(-experts // plan.expert_replicas)

    largest = costs.layer_dense + costs.layer_experts
    largest = max(largest, costs.of_layer(0).layer_dense)
    return RankMemory(
        weights=shared(3) * numbers.weights,
        gathered=2 * largest * numbers.weights if plan.zero == 3 and plan.replicas > 1 else 0,
        gradients=shared(2) * numbers.gradients if training else 0,
        optimizer=shared(1) * numbers.optimizer if training else 0,
        activations=_kept(costs, stage) if training else _passing(costs),
        kv_cache=0 if costs.step.phase in ("training", "inference") else _cache(costs, stage),
    )


def rank_parameters(costs: Costs, stage: int) -> tuple[int, int]:
    """Return the dense parameters and those of experts that a rank of a stage computes with."""
    shape, plan = costs.shape, costs.plan
    chunks = layers_of_chunks(shape.layers, plan, stage)
    layers = [costs.of_layer(layer) for chunk in chunks for layer in chunk]
    first, last = stage == 0, stage == plan.pipeline - 1
    dense = sum(layer.layer_dense for layer in layers)
    if first:
        dense += costs.entry
    if last:
        dense += costs.exit(shared=first)
    return dense, sum(layer.layer_experts for layer in layers)


def layer_activations(costs: Costs) -> int:
    """Return the bytes that one layer keeps of one micro-batch for its backward pass.

    For a GPT with dropout these are sbh(10 + 24/t) bytes, sbh * 34/t with sequence parallelism, and
    5as^2b/t more where the scores are kept (s tokens, b sequences, h width, a heads, t tensor
    ranks): Korthikanti et al. 2022, equations 2 and 4.
    """
    shape, plan, number = costs.shape, costs.plan, costs.number
    own = costs.own_tokens * shape.hidden
    kept = 3 * own * number  # inputs of both norms and of the queries' layer
    kept += (2 * own) if shape.dropout else 0  # masks of a byte
    if shape.modulations:  # these, and what is multiplied with gates
        kept += (shape.modulations * costs.sequences * shape.hidden + 2 * own) * number
    queries = costs.tokens * (shape.query_width + shape.output_width) * number
    keys = costs.tokens * plan.context * (shape.kv_width + shape.value_width) * number
    kept += (queries + keys) // plan.tensor  # attention's inputs and its output
    kept += costs.latent.own_bytes if costs.latent else 0
    if plan.attention == "unfused" and plan.recompute == "none":
        scores = costs.tokens * costs.step.sequence * shape.heads // plan.tensor
        kept += scores * (2 * number + 1 if shape.dropout else number)
    if not shape.experts:
        inner = costs.tokens * (shape.up_width + shape.feed_forward) // plan.tensor
        return kept + own * number + inner * number
    passed = costs.routed + costs.tokens * shape.shared_experts
    inner = passed * (shape.up_width + shape.feed_forward) // plan.tensor
    copies = own * shape.experts_per_token
    return kept + (own + 2 * copies + inner) * number


def _kept(costs: Costs, stage: int) -> int:
    """Return the peak of what forward passes keep, walking along the schedule.

    What a forward pass keeps is held until the gradients of weights are there.
    """
    shape, plan, number = costs.shape, costs.plan, costs.number
    full, own = plan.recompute == "full", costs.own_tokens * shape.hidden
    chunks = layers_of_chunks(shape.layers, plan, stage)
    kept = [
        sum(own * number if full else layer_activations(costs.of_layer(layer)) for layer in layers)
        for layers in chunks
    ]
    kept[0] += own if shape.dropout and stage == 0 else 0
    if stage == plan.pipeline - 1:  # inputs of the last norm and of the output layer, logits
        kept[-1] += 2 * own * number + 4 * costs.head_tokens * costs.logits.outputs
    last = "weights" if plan.splits_backward else "backward"
    held = most = 0
    for task in stage_tasks(plan, stage, costs.step.micro_batches):
        held += kept[task.chunk] * ((task.kind == "forward") - (task.kind == last))
        most = max(most, held)
    again = (layer_activations(costs.of_layer(layers[0])) for layers in chunks if layers)
    return most + (max(again, default=0) if full else 0)


def _passing(costs: Costs) -> int:
    """Return what a forward pass holds at once: stream, block input, inner tensors."""
    shape, tensor = costs.shape, costs.plan.tensor
    tokens = costs.routed + costs.tokens * shape.shared_experts if shape.experts else costs.tokens
    inner = tokens * (shape.up_width + shape.feed_forward) // tensor
    if shape.dense_layers:
        dense = shape.dense
        inner = max(inner, costs.tokens * (dense.up_width + dense.feed_forward) // tensor)
    return (2 * costs.tokens * shape.hidden + inner) * costs.number


def _cache(costs: Costs, stage: int) -> int:
    """Return the bytes of the KV cache at the end of the step."""
    shape, plan, step = costs.shape, costs.plan, costs.step
    layers = layers_held(shape.layers, plan, stage)
    grown = step.tokens if step.phase == "decode" else 0
    tokens = step.batch // plan.data * (step.sequence // plan.context + grown)
    sharers = 1 if shape.latent else plan.tensor  # all heads share what is compressed
    return layers * tokens * shape.cached_width // sharers * costs.number
