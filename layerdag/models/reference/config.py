"""The settings of the reference model as a tree; configs/model/reference.yaml has the same keys."""

from dataclasses import dataclass, field
from typing import Literal

from layerdag.errors import ConfigError
from layerdag.models.base import MAX_DEPTH, MAX_STEPS, MAX_WIDTH, require_between, require_choices


@dataclass(frozen=True)
class LayerSizeConfig:
    """The network that draws the size of a layer.

    Attributes:
        width: Width of the prefix encoder, even.
        rounds: Its rounds of message passing.

    Raises:
        ConfigError: If a value is out of bounds, or the width is odd.
    """

    width: int = 64
    rounds: int = 3

    def __post_init__(self) -> None:
        _require_even_width("layer_size", self.width)
        require_between("reference", 0, MAX_DEPTH, **{"layer_size.rounds": self.rounds})


@dataclass(frozen=True)
class NodeConfig:
    """The denoiser of node attributes.

    Attributes:
        width: Width of the prefix encoder and of the new nodes, even.
        rounds: Rounds of message passing of the prefix encoder.
        blocks: Transformer blocks over the nodes of the new layer.
        heads: Their attention heads, which divide the width.
        steps: Diffusion steps.

    Raises:
        ConfigError: If a value is out of bounds, or the width is odd or no multiple of the heads.
    """

    width: int = 64
    rounds: int = 2
    blocks: int = 1
    heads: int = 4
    steps: int = 64

    def __post_init__(self) -> None:
        depths = {"node.rounds": self.rounds, "node.blocks": self.blocks}
        _require_even_width("node", self.width)
        require_between("reference", 1, MAX_WIDTH, **{"node.heads": self.heads})
        require_between("reference", 0, MAX_DEPTH, **depths)
        require_between("reference", 1, MAX_STEPS, **{"node.steps": self.steps})
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

    Raises:
        ConfigError: If a value is out of bounds, or the width is odd.
    """

    width: int = 64
    rounds: int = 4
    steps: int = 16

    def __post_init__(self) -> None:
        _require_even_width("edge", self.width)
        require_between("reference", 0, MAX_DEPTH, **{"edge.rounds": self.rounds})
        require_between("reference", 1, MAX_STEPS, **{"edge.steps": self.steps})


@dataclass(frozen=True)
class ReferenceConditioningConfig:
    """How the conditions of a graph reach the networks.

    Attributes:
        dropout: Fraction of conditions hidden in training, for guidance.
    """

    dropout: float = 0.1

    def __post_init__(self) -> None:
        require_between("reference", 0, 1, **{"conditioning.dropout": self.dropout})


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

    Raises:
        ConfigError: If a value is out of bounds.
    """

    layer_size: LayerSizeConfig = field(default_factory=LayerSizeConfig)
    node: NodeConfig = field(default_factory=NodeConfig)
    edge: EdgeConfig = field(default_factory=EdgeConfig)
    conditioning: ReferenceConditioningConfig = field(default_factory=ReferenceConditioningConfig)
    budget: int = 300_000
    sampling_precision: Literal["float64", "float32"] = "float64"

    def __post_init__(self) -> None:
        require_choices("reference", "", self)
        require_between("reference", 0, 1e9, budget=self.budget)


def _require_even_width(part: str, width: int) -> None:
    """Refuse a width of which sines and cosines cannot take a half each.

    Raises:
        ConfigError: Names the setting.
    """
    require_between("reference", 1, MAX_WIDTH, **{f"{part}.width": width})
    if width % 2:
        raise ConfigError(f"model 'reference': '{part}.width' must be even, found {width}.")
