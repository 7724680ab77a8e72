"""The settings of both models as trees; configs/model has a file for each with the same keys.

Where a part can be left out or exchanged, the setting names the choice, and the constructor takes
the component of that name (configs/experiment/ablation, docs/explanation/fast-model.md). A value
out of bounds raises ConfigError.
"""

from dataclasses import dataclass, field
from typing import Literal

from layerdag.errors import ConfigError
from layerdag.models.bounds import MAX_DEPTH, MAX_STEPS, MAX_WIDTH, require_valid

HEAD_WIDTH = 32
"""Width of an attention head, and of the keys of candidate parents."""

POSITION_BUCKETS = (1, 2, 3, 5, 9, 17, 33, 65, 129, 257, 513)
"""First position of each bucket after bucket 0, which holds the start token alone."""

_MAX_POSITION = 1_000_000


@dataclass(frozen=True)
class EncoderConfig:
    """The causal encoder.

    Attributes:
        kind: "window", or the name of an encoder that ``register_encoder`` or an entry point adds
            (docs/tutorials/own-encoder.md).
        block: Tokens per attention block.
        attention: What a token sees of earlier ones: "window" (its own block and the one before
            token by token, one mean per older block), or "none".
        messages: What a token gets from its parents: the "mean" of their values, or "none".
        dropout: Fraction of the encoder's inputs and outputs dropped in training.
        token_dropout: Fraction of tokens whose embedding is zeroed in training; with a few hundred
            graphs the model would otherwise memorize prefixes.
    """

    kind: str = "window"
    block: int = 64
    attention: Literal["window", "none"] = "window"
    messages: Literal["mean", "none"] = "mean"
    dropout: float = 0.1
    token_dropout: float = 0.15

    def __post_init__(self) -> None:
        rate = (0, 1)
        bounds = {"block": (1, MAX_WIDTH), "dropout": rate, "token_dropout": rate}
        require_valid("fast", "encoder", self, **bounds)


@dataclass(frozen=True)
class ConditioningConfig:
    """How the conditions of a graph reach its tokens.

    Attributes:
        dropout: Fraction of conditions hidden in training, for guidance.
        position_buckets: First position of each bucket after bucket 0. The tokens of a bucket get a
            condition vector of their own; without any, all tokens get the same.
        remaining_sizes: "encoded": every token knows how many nodes and layers are still to come of
            those asked for; "none": it does not. None: "encoded" in jobs of traces with both
            numbers among their conditions, "none" elsewhere.
    """

    dropout: float = 0.1
    position_buckets: tuple[int, ...] = POSITION_BUCKETS
    remaining_sizes: Literal["encoded", "none"] | None = None

    def __post_init__(self) -> None:
        require_valid("fast", "conditioning", self, dropout=(0, 1))
        starts, where = self.position_buckets, "'conditioning.position_buckets' must be"
        if len(starts) > MAX_DEPTH:
            raise ConfigError(f"model 'fast': {where} at most {MAX_DEPTH}, found {len(starts):,}.")
        if starts != tuple(sorted(set(starts))) or any(
            not 1 <= start <= _MAX_POSITION for start in starts
        ):
            raise ConfigError(
                f"model 'fast': {where} ascending positions from 1 to {_MAX_POSITION:,}, found "
                f"{list(starts)!r:.60}."
            )


@dataclass(frozen=True)
class HeadsConfig:
    """The decisions about a node.

    Attributes:
        attributes: Whether each attribute after the first is "chained" to those before it, or
            "independent" of them.
        parent_features: What candidate parents are scored by beside query and key: "dynamic"
            features (children so far, offset, gap), or "none".
        chosen_parents: What a further parent is chosen by, of those that the node has: the first
            and the "last", or "all" of them, which rules about all parents of a node need.
    """

    attributes: Literal["chained", "independent"] = "chained"
    parent_features: Literal["dynamic", "none"] = "dynamic"
    chosen_parents: Literal["last", "all"] = "last"

    def __post_init__(self) -> None:
        require_valid("fast", "heads", self)


@dataclass(frozen=True)
class ConstraintConfig:
    """What a sampled graph may not do.

    Attributes:
        out_degree: "observed": no node has more children than any training node of its kind, or
            than predicted for it, and numbers that no training node has count as violations;
            "unlimited": any number.
        neighbors: "observed": where several graphs are drawn for one, those go on whose nodes have
            parents and children as several training graphs have; "unlimited": whichever. None:
            "observed" in jobs of traces, "unlimited" in flow graphs, which need it less and would
            be copies more often.
        attributes: "observed": attributes that several training graphs show to go together, such as
            an operator and its type, do so in every node; "unlimited": each is drawn given the
            others. None: as ``neighbors``.
        edge_types: "observed": the edges to a node have types that those to training nodes of its
            kind have together, such as each place of an operator's arguments once; "unlimited":
            each is drawn by itself. None: "observed" in programs, else "unlimited".
    """

    out_degree: Literal["observed", "unlimited"] = "observed"
    neighbors: Literal["observed", "unlimited"] | None = None
    attributes: Literal["observed", "unlimited"] | None = None
    edge_types: Literal["observed", "unlimited"] | None = None

    def __post_init__(self) -> None:
        require_valid("fast", "constraints", self)


@dataclass(frozen=True)
class PosteriorConfig:
    """The network that predicts the conditions of a graph.

    Attributes:
        width: Features of a node; None: three quarters of the model's width.
        rounds: Rounds of message passing.
        dropout: Fraction of features dropped in training.
    """

    width: int | None = None
    rounds: int = 3
    dropout: float = 0.1

    def __post_init__(self) -> None:
        bounds = {"width": (1, MAX_WIDTH), "rounds": (0, MAX_DEPTH), "dropout": (0, 1)}
        require_valid("fast", "posterior", self, **bounds)


