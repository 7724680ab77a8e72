"""Contract of encoders: all tokens at once in training, one token of each graph in sampling.

``model.encoder.kind`` names the encoder. The package has "window"; ``register_encoder`` adds
others, and so do entry points of the group "layerdag.encoders".

Shape letters: B graphs, D width of a state, E edges, L layers, P pairs, R rows, T tokens.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from layerdag.errors import UsageError
from layerdag.models.fast.config import EncoderConfig
from layerdag.models.fast.layout import AttentionBlocks
from layerdag.models.layers import gather_rows, segment_mean
from layerdag.runtime.registry import Registry


@dataclass(frozen=True, eq=False)
class TokenGraphs:
    """Where the tokens of a batch stand; tokens of a graph lie in a row, graph after graph.

    Attributes:
        graph_T: Graph of each token.
        position_T: Position of each token in its graph; 0 is the start token, which is no node.
        parent_E: Token of the source of each edge, earlier than its target.
        child_E: Token of the target.
        in_degree_T: Number of parents of each token.
        blocks: The tokens cut into attention blocks.
    """

    graph_T: Int[Tensor, " T"]
    position_T: Int[Tensor, " T"]
    parent_E: Int[Tensor, " E"]
    child_E: Int[Tensor, " E"]
    in_degree_T: Int[Tensor, " T"]
    blocks: AttentionBlocks

    def padded(self, x_TD: Float[Tensor, "T D"]) -> Float[Tensor, "B L D"]:
        """Return a row of tokens for each graph, with zeros behind its last one."""
        graphs, longest = int(self.graph_T[-1]) + 1, int(self.position_T.max()) + 1
        x_BLD = x_TD.new_zeros(graphs, longest, x_TD.shape[1])
        return x_BLD.index_put((self.graph_T, self.position_T), x_TD)

    def flat(self, x_BLD: Float[Tensor, "B L D"]) -> Float[Tensor, "T D"]:
        """Return what ``padded`` returned as rows of tokens again."""
        return x_BLD[self.graph_T, self.position_T]

    def parents_mean(self, x_TD: Float[Tensor, "T D"]) -> Float[Tensor, "T D"]:
        """Return the mean over the parents of each token, zero without parents."""
        return segment_mean(gather_rows(x_TD, self.parent_E), self.child_E, self.in_degree_T)


class ParentList:
    """The parents of the newest node of every row, as pairs of row and position."""

    def __init__(
        self, row_P: Int[Tensor, " P"], position_P: Int[Tensor, " P"], degree_R: Int[Tensor, " R"]
    ) -> None:
        self.row_P, self.position_P, self.degree_R = row_P, position_P, degree_R

    def mean(self, value_PD: Float[Tensor, "P D"]) -> Float[Tensor, "R D"]:
        """Return the mean of the parents' values, zero without parents, shape (R, D)."""
        return segment_mean(value_PD, self.row_P, self.degree_R)


@dataclass(frozen=True, eq=False)
class NewestTokens:
    """Where the newest token of every row stands.

    Attributes:
        position: Its position in its graph, the same in every row; 0 is the start token.
        parents: Its parents.
    """

    position: int
    parents: ParentList


class Encoder(nn.Module, ABC):
    """Turns tokens into states; a state depends on its token and earlier ones of its graph alone.

    Both ways give the same states: ``full`` on all tokens of a batch, and ``step`` on token after
    token of each graph, from the state that the tokens before have left.

    Args:
        width: Width D of tokens and states.
        depth: Number of layers.
        config: Settings of the encoder.
    """

    def __init__(self, width: int, depth: int, config: EncoderConfig) -> None:
        super().__init__()
        self.width, self.depth, self.config = width, depth, config

    @abstractmethod
    def full(self, x_TD: Float[Tensor, "T D"], tokens: TokenGraphs) -> Float[Tensor, "T D"]:
        """Return the state of every token of a batch."""

    @abstractmethod
    def start(self, like_RD: Float[Tensor, "R D"]) -> Any:
        """Return the memory of R rows without tokens; ``like_RD`` has their type and device."""

    @abstractmethod
    def step(
        self, x_RD: Float[Tensor, "R D"], newest: NewestTokens, memory: Any
    ) -> tuple[Float[Tensor, "R D"], Any]:
        """Return the state of the newest token of every row, and the memory with it."""

    def select(self, memory: Any, row_R: Int[Tensor, " R"]) -> Any:
        """Return the memory of the rows ``row_R``: some are dropped, some occur several times.

        This one takes tensors whose first dimension is the rows, and tuples, lists and dicts of
        these.
        """
        if isinstance(memory, Tensor):
            return memory.index_select(0, row_R)
        if isinstance(memory, dict):
            return {name: self.select(part, row_R) for name, part in memory.items()}
        return type(memory)(self.select(part, row_R) for part in memory)


def _check_encoder(name: str, value: Any) -> None:
    if not (isinstance(value, type) and issubclass(value, Encoder)):
        raise UsageError(
            f"The encoder '{name}' must be a subclass of layerdag.models.fast.Encoder, found "
            f"{value!r:.80}."
        )


ENCODERS: Registry[type[Encoder]] = Registry(
    "encoder",
    "layerdag.encoders",
    _check_encoder,
    {"window": "layerdag.models.fast.encoder:WindowEncoder"},
)
"""Encoders by the name that ``model.encoder.kind`` has."""

C = TypeVar("C", bound=type[Encoder])


def register_encoder(name: str) -> Callable[[C], C]:
    """Return a decorator that adds an encoder as ``name``.

    Checkpoints hold the name alone; a process that loads one registers the encoder first.

    Raises:
        UsageError: If the package itself has that name, or the class is no ``Encoder``.
    """

    def registered(cls: C) -> C:
        ENCODERS.register(name, cls)
        return cls

    return registered


def build_encoder(width: int, depth: int, config: EncoderConfig) -> Encoder:
    """Return the encoder that the settings name.

    Raises:
        ConfigError: If nothing has that name.
    """
    return ENCODERS.get(config.kind)(width, depth, config)
