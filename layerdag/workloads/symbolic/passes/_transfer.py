"""Keys and values on their way from ranks that prefill to ranks that decode."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from layerdag.workloads.symbolic.passes._tape import Nodes, Tape


@dataclass(frozen=True)
class Message:
    """A part of the cache, or of sampled tokens, between two ranks.

    Attributes:
        slot: Number of the other rank among those that this rank exchanges the cache with.
        size: Bytes.
        tag: Unique between the two ranks.
    """

    slot: int
    size: int
    tag: int


@final
@dataclass(frozen=True)
class Transfer:
    """What the ranks of a class send, or receive, by (layer, micro-batch).

    The layer behind the last one stands for the tokens that prefill samples.

    Attributes:
        sent: Messages that leave when a layer is computed.
        received: Messages that the first decoded token waits for.
    """

    sent: Mapping[tuple[int, int], tuple[Message, ...]] = field(default_factory=dict)
    received: Mapping[tuple[int, int], tuple[Message, ...]] = field(default_factory=dict)

    def send(self, tape: Tape, what: str, at: tuple[int, int], after: Nodes) -> None:
        """Write the sends of what a (layer, micro-batch) made: "kv" or "tokens"."""
        for message in self.sent.get(at, ()):
            name = f"send_{what}.{at[0]}.F{at[1]}.to{message.slot}.{message.tag}"
            tape.send(name, message.slot, message.size, message.tag, after)

    def receive(self, tape: Tape, what: str, at: tuple[int, int]) -> Nodes:
        """Write the receives of what a (layer, micro-batch) needs; return them."""
        made: list[int] = []
        for message in self.received.get(at, ()):
            name = f"recv_{what}.{at[0]}.F{at[1]}.from{message.slot}.{message.tag}"
            made += tape.receive(name, message.slot, message.size, message.tag)
        return tuple(made)
