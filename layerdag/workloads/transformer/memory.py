"""Peak memory of a training step as PyTorch allocates it.

``costs.rank_memory`` counts what published formulas count. What is allocated is more: logits and
their gradients in 32 bits, gradients that add up in 32 bits, parameters of a pipeline stage that
stay gathered, gathers that are fetched ahead, the layer that is computed again; what the allocator
reserves is more still.
"""

from dataclasses import dataclass

from layerdag.workloads.transformer.costs import (
    Costs,
    kept_by_chunks,
    layer_activations,
    most_kept,
    rank_parameters,
)
from layerdag.workloads.transformer.job import SymbolicJob

_LOGIT_BYTES = 14
"""Of a logit at the peak: itself in 16 and in 32 bits, the logarithm of the softmax and the
gradient, both in 32."""
_FUSED = 0.8
"""Of what forward passes keep, what is left where element-wise operators are compiled into one
another: their inputs are not kept, but computed again."""
_RESERVED, _CONTEXT_GIB = 1.06, 1.0
"""Reserved over allocated memory: blocks that fragments keep from being reused; and what libraries
hold (workspaces, communicators)."""
_FULLEST = 0.95
"""Share of a device's memory that is reserved where more would be: the allocator then gives back
blocks that it caches."""


@dataclass(frozen=True)
class PeakMemory:
    """Peak memory of the fullest rank in bytes, by what it holds."""

    parameters: int  # that the rank keeps, with a copy in 32 bits where it has one
    gathered: int
    gradients: int
    optimizer: int
    activations: int
    again: int  # of the layer that is computed again, or whose gradients are computed
    logits: int

    @property
    def allocated(self) -> int:
        """Bytes of all tensors at the peak (``torch.cuda.max_memory_allocated``)."""
        states = self.parameters + self.gathered + self.gradients + self.optimizer
        # The logits are gone when the first layer is computed again.
        return states + self.activations + max(self.again, self.logits)

    def reserved(self, capacity_gib: float | None = None) -> int:
        """Return what the allocator holds (``max_memory_reserved``) on a device of so much memory.

        An estimate: fragments differ from run to run. Near the capacity the allocator gives back
        what it caches, so that no more than 19/20 is reserved as long as tensors fit.
        """
        wanted = round(_RESERVED * self.allocated + _CONTEXT_GIB * 2**30)
        if capacity_gib is None:
            return wanted
        return max(min(wanted, round(_FULLEST * capacity_gib * 2**30)), self.allocated)


def peak_memory(job: SymbolicJob, *, eager: bool = False) -> PeakMemory:
    """Return the peak memory of the fullest rank; ``eager`` operators are not compiled together."""
    stages = (stage_memory(job.costs, stage, eager) for stage in range(job.plan.pipeline))
    return max(stages, key=lambda held: held.allocated)


def stage_memory(costs: Costs, stage: int, eager: bool = False) -> PeakMemory:
    """Return the peak memory of the ranks of a stage."""
    plan, number = costs.plan, costs.number
    dense, experts = rank_parameters(costs, stage)
    shared = -(-dense // plan.replicas) + -(-experts // plan.expert_replicas)
    every = dense + experts
    kept = kept_by_chunks(costs, stage, 1.0 if eager else _FUSED)
    # In addition, the input of the output layer, of all tensor ranks, and its gradient.
    logits = _LOGIT_BYTES * costs.head_tokens * costs.products["logits"].outputs + 2 * costs.stream
    largest = max(costs.layer_dense + costs.layer_experts, costs.of_layer(0).layer_dense)
    several = plan.replicas > 1
    if plan.zero >= 2 and several:  # FSDP: all in 32 bits, a shard; products read a gathered copy
        parameters, gradients = 4 * shared, 4 * shared
        # Layers now and next, and the gradient of one before it is scattered. Without gathering
        # again (ZeRO 2) all weights stay; in a pipeline gradients add up whole, in 32 bits.
        gathered = 3 * largest * number if plan.zero == 3 else every * number
        gathered += 4 * every if plan.zero == 2 and plan.pipeline > 1 else 0
        optimizer = 8 * shared
    else:  # weights in 16 bits, gradients in 32, the optimizer with a copy of the weights
        numbers = costs.step.numbers
        parameters, gradients = every * numbers.weights, 4 * every
        gathered, optimizer = 0, (shared if plan.zero else every) * numbers.optimizer
    return PeakMemory(
        parameters=parameters,
        gathered=gathered,
        gradients=gradients,
        optimizer=optimizer,
        activations=most_kept(costs, stage, kept),
        again=_again(costs),
        logits=logits if stage == plan.pipeline - 1 else 0,
    )


def _again(costs: Costs) -> int:
    """Return what the layer in work holds: its activations where they are computed again.

    Gradients of the widest tensors come on top: those of the inner layer and the stream.
    """
    shape, plan = costs.shape, costs.plan
    inner = shape.up_width + shape.feed_forward
    tokens = costs.routed if shape.experts else costs.tokens
    sharers = plan.expert_sharers if shape.experts else plan.tensor
    made = (tokens * inner // sharers + 2 * costs.tokens * shape.hidden) * costs.number
    again = plan.recompute in ("alternate", "full")
    return made + (layer_activations(costs) if again else 0)
