"""How many blocks of KV cache a device holds beside weights and activations."""

from layerdag.errors import ConfigError
from layerdag.serving.iteration_work import IterationWork

RESERVED_BYTES = 1.5 * 2**30
"""What runtime, communication buffers and captured graphs take of a device."""


def activation_bytes(work: IterationWork, tokens: int, sequences: int) -> float:
    """Return the bytes of the largest iteration's activations and logits on a device."""
    shape, tensor = work.shape, work.plan.tensor
    widest = max(shape.up_width, shape.query_width) / tensor
    if shape.experts:
        widest = max(widest, shape.up_width * shape.experts_per_token / work.plan.expert)
    return tokens * 2.0 * (4 * shape.hidden + 2 * widest) + sequences * 4.0 * work.head[0]


def cache_blocks(
    work: IterationWork, memory: float, share: float, tokens: int, sequences: int, block: int
) -> int:
    """Return the blocks of the cache of a rank.

    Args:
        work: Model and plan.
        memory: Bytes of a device.
        share: Of it that the engine takes.
        tokens: Most tokens of an iteration.
        sequences: Most sequences of it.
        block: Tokens of a block.

    Raises:
        ConfigError: If weights and activations leave no place for a block; says what they need.
    """
    needed = work.weight_bytes + activation_bytes(work, tokens, sequences) + RESERVED_BYTES
    blocks = int((memory * share - needed) // (work.cached_bytes * block))
    if blocks < 1:
        raise ConfigError(
            f"{work.shape.name} in {work.plan.precision} on {work.plan.devices} devices needs "
            f"{needed / 2**30:.1f} GiB of each for weights ({work.weight_bytes / 2**30:.1f}), "
            f"activations and the engine; {share:.0%} of {memory / 2**30:.1f} GiB leave no place "
            "for a cache. Raise tensor or memory_share, or lower the precision."
        )
    return blocks
