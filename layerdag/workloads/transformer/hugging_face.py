"""The sizes of a transformer, by its name or in a ``config.json`` of Hugging Face."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from layerdag.errors import ConfigError, DataError
from layerdag.runtime.json_shape import found_value, parse_json, plain_reason
from layerdag.runtime.notes import Note, NoteCollector, NoteKind
from layerdag.runtime.reading import read_parsed
from layerdag.runtime.settings import did_you_mean
from layerdag.workloads.transformer.shapes import Biases, Latent, ModelShape, preset


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
        return read_hugging_face(path)
    return preset(str(name))


_LLAMA_LIKE = ("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe")
_LATENT = ("deepseek_v2", "deepseek_v3")
_ALWAYS_MIXTURES = ("mixtral", "qwen3_moe")
_MIXTURES = (*_ALWAYS_MIXTURES, *_LATENT)
_TYPES = ("gpt2", *_LLAMA_LIKE, *_LATENT)
_NO_BIAS = ("mistral", "mixtral")
_QKV_BIAS = ("qwen2",)
_QK_NORM = ("qwen3", "qwen3_moe")

_EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts")
_OF_MIXTURES = ("num_experts_per_tok", "moe_intermediate_size")
_NUMBERS = (
    *("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers"),
    *("vocab_size", "n_embd", "n_head", "n_layer", "n_positions"),
)
_OPTIONAL_NUMBERS = (
    *("num_key_value_heads", "head_dim", "n_inner", *_EXPERTS, *_OF_MIXTURES),
    *("n_shared_experts", "first_k_dense_replace", "moe_layer_freq", "decoder_sparse_step"),
    *("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
)
_SWITCHES = ("tie_word_embeddings", "attention_bias", "mlp_bias")
_ACTIVATIONS = {"hidden_act": ("silu", "swish"), "activation_function": ("gelu_new", "gelu")}
"""Keys of activation functions, and the names of the one that steps are made with."""

_READ = {
    *_NUMBERS,
    *_OPTIONAL_NUMBERS,
    *_SWITCHES,
    *("model_type", "_name_or_path", "resid_pdrop", "mlp_only_layers"),
    "shared_expert_intermediate_size",
    *_ACTIVATIONS,
}
_NOT_ZERO = ("num_key_value_heads", "head_dim", "n_inner")
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?")
"""``model`` or ``owner/model``; longer ones, and those with other signs, are paths."""
_WITHOUT_SHAPES = re.compile(
    # Names, versions, and how the weights are stored or made.
    r"_\w+|architectures|auto_map|torch_?dtype|dtype|transformers\w*|initializer\w*|pretraining_tp"
    r"|quantization_config|language|tokenizer_class|license|name|unsloth\w*"
    # What attention looks at, and positions without parameters.
    r"|(?:max_|n_|original_max_)?(?:position_embeddings|ctx|window_layers)|rope\w*|rotary\w*"
    r"|partial_rotary_factor|sliding_window\w*|use_sliding_window|layer_types|attn_implementation"
    # Numerics, routing among the experts that are there, and losses.
    r"|\w*(?:_eps|_epsilon|dropout\w*|pdrop|_coef|_alpha|_noise)"
    r"|scale_attn\w*|reorder_and_upcast_attn|n_group|topk_group|topk_method|norm_topk_prob"
    r"|scoring_func|routed_scaling_factor|seq_aux|output_\w+|ep_size|num_nextn_predict_layers"
    # Generation, and heads that a task puts on top.
    r"|\w+_token_id|use_cache|return_\w+|max_length|min_length|do_sample|num_beams|temperature"
    r"|top_[kp]|summary_\w+|task_specific_params|id2label|label2id|problem_type|is_decoder"
    r"|is_encoder_decoder|tie_encoder_decoder|chunk_size_feed_forward|prefix|pruned_heads"
    r"|length_penalty|repetition_penalty|no_repeat_ngram_size|\w*bad_words_ids|num_return_sequences"
    r"|early_stopping|diversity_penalty|typical_p|suppress_tokens|begin_suppress_tokens"
    r"|forced_\w+|remove_invalid_values|exponential_decay_length_penalty|finetuning_task"
    r"|num_beam_groups|encoder_no_repeat_ngram_size|torchscript|tf_legacy_loss|use_bfloat16"
)


@dataclass(frozen=True)
class _Config:
    """The values of a ``config.json``."""

    path: Path
    values: dict[str, Any]

    @property
    def kind(self) -> str:
        """Type of the model."""
        return str(self.values["model_type"])

    def number(self, key: str) -> int:
        """Return a number that may be absent or null, which then is 0: there is none."""
        return self.values.get(key) or 0

    def switch(self, key: str, absent: bool) -> bool:
        """Return a switch; ``absent`` is what the class of the model takes where it is left out."""
        return bool(self.values.get(key, absent))

    @property
    def experts(self) -> int:
        """Routed experts; 0 in a dense model."""
        return max((self.number(key) for key in _EXPERTS), default=0)

    def refuse(self, what: str) -> DataError:
        """Return an error that names the file."""
        return DataError(f"{self.path}: {what}")


def read_hugging_face(path: Path) -> ModelShape:
    """Return the shape that a ``config.json`` describes, with notes on keys that are not known.

    Raises:
        DataError: If the file is none, describes a model whose shape is not known here, or lacks
            what such a model has.
    """
    try:
        values = parse_json(read_parsed(path, DataError))
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{path}: is no JSON ({plain_reason(error)}); give a model's config.json."
        ) from None
    kind = values.get("model_type") if isinstance(values, dict) else None
    if not isinstance(kind, str):
        raise DataError(
            f"{path}: has no 'model_type', or none that is a text; give the config.json of a "
            f"model of a known type: {', '.join(_TYPES)}."
        )
    if kind not in _TYPES:
        raise DataError(
            f"{path}: describes a model of type '{kind:.60}'.{did_you_mean(kind, _TYPES)} Known "
            f"types: {', '.join(_TYPES)}."
        )
    config = _Config(path, values)
    for key, value in config.values.items():
        optional = key in _OPTIONAL_NUMBERS and value is None
        if key in (*_NUMBERS, *_OPTIONAL_NUMBERS) and type(value) is not int and not optional:
            raise config.refuse(f"{key} is {found_value(value)}; it must be a whole number.")
        if key in (*_NUMBERS, *_OPTIONAL_NUMBERS) and value is not None and value < 0:
            raise config.refuse(f"{key} is {value}; it must be at least 0.")
        if key in _NOT_ZERO and value == 0:
            raise config.refuse(f"{key} is 0; leave it out, or state a number of at least 1.")
        if key in _SWITCHES and type(value) is not bool:
            raise config.refuse(f"{key} is {found_value(value)}; it must be true or false.")
    _check_mixture(config)
    _refuse_parts(config)
    read = _latent_config if kind in _LATENT else _gpt_config if kind == "gpt2" else _llama_config
    try:
        # The name is in all that is handed on, so it is no path: neither the folder of the file
        # nor the one that the file may say the model was loaded from.
        stated = str(values.get("_name_or_path") or "")
        shape = read(stated if _HUB_NAME.fullmatch(stated) else kind, config)
    except KeyError as error:
        raise DataError(f"{path}: lacks {error.args[0]!r}, which a {kind} has; add it.") from None
    except ConfigError as error:
        raise DataError(f"{path}: {error}") from None
    return replace(shape, notes=_unknown(config))


def _check_mixture(config: _Config) -> None:
    values = config.values
    known = [key for key in _EXPERTS if key in values]
    counts = {values[key] for key in known if values[key]}
    if len(counts) > 1:
        listed = ", ".join(f"{key} {values[key]}" for key in known)
        raise config.refuse(f"states different numbers of experts ({listed}); leave one.")
    if config.kind in _ALWAYS_MIXTURES and known and not counts:
        raise config.refuse(
            f"{known[0]} is {found_value(values[known[0]])}, but a {config.kind} is a mixture; "
            "state the number of its experts."
        )
    per_token = next((key for key in _OF_MIXTURES if values.get(key)), None)
    if per_token and known and values[known[0]] == 0:  # null says that a model is dense
        raise config.refuse(
            f"states {per_token} {values[per_token]}, but no experts ({known[0]} is "
            f"{found_value(values[known[0]])}); state their number, or take {per_token} out."
        )
    asked = config.kind in _MIXTURES or any(values.get(key) for key in _OF_MIXTURES)
    if asked and not known:
        found = ", ".join(key for key in values if re.search(r"expert|moe", key))
        raise config.refuse(
            f"a {config.kind} that is a mixture states its experts as {' or '.join(_EXPERTS)}, "
            f"which is missing; of mixtures it has {found or 'no key at all'}. Rename the key that "
            "counts the routed experts."
        )


def _refuse_parts(config: _Config) -> None:
    """Refuse what changes shapes and is not known here."""
    values = config.values
    latent = config.kind in _LATENT
    if config.kind in _NO_BIAS and values.get("attention_bias"):
        raise config.refuse(f"has attention_bias, which a {config.kind} has not; remove it.")
    if latent and values.get("attention_bias"):
        raise config.refuse("has attention_bias, which latent attention has not here.")
    refused = ["shared_expert_intermediate_size", "mlp_bias", "mlp_only_layers"]
    refused += [] if latent else ["n_shared_experts", "kv_lora_rank"]
    for key in refused:
        if values.get(key):
            raise config.refuse(
                f"has {key} {found_value(values[key])}, which the shape of a model here cannot "
                "say; describe a near model in Python with ModelShape."
            )
    for key in ("moe_layer_freq", "decoder_sparse_step"):
        if config.number(key) > 1:
            raise config.refuse(
                f"has {key} {values[key]}, mixtures in some layers only, which is not known here."
            )


def _unknown(config: _Config) -> tuple[Note, ...]:
    """Return a note for each key that may say something about the shape and is not known."""
    notes = NoteCollector(str(config.path))
    for key, value in config.values.items():
        if key not in _READ and not _WITHOUT_SHAPES.fullmatch(key) and value not in (None, False):
            notes.add(NoteKind.KEY, key, "not known; the shape is made without it")
        elif key == "sliding_window" and value and config.switch("use_sliding_window", absent=True):
            notes.add(NoteKind.KEY, f"{key}: {value}", "attention is counted over all tokens")
        elif key in _ACTIVATIONS and value is not None and value not in _ACTIVATIONS[key]:
            effect = f"steps are made with {_ACTIVATIONS[key][0]}"
            notes.add(NoteKind.OPERATOR, f"{key}: {value}", effect)
    return notes.notes


def _gpt_config(name: str, config: _Config) -> ModelShape:
    values = config.values
    hidden = values["n_embd"]
    dropout = values.get("resid_pdrop", 0.1)  # GPT2Config's own
    return ModelShape(
        name, values["n_layer"], hidden, values["n_head"], config.number("n_inner") or 4 * hidden,
        values["vocab_size"], positions=values["n_positions"],
        tied=config.switch("tie_word_embeddings", absent=True), dropout=bool(dropout),
    )  # fmt: skip


def _llama_config(name: str, config: _Config) -> ModelShape:
    values, kind, experts = config.values, config.kind, config.experts
    heads = values["num_attention_heads"]
    inner = config.number("moe_intermediate_size") if experts else 0
    biases: Biases = "attention" if config.switch("attention_bias", absent=False) else "none"
    return ModelShape(
        name, values["num_hidden_layers"], values["hidden_size"], heads,
        inner or values["intermediate_size"], values["vocab_size"],
        config.number("num_key_value_heads") or heads, head_size=config.number("head_dim"),
        tied=config.switch("tie_word_embeddings", absent=False), gated=True, norm="rms",
        biases="qkv" if kind in _QKV_BIAS else biases, qk_norm=kind in _QK_NORM,
        experts=experts, experts_per_token=values["num_experts_per_tok"] if experts else 0,
    )  # fmt: skip


def _latent_config(name: str, config: _Config) -> ModelShape:
    """Read a DeepSeek-V2 or V3; modules that predict further tokens (MTP) are left out."""
    values, experts = config.values, config.experts
    latent = Latent(
        values["kv_lora_rank"], values["qk_nope_head_dim"], values["qk_rope_head_dim"],
        values["v_head_dim"], config.number("q_lora_rank"),
    )  # fmt: skip
    inner = values["intermediate_size"]
    mixture: dict[str, Any] = {}
    if experts:
        first = config.number("first_k_dense_replace")
        mixture = {
            "experts": experts, "experts_per_token": values["num_experts_per_tok"],
            "shared_experts": config.number("n_shared_experts"),
            "dense_layers": first, "dense_feed_forward": inner if first else 0,
            "router_bias": config.kind == "deepseek_v3",
        }  # fmt: skip
        inner = values["moe_intermediate_size"]
    return ModelShape(
        name, values["num_hidden_layers"], values["hidden_size"], values["num_attention_heads"],
        inner, values["vocab_size"], latent=latent, gated=True, norm="rms", biases="none",
        tied=config.switch("tie_word_embeddings", absent=False), **mixture,
    )  # fmt: skip