@dataclass(frozen=True)
class FastConfig:
    """Every setting of the fast model.

    Attributes:
        width: Width of the encoder, a multiple of 32 (one attention head each).
        depth: Number of encoder blocks.
        predict_out_degree: Whether to predict the out-degree of every node. This helps where it
            follows from earlier nodes, as in the kernels of TPU Tile, and hurts where it does not,
            as in training jobs (docs/explanation/fast-model.md, "What each part is worth"). None
            leaves it to the data set: in flow graphs, not in jobs. Without a data set it is
            predicted.
        encoder: The causal encoder.
        conditioning: How conditions reach the tokens.
        heads: The decisions about a node.
        constraints: What a sampled graph may not do.
        posterior: The network that predicts conditions.
    """

    width: int = 128
    depth: int = 3
    predict_out_degree: bool | None = None
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    conditioning: ConditioningConfig = field(default_factory=ConditioningConfig)
    heads: HeadsConfig = field(default_factory=HeadsConfig)
    constraints: ConstraintConfig = field(default_factory=ConstraintConfig)
    posterior: PosteriorConfig = field(default_factory=PosteriorConfig)

    def __post_init__(self) -> None:
        require_valid("fast", "", self, width=(1, MAX_WIDTH), depth=(1, MAX_DEPTH))
        if self.width % HEAD_WIDTH:
            raise ConfigError(
                f"The fast model needs a width that is a multiple of {HEAD_WIDTH}, found "
                f"{self.width}."
            )

    @property
    def posterior_width(self) -> int:
        """Width of the posterior."""
        return self.posterior.width or 3 * self.width // 4


@dataclass(frozen=True)
class LayerSizeConfig:
    """The network that draws the size of a layer.

    Attributes:
        width: Width of the prefix encoder, even.
        rounds: Its rounds of message passing.
    """

    width: int = 64
    rounds: int = 3

    def __post_init__(self) -> None:
        bounds = {"width": (1, MAX_WIDTH), "rounds": (0, MAX_DEPTH)}
        require_valid("reference", "layer_size", self, **bounds)
        _require_even("layer_size", self.width)


@dataclass(frozen=True)
class NodeConfig:
    """The denoiser of node attributes.

    Attributes:
        width: Width of the prefix encoder and of the new nodes, even.
        rounds: Rounds of message passing of the prefix encoder.
        blocks: Transformer blocks over the nodes of the new layer.
        heads: Their attention heads, which divide the width.
        steps: Diffusion steps.
    """

    width: int = 64
    rounds: int = 2
    blocks: int = 1
    heads: int = 4
    steps: int = 64

    def __post_init__(self) -> None:
        width, depth = (1, MAX_WIDTH), (0, MAX_DEPTH)
        bounds = {"width": width, "heads": width, "rounds": depth, "blocks": depth}
        require_valid("reference", "node", self, **bounds, steps=(1, MAX_STEPS))
        _require_even("node", self.width)
        if self.blocks and self.width % self.heads:
            raise ConfigError(
                f"model 'reference': 'node.width' must be a multiple of 'node.heads', found "
                f"{self.width} and {self.heads}."
            )


@dataclass(frozen=True)
class EdgeConfig:
    """The denoiser of edges.

    Attributes:
        width: Width of the encoder of prefix, new nodes and noisy edges, even.
        rounds: Its rounds of message passing.
        steps: Diffusion steps.
    """

    width: int = 64
    rounds: int = 4
    steps: int = 16

    def __post_init__(self) -> None:
        bounds = {"width": (1, MAX_WIDTH), "rounds": (0, MAX_DEPTH), "steps": (1, MAX_STEPS)}
        require_valid("reference", "edge", self, **bounds)
        _require_even("edge", self.width)


@dataclass(frozen=True)
class ReferenceConditioningConfig:
    """How the conditions of a graph reach the networks.

    Attributes:
        dropout: Fraction of conditions hidden in training, for guidance.
    """

    dropout: float = 0.1

    def __post_init__(self) -> None:
        require_valid("reference", "conditioning", self, dropout=(0, 1))


@dataclass(frozen=True)
class ReferenceConfig:
    """Every setting of the reference model.

    Attributes:
        layer_size: The network that draws the size of a layer.
        node: The denoiser of node attributes.
        edge: The denoiser of edges.
        conditioning: How conditions reach the networks.
        budget: Nodes of prefixes and candidate edges evaluated per pass, about 6 kB of memory each
            at the default widths. Where all prefixes of a batch have more (a deep graph has layers
            x nodes / 2), a random part of them is taken; 0 always takes all.
        sampling_precision: "float64", by which a graph does not depend on its batch mates, or
            "float32", which is faster.
    """

    layer_size: LayerSizeConfig = field(default_factory=LayerSizeConfig)
    node: NodeConfig = field(default_factory=NodeConfig)
    edge: EdgeConfig = field(default_factory=EdgeConfig)
    conditioning: ReferenceConditioningConfig = field(default_factory=ReferenceConditioningConfig)
    budget: int = 300_000
    sampling_precision: Literal["float64", "float32"] = "float64"

    def __post_init__(self) -> None:
        require_valid("reference", "", self, budget=(0, 10**9))


def _require_even(part: str, width: int) -> None:
    """Refuse a width of which sines and cosines cannot take a half each."""
    if width % 2:
        raise ConfigError(f"model 'reference': '{part}.width' must be even, found {width}.")
