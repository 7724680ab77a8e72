"""Public models by name, from their papers and published configurations; Hugging Face's form."""

import json
from pathlib import Path
from typing import Any

from layerdag._runtime import did_you_mean, read_parsed
from layerdag.errors import DataError, UsageError
from layerdag.workloads.symbolic.shapes._image import Image
from layerdag.workloads.symbolic.shapes._latent import Latent
from layerdag.workloads.symbolic.shapes._shape import ModelShape


def _gpt(name: str, layers: int, hidden: int, heads: int, vocabulary: int = 50257,
         positions: int = 2048) -> ModelShape:  # fmt: skip
    """Return a GPT-2 or GPT-3: learned positions, biases, dropout, tied embeddings."""
    return ModelShape(
        name, layers, hidden, heads, 4 * hidden, vocabulary, positions=positions, tied=True,
        dropout=True,
    )  # fmt: skip


def _llama(name: str, layers: int, hidden: int, heads: int, kv_heads: int, feed_forward: int,
           vocabulary: int, **rest: object) -> ModelShape:  # fmt: skip
    """Return a LLaMA-like model: gated, root-mean-square norm, no biases, untied embeddings."""
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


def model(name: str | Path) -> ModelShape:
    """Return a public model by its name, or the one that a Hugging Face ``config.json`` describes.

    Raises:
        UsageError: If there is no such model.
        DataError: If the file describes a model whose shape is not known here.
    """
    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
    if path.suffix == ".json" or path.is_file():
        return _from_config(path)
    return preset(str(name))


def _from_config(path: Path) -> ModelShape:
    """Read a ``config.json``."""
    try:
        config = json.loads(read_parsed(path, DataError))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is no JSON ({error}); give a model's config.json.") from None
    kind = config.get("model_type") if isinstance(config, dict) else None
    known = ("gpt2", *_LLAMA_LIKE, *_LATENT)
    if kind not in known:
        raise DataError(
            f"{path}: describes a model of type {kind!r}.{did_you_mean(str(kind), known)} Known "
            f"types: {', '.join(known)}."
        )
    reader = _gpt_config if kind == "gpt2" else _llama_config
    if kind in _LATENT:
        reader = _latent_config
        _refuse_latent_parts(config, path)
    else:
        _refuse_parts(config, path)
    for key, value in config.items():
        if key in _NUMBERS and type(value) is not int:
            raise DataError(f"{path}: {key} is {value!r}; it must be a whole number.")
    label = str(config.get("_name_or_path") or path.parent.name or path.stem)
    try:
        return reader(label, config)
    except KeyError as error:
        raise DataError(f"{path}: lacks {error.args[0]!r}, which a {kind} has; add it.") from None


def _gpt_config(name: str, config: dict[str, Any]) -> ModelShape:
    hidden = config["n_embd"]
    return ModelShape(
        name, config["n_layer"], hidden, config["n_head"], config.get("n_inner") or 4 * hidden,
        config["vocab_size"], positions=config["n_positions"],
        tied=config.get("tie_word_embeddings", True), dropout=bool(config.get("resid_pdrop", 0.1)),
    )  # fmt: skip


def _llama_config(name: str, config: dict[str, Any]) -> ModelShape:
    kind = config["model_type"]
    experts = config.get("num_local_experts", config.get("num_experts")) or 0
    inner = config.get("moe_intermediate_size") if experts else None
    attention_bias = config.get("attention_bias", False) or kind in _QKV_BIAS
    return _llama(
        name, config["num_hidden_layers"], config["hidden_size"], config["num_attention_heads"],
        config.get("num_key_value_heads") or config["num_attention_heads"],
        inner or config["intermediate_size"], config["vocab_size"],
        head_size=config.get("head_dim") or 0, tied=config.get("tie_word_embeddings", False),
        biases="qkv" if attention_bias else "none", qk_norm=kind in _QK_NORM,
        experts=experts, experts_per_token=config["num_experts_per_tok"] if experts else 0,
    )  # fmt: skip


def _latent_config(name: str, config: dict[str, Any]) -> ModelShape:
    """Read a DeepSeek-V2 or V3; modules that predict further tokens (MTP) are left out."""
    latent = Latent(
        config["kv_lora_rank"], config["qk_nope_head_dim"], config["qk_rope_head_dim"],
        config["v_head_dim"], config.get("q_lora_rank") or 0,
    )  # fmt: skip
    layers, heads = config["num_hidden_layers"], config["num_attention_heads"]
    experts = config.get("n_routed_experts") or 0
    inner = config["intermediate_size"]
    mixture: dict[str, Any] = {}
    if experts:
        first = config.get("first_k_dense_replace") or 0
        mixture = {
            "experts": experts, "experts_per_token": config["num_experts_per_tok"],
            "shared_experts": config.get("n_shared_experts") or 0,
            "dense_layers": first, "dense_feed_forward": inner if first else 0,
            "router_bias": config["model_type"] == "deepseek_v3",
        }  # fmt: skip
        inner = config["moe_intermediate_size"]
    return _llama(
        name, layers, config["hidden_size"], heads, 0, inner, config["vocab_size"], latent=latent,
        tied=config.get("tie_word_embeddings", False), **mixture,
    )  # fmt: skip


def _refuse_latent_parts(config: dict[str, Any], path: Path) -> None:
    """Refuse what changes the shapes of a DeepSeek and is not known here."""
    if config.get("attention_bias"):
        raise DataError(f"{path}: has attention_bias, which latent attention has not here.")
    if (config.get("moe_layer_freq") or 1) != 1:
        raise DataError(
            f"{path}: has moe_layer_freq {config['moe_layer_freq']!r}, mixtures in some of the "
            "later layers only, which is not known here."
        )
    for key in _LATENT_NUMBERS:
        if config.get(key) is not None and type(config[key]) is not int:
            raise DataError(f"{path}: {key} is {config[key]!r}; it must be a whole number.")


def _refuse_parts(config: dict[str, Any], path: Path) -> None:
    """Refuse what changes shapes and is not known here."""
    for key in ("shared_expert_intermediate_size", "n_shared_experts", "mlp_bias",
                "kv_lora_rank", "mlp_only_layers"):  # fmt: skip
        if config.get(key):
            raise DataError(
                f"{path}: has {key} {config[key]!r}, which the shape of a model here cannot say; "
                "describe a near model in Python with ModelShape."
            )
    if (config.get("decoder_sparse_step") or 1) != 1:
        raise DataError(f"{path}: has mixtures in some layers only, which is not known here.")


_LLAMA_LIKE = ("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe")
_LATENT = ("deepseek_v2", "deepseek_v3")
_LATENT_NUMBERS = (
    "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
    "n_routed_experts", "n_shared_experts", "num_experts_per_tok", "moe_intermediate_size",
    "first_k_dense_replace",
)  # fmt: skip
_NUMBERS = (
    "hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "vocab_size",
    "n_embd", "n_head", "n_layer", "n_positions",
)  # fmt: skip
_QKV_BIAS = ("qwen2",)
_QK_NORM = ("qwen3", "qwen3_moe")
