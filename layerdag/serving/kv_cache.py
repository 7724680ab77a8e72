"""The paged KV cache of one rank: blocks of tokens, shared between prompts with equal prefixes.

How many there are follows from what weights and activations leave of a device.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import final

from layerdag.errors import ConfigError
from layerdag.serving.iteration_work import IterationWork

RESERVED_BYTES = 1.5 * 2**30
"""What runtime, communication buffers and captured graphs take of a device."""


@final
class KVCache:
    """Blocks that are held, kept for reuse, or free (Kwon et al. 2023, PagedAttention).

    Whole hashed parts of prompts stay after their request has ended, until their place is needed:
    the part that was used longest ago goes first.

    ``hash_tokens`` are the tokens of a hashed part of a prompt, a multiple of ``block_tokens``; 0
    where nothing is reused.
    """

    def __init__(self, blocks: int, block_tokens: int = 16, hash_tokens: int = 0) -> None:
        self.blocks = blocks
        self.block_tokens = block_tokens
        self.hash_tokens = hash_tokens
        self._part = -(-hash_tokens // block_tokens)
        self._held = 0
        self._users: dict[int, int] = {}
        self._unused: OrderedDict[int, None] = OrderedDict()

    @property
    def held(self) -> int:
        """Blocks of running requests, shared ones counted once."""
        return self._held

    @property
    def free(self) -> int:
        """Blocks that can be had, those kept for reuse among them."""
        return self.blocks - self._held

    def of(self, tokens: int) -> int:
        """Return the blocks that so many tokens fill."""
        return -(-tokens // self.block_tokens)

    def matched(self, hashes: Sequence[int]) -> int:
        """Return how many of a prompt's parts are there, from the first one on."""
        count = 0
        for key in hashes:
            if key not in self._users and key not in self._unused:
                break
            count += 1
        return count

    def unused(self, hashes: Sequence[int]) -> int:
        """Return the blocks of these parts that no running request holds."""
        return self._part * sum(key in self._unused for key in hashes)

    def take(self, blocks: int) -> None:
        """Hold more blocks; the caller has seen that they are free."""
        self._held += blocks
        while self._held + self._part * len(self._unused) > self.blocks:
            self._unused.popitem(last=False)

    def give_back(self, blocks: int) -> None:
        """Free blocks that no other request can use."""
        self._held -= blocks

    def share(self, hashes: Sequence[int]) -> int:
        """Hold these parts, which are there; return their blocks."""
        for key in hashes:
            if key in self._unused:
                del self._unused[key]
                self._held += self._part
            self._users[key] = self._users.get(key, 0) + 1
        return self._part * len(hashes)

    def publish(self, hashes: Sequence[int]) -> list[int]:
        """Let others use parts that the caller holds; return those that nobody offered before.

        Of parts that another request offers already the caller keeps its own copy.
        """
        fresh = [key for key in dict.fromkeys(hashes) if key not in self._users]
        for key in fresh:
            self._unused.pop(key, None)
            self._users[key] = 1
        return fresh

    def unshare(self, hashes: Sequence[int]) -> None:
        """Let go of parts; they stay for reuse while there is place."""
        for key in reversed(hashes):
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key]
                self._held -= self._part
                self._unused[key] = None


def cache_blocks(
    work: IterationWork, memory: float, share: float, tokens: int, sequences: int, block: int
) -> int:
    """Return the blocks, of ``block`` tokens, of the cache of a rank.

    The engine takes a share of the bytes of a device; its largest iteration has ``tokens`` of
    ``sequences``.

    Raises:
        ConfigError: If weights and activations leave no place for a block; says what they need.
    """
    shape, tensor = work.shape, work.plan.tensor
    widest = max(shape.up_width, shape.query_width) / tensor
    if shape.experts:
        widest = max(widest, shape.up_width * shape.experts_per_token / work.plan.expert)
    # Activations and logits of the largest iteration.
    needed = tokens * 2.0 * (4 * shape.hidden + 2 * widest) + sequences * 4.0 * work.head[0]
    needed = work.weight_bytes + needed + RESERVED_BYTES
    blocks = int((memory * share - needed) // (work.cached_bytes * block))
    if blocks < 1:
        raise ConfigError(
            f"{work.shape.name} in {work.formats.precision} on {work.plan.ranks} devices needs "
            f"{needed / 2**30:.1f} GiB of each for weights ({work.weight_bytes / 2**30:.1f}), "
            f"activations and the engine; {share:.0%} of {memory / 2**30:.1f} GiB leave no place "
            "for a cache. Raise tensor or memory_share, or lower the precision."
        )
    return blocks
