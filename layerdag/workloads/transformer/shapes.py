"""The sizes of a transformer, and public models by name."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal

from layerdag.errors import ConfigError, UsageError
from layerdag.runtime.notes import Note, NoteKind
from layerdag.runtime.settings import did_you_mean


def _require_whole(where: str, settings: object, least: Mapping[str, int]) -> None:
    for name, number in least.items():
        value = getattr(settings, name)
        if type(value) is not int or value < number:
            raise ConfigError(
                f"{where}: {name} is {value!r}; it must be a whole number of at least {number}."
            )


@dataclass(frozen=True)
class Image:
    """The images that a vision or diffusion transformer reads instead of words.

    Attributes:
        size: Pixels of a side; of the latent image in latent diffusion.
        patch: Pixels of a side of a patch, which becomes a token.
        channels: Numbers of a pixel.
        class_token: Whether one token more is added, from which alone the classes are computed.
        labels: Rows of the table of labels that condition a diffusion transformer; 0 for none.

    Raises:
        ConfigError: If a number is not possible or patches do not fill the image.
    """

    size: int = 224
    patch: int = 16
    channels: int = 3
    class_token: bool = True
    labels: int = 0

    def __post_init__(self) -> None:
        _require_whole("image", self, {"size": 1, "patch": 1, "channels": 1, "labels": 0})
        if self.size % self.patch:
            raise ConfigError(
                f"image: patches of {self.patch} pixels do not fill a side of {self.size}."
            )

    @property
    def patches(self) -> int:
        """Patches of an image."""
        return (self.size // self.patch) ** 2

    @property
    def tokens(self) -> int:
        """Tokens of an image."""
        return self.patches + self.class_token

    @property
    def patch_numbers(self) -> int:
        """Numbers of a patch."""
        return self.channels * self.patch**2


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention (DeepSeek-AI 2024, section 2.1 of the V2 report).

    A token is compressed to ``kv_rank`` numbers, from which keys and values of all heads are made,
    and ``rope_width`` numbers of rotary position that all heads share. The KV cache holds both.

    Attributes:
        kv_rank: Width of the compressed keys and values (``kv_lora_rank``).
        nope_width: Width of a head's key without positions (``qk_nope_head_dim``).
        rope_width: Width of the rotary part of queries and keys (``qk_rope_head_dim``).
        value_width: Width of a head's value (``v_head_dim``).
        query_rank: Width of the compressed query (``q_lora_rank``); 0 where it is not compressed.

    Raises:
        ConfigError: If a width is not possible.
    """

    kv_rank: int = 512
    nope_width: int = 128
    rope_width: int = 64
    value_width: int = 128
    query_rank: int = 0

    def __post_init__(self) -> None:
        least = {each.name: int(each.name != "query_rank") for each in fields(self)}
        _require_whole("latent attention", self, least)

    @property
    def key_width(self) -> int:
        """Width of a head's query and key."""
        return self.nope_width + self.rope_width

    @property
    def expanded_width(self) -> int:
        """Width of one head's keys and values, expanded from the compressed ones."""
        return self.nope_width + self.value_width

    @property
    def cached_width(self) -> int:
        """Numbers of a token in the KV cache of a layer."""
        return self.kv_rank + self.rope_width

    @property
    def compressed_width(self) -> int:
        """Outputs of the compressing layers, the same on all tensor ranks."""
        return self.query_rank + self.cached_width

    @property
    def norm_parameters(self) -> int:
        """Weights of the norms of compressed queries, keys and values."""
        return self.query_rank + self.kv_rank

    def expanding_parameters(self, hidden: int, heads: int) -> int:
        """Return the weights that make queries, keys and values of ``heads`` heads."""
        queries = (self.query_rank or hidden) * self.key_width
        return heads * (queries + self.kv_rank * self.expanded_width)

    def shared_parameters(self, hidden: int) -> int:
        """Return the weights that all tensor ranks hold: compressing layers and norms."""
        return hidden * self.compressed_width + self.norm_parameters


