"""Attention whose keys and values are compressed to a latent vector (DeepSeek-V2, V3)."""

from dataclasses import dataclass, fields

from layerdag.errors import ConfigError


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
        for field in fields(self):
            value, least = getattr(self, field.name), int(field.name != "query_rank")
            if type(value) is not int or value < least:
                raise ConfigError(
                    f"latent attention: {field.name} is {value!r}; it must be a whole number of at "
                    f"least {least}."
                )

    @property
    def key_width(self) -> int:
        """Width of a head's query and key."""
        return self.nope_width + self.rope_width

    @property
    def expanded_width(self) -> int:
        """What is made of the compressed keys and values for one head."""
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