MAX_SIZE = 10**8
"""Largest width, vocabulary or number of layers; products of three of them are no figures."""

Biases = Literal["none", "qkv", "attention", "all"]
Norm = Literal["layer", "rms", "adaptive"]

TIME_FREQUENCIES = 256
"""Inputs of the network that embeds the time step of a diffusion transformer (DiT)."""


@dataclass(frozen=True)
class ModelShape:
    """A transformer: decoder-only for text, or an encoder of images.

    Attributes:
        hidden: Width of the residual stream.
        feed_forward: Inner width of the feed-forward block, of one expert in a mixture.
        vocabulary: Tokens, as the embedding table has rows; with ``image`` the outputs: classes, or
            numbers of a patch.
        kv_heads: Key and value heads; 0 for as many as query heads.
        head_size: Width of one head; 0 for ``hidden / heads``.
        positions: Rows of a learned position embedding; 0 for rotary or no positions.
        gated: Whether the feed-forward block has a gate (three matrices instead of two).
        norm: "layer" (weight and bias), "rms" (weight) or "adaptive" (no parameters: scale, shift
            and gate are computed from time step and label, adaLN-Zero).
        biases: Which linear layers have a bias; "attention" is queries, keys, values and output.
        qk_norm: Whether queries and keys are normalized per head.
        tied: Whether the output layer is the transposed embedding table.
        dropout: Whether training applies dropout, whose masks are kept for the backward pass.
        experts: Experts of each mixture; 0 for a dense model.
        experts_per_token: Experts that each token is sent to.
        latent: Widths of multi-head latent attention, in place of ``kv_heads`` and ``head_size``.
        shared_experts: Experts of each mixture that every token passes.
        dense_layers: Layers before the first mixture, which have a feed-forward block of their own.
        dense_feed_forward: Inner width of that block; 0 without such layers.
        router_bias: Whether the router has a bias, one number for each expert.
        window: Tokens that every other layer attends to (gpt-oss); 0 where all attend to all. Costs
            are the mean of both kinds of layers.
        notes: What the file that describes it says and is not known.

    Raises:
        ConfigError: If a number is not possible; names it.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    feed_forward: int
    vocabulary: int
    kv_heads: int = 0
    head_size: int = 0
    positions: int = 0
    gated: bool = False
    norm: Norm = "layer"
    biases: Biases = "all"
    qk_norm: bool = False
    tied: bool = False
    dropout: bool = False
    experts: int = 0
    experts_per_token: int = 0
    image: Image | None = None
    latent: Latent | None = None
    shared_experts: int = 0
    dense_layers: int = 0
    dense_feed_forward: int = 0
    router_bias: bool = False
    window: int = 0
    notes: tuple[Note, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.type is not int:
                continue
            least = 1 if each.name in _AT_LEAST_ONE else 0
            if type(value) is not int or not least <= value <= MAX_SIZE:
                raise ConfigError(
                    f"model {self.name}: {each.name} is {value!r:.60}; it must be a whole number "
                    f"of at least {least} and at most {MAX_SIZE:,}."
                )
        fault = next(self._faults(), None)
        if fault:
            raise ConfigError(f"model {self.name}: {fault}.")

    def _faults(self) -> Iterator[str]:
        if (self.norm == "adaptive") != bool(self.image and self.image.labels):
            yield "adaptive norms need an image with labels to adapt to, and the other way round"
        experts, chosen = self.experts, self.experts_per_token
        if bool(experts) != bool(chosen) or chosen > experts:
            yield (
                f"{chosen} of {experts} experts a token make no mixture; give both numbers, or "
                "neither"
            )
        if not experts and (self.shared_experts or self.dense_layers or self.router_bias):
            yield (
                "shared_experts, dense_layers and router_bias belong to a mixture; give experts, "
                "or leave them out"
            )
        if bool(self.dense_layers) != bool(self.dense_feed_forward):
            yield (
                f"{self.dense_layers} dense layers of inner width {self.dense_feed_forward}; give "
                "both numbers, or neither"
            )
        if self.dense_layers > self.layers:
            yield f"{self.dense_layers} dense layers are more than all of its {self.layers} layers"
        own = self.kv_heads in (0, self.heads) and not (self.head_size or self.qk_norm)
        if self.latent and (not own or self.image):
            yield (
                "latent attention has widths of its own and reads text; leave kv_heads, head_size, "
                "qk_norm and image out"
            )
        if self.latent and self.biases != "none":
            yield "latent attention is known without biases; set biases to 'none'"
        if not self.latent and not self.head_size and self.hidden % self.heads:
            yield f"{self.heads} heads do not divide the width {self.hidden}; give head_size"
        if self.heads % self.key_heads:
            yield f"{self.heads} query heads are no multiple of {self.key_heads} key heads"

    @property
    def key_heads(self) -> int:
        """Key heads, as many as value heads."""
        return self.kv_heads or self.heads

    @property
    def head_width(self) -> int:
        """Width of a head's query and key."""
        if self.latent:
            return self.latent.key_width
        return self.head_size or self.hidden // self.heads

    @property
    def value_head_width(self) -> int:
        """Width of a head's value."""
        return self.latent.value_width if self.latent else self.head_width

    @property
    def query_width(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head_width

    @property
    def output_width(self) -> int:
        """Width of what attention makes of all heads: the input of its last linear layer."""
        return self.heads * self.value_head_width

    @property
    def kv_width(self) -> int:
        """Width of all key heads together."""
        return self.key_heads * self.head_width

    @property
    def value_width(self) -> int:
        """Width of all value heads together."""
        return self.key_heads * self.value_head_width

    @property
    def cached_width(self) -> int:
        """Numbers of a token in the KV cache of a layer, of all tensor ranks."""
        return self.latent.cached_width if self.latent else self.kv_width + self.value_width

    @property
    def up_width(self) -> int:
        """Outputs of the first linear layer of a feed-forward block: twice as many with a gate."""
        return self.feed_forward * (2 if self.gated else 1)

    @property
    def norm_parameters(self) -> int:
        """Parameters of one normalization of the residual stream."""
        return self.hidden * {"layer": 2, "rms": 1, "adaptive": 0}[self.norm]

    @property
    def attention_parameters(self) -> int:
        """Parameters of the attention block of one layer, without its normalization."""
        if self.latent:
            count = self.latent.shared_parameters(self.hidden) + self.output_width * self.hidden
            return count + self.latent.expanding_parameters(self.hidden, self.heads)
        qkv = self.query_width + 2 * self.kv_width
        count = self.hidden * qkv + self.query_width * self.hidden
        count += qkv if self.biases != "none" else 0
        count += self.hidden if self.biases in ("attention", "all") else 0
        return count + (2 * self.head_width if self.qk_norm else 0)

    @property
    def expert_parameters(self) -> int:
        """Parameters of one feed-forward block (of one expert in a mixture)."""
        count = self.hidden * (self.up_width + self.feed_forward)
        return count + (self.up_width + self.hidden if self.biases == "all" else 0)

    @property
    def router_parameters(self) -> int:
        """Parameters of the router of one layer, 0 in a dense model."""
        return (self.hidden + self.router_bias) * self.experts

    @property
    def modulations(self) -> int:
        """Vectors that a layer computes from time step and label: two scales, shifts, gates."""
        return 6 if self.norm == "adaptive" else 0

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer; with a mixture, where the model has any."""
        return (
            self.attention_parameters
            + (max(self.experts, 1) + self.shared_experts) * self.expert_parameters
            + self.router_parameters
            + 2 * self.norm_parameters
            + self.modulations * self.hidden * (self.hidden + 1)
        )

    def beyond_positions(self, length: int) -> tuple[Note, ...]:
        """Return a note if a sequence of ``length`` tokens has more than the learned positions."""
        if self.image is not None or not 0 < self.positions < length:
            return ()
        effect = (
            f"more tokens than the {self.positions:,} learned positions of the model, which cannot "
            "run so; counted as if it could"
        )
        return (Note(NoteKind.NUMBER, f"sequence of {length}", self.name, effect),)

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the token (or patch, class, time step, label) and position embeddings."""
        if self.image is None:
            return (self.vocabulary + self.positions) * self.hidden
        rows = self.image.patch_numbers + 1 + self.positions + self.image.class_token
        if self.norm == "adaptive":
            rows += self.image.labels + TIME_FREQUENCIES + 1 + self.hidden + 1
        return rows * self.hidden

    @property
    def output_parameters(self) -> int:
        """Parameters of the output layer, the tied ones not counted."""
        if self.image is None:
            return 0 if self.tied else self.vocabulary * self.hidden
        modulation = 2 * self.hidden * (self.hidden + 1) if self.norm == "adaptive" else 0
        return modulation + self.vocabulary * (self.hidden + 1)

    @property
    def parameters(self) -> int:
        """Parameters of the model, each counted once."""
        return (
            sum(self.of_layer(layer).layer_parameters for layer in range(self.layers))
            + self.embedding_parameters
            + self.norm_parameters
            + self.output_parameters
        )

    @property
    def active_parameters(self) -> int:
        """Parameters that a token passes: those of all its experts, not of all experts."""
        idle = self.experts - self.experts_per_token if self.experts else 0
        mixtures = self.layers - self.dense_layers
        return self.parameters - mixtures * idle * self.expert_parameters

    def of_layer(self, layer: int) -> "ModelShape":
        """Return the shape of which layer ``layer`` is one, counted from 0: dense or a mixture."""
        return self.dense if layer < self.dense_layers else self

    @cached_property
    def dense(self) -> "ModelShape":
        """The same model without mixtures, as its first layers are; itself where it has none."""
        if not self.dense_layers:
            return self
        return replace(
            self, feed_forward=self.dense_feed_forward, experts=0, experts_per_token=0,
            shared_experts=0, dense_layers=0, dense_feed_forward=0, router_bias=False,
        )  # fmt: skip


_AT_LEAST_ONE = ("layers", "hidden", "heads", "feed_forward", "vocabulary")


def _gpt(name: str, layers: int, hidden: int, heads: int, vocabulary: int = 50257,
         positions: int = 2048) -> ModelShape:  # fmt: skip
    """Return a GPT-2 or GPT-3: learned positions, biases, dropout, tied embeddings."""
    return ModelShape(
        name, layers, hidden, heads, 4 * hidden, vocabulary, positions=positions, tied=True,
        dropout=True,
    )  # fmt: skip


def _llama(name: str, layers: int, hidden: int, heads: int, kv_heads: int, feed_forward: int,
           vocabulary: int, **rest: object) -> ModelShape:  # fmt: skip
    given: dict[str, Any] = {"gated": True, "norm": "rms", "biases": "none", **rest}
    return ModelShape(name, layers, hidden, heads, feed_forward, vocabulary, kv_heads, **given)


def _vit(name: str, layers: int, hidden: int, heads: int, patch: int) -> ModelShape:
    """Return a vision transformer for the 1,000 classes of ImageNet (Dosovitskiy et al. 2021)."""
    image = Image(patch=patch)
    return ModelShape(
        name, layers, hidden, heads, 4 * hidden, 1000, positions=image.tokens, image=image
    )


def _dit(name: str, layers: int, hidden: int, heads: int) -> ModelShape:
    """Return a diffusion transformer on latents of 256 x 256 images (Peebles, Xie 2023).

    It predicts noise and its variance, thus twice the channels. The fixed position table is counted
    as its authors do.
    """
    image = Image(size=32, patch=2, channels=4, class_token=False, labels=1001)
    return ModelShape(
        name, layers, hidden, heads, 4 * hidden, 2 * image.patch_numbers, positions=image.tokens,
        norm="adaptive", image=image,
    )  # fmt: skip


PRESETS = {
    shape.name: shape
    for shape in (
        _gpt("gpt2", 12, 768, 12, positions=1024),
        _gpt("gpt2-xl", 48, 1600, 25, positions=1024),
        _gpt("gpt3-6.7b", 32, 4096, 32),
        _gpt("gpt3-13b", 40, 5120, 40),
        _gpt("gpt3-175b", 96, 12288, 96),
        _gpt("transformer-1t", 128, 25600, 160, vocabulary=51200),
        _llama("llama2-7b", 32, 4096, 32, 32, 11008, 32000),
        _llama("llama2-13b", 40, 5120, 40, 40, 13824, 32000),
        _llama("llama2-70b", 80, 8192, 64, 8, 28672, 32000),
        _llama("llama3-8b", 32, 4096, 32, 8, 14336, 128256),
        _llama("llama3-70b", 80, 8192, 64, 8, 28672, 128256),
        _llama("llama3-405b", 126, 16384, 128, 8, 53248, 128256),
        _llama("llama3.2-1b", 16, 2048, 32, 8, 8192, 128256, tied=True),
        _llama("mistral-7b", 32, 4096, 32, 8, 14336, 32000),
        _llama("mixtral-8x7b", 32, 4096, 32, 8, 14336, 32000, experts=8, experts_per_token=2),
        _llama("mixtral-8x22b", 56, 6144, 48, 8, 16384, 32768, experts=8, experts_per_token=2),
        _llama("qwen2.5-7b", 28, 3584, 28, 4, 18944, 152064, biases="qkv"),
        _llama("qwen2.5-72b", 80, 8192, 64, 8, 29568, 152064, biases="qkv"),
        _llama("qwen3-8b", 36, 4096, 32, 8, 12288, 151936, head_size=128, qk_norm=True),
        _llama("qwen3-30b-a3b", 48, 2048, 32, 4, 768, 151936, head_size=128, qk_norm=True,
               experts=128, experts_per_token=8),
        _llama("qwen3-235b-a22b", 94, 4096, 64, 4, 1536, 151936, head_size=128, qk_norm=True,
               experts=128, experts_per_token=8),
        _llama("deepseek-v2-lite", 27, 2048, 16, 0, 1408, 102400, latent=Latent(),
               experts=64, experts_per_token=6, shared_experts=2, dense_layers=1,
               dense_feed_forward=10944),
        _llama("deepseek-v2", 60, 5120, 128, 0, 1536, 102400, latent=Latent(query_rank=1536),
               experts=160, experts_per_token=6, shared_experts=2, dense_layers=1,
               dense_feed_forward=12288),
        _llama("deepseek-v3", 61, 7168, 128, 0, 2048, 129280, latent=Latent(query_rank=1536),
               experts=256, experts_per_token=8, shared_experts=1, dense_layers=3,
               dense_feed_forward=18432, router_bias=True),
        _vit("vit-b16", 12, 768, 12, 16),
        _vit("vit-l16", 24, 1024, 16, 16),
        _vit("vit-h14", 32, 1280, 16, 14),
        _dit("dit-s-2", 12, 384, 6),
        _dit("dit-b-2", 12, 768, 12),
        _dit("dit-l-2", 24, 1024, 16),
        _dit("dit-xl-2", 28, 1152, 16),
    )
}  # fmt: skip
"""Shapes by name."""


def preset(name: str) -> ModelShape:
    """Return a public model by its name.

    Raises:
        UsageError: If there is none of that name; suggests the nearest.
    """
    if name == "dlrm-v2":
        raise UsageError(
            "dlrm-v2 is a recommendation model, which 'layerdag workload' takes and ld.workload; "
            "studies and captures do not."
        )
    if name not in PRESETS:
        raise UsageError(
            f"There is no model '{name}'.{did_you_mean(name, PRESETS)} Known are "
            f"{', '.join(PRESETS)}; or name a Hugging Face config.json."
        )
    return PRESETS[name]
