"""Models by name and by Hugging Face's config.json."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from layerdag.errors import DataError, UsageError
from layerdag.workloads.symbolic import PRESETS, model

LLAMA3_8B = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "tie_word_embeddings": False, "attention_bias": False,
}  # fmt: skip
MIXTRAL = {
    **LLAMA3_8B, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2,
    "vocab_size": 32000,
}  # fmt: skip
QWEN3_MOE = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144,
    "moe_intermediate_size": 768, "num_attention_heads": 32, "num_hidden_layers": 48,
    "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
    "vocab_size": 151936, "decoder_sparse_step": 1, "mlp_only_layers": [],
}  # fmt: skip
QWEN2 = {
    "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,
    "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
    "vocab_size": 152064, "tie_word_embeddings": False,
}  # fmt: skip
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "first_k_dense_replace": 3, "hidden_size": 7168,
    "intermediate_size": 18432, "kv_lora_rank": 512, "moe_intermediate_size": 2048,
    "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61,
    "num_key_value_heads": 128, "num_nextn_predict_layers": 1, "q_lora_rank": 1536,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "tie_word_embeddings": False,
    "v_head_dim": 128, "vocab_size": 129280, "attention_bias": False,
}  # fmt: skip
DEEPSEEK_V2_LITE = {
    **DEEPSEEK_V3, "model_type": "deepseek_v2", "first_k_dense_replace": 1, "hidden_size": 2048,
    "intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 64,
    "n_shared_experts": 2, "num_attention_heads": 16, "num_experts_per_tok": 6,
    "num_hidden_layers": 27, "num_key_value_heads": 16, "q_lora_rank": None, "vocab_size": 102400,
}  # fmt: skip
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
        "vocab_size": 50257}  # fmt: skip


def _file(folder: Path, config: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    return folder / "config.json"


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (LLAMA3_8B, "llama3-8b"), (MIXTRAL, "mixtral-8x7b"), (QWEN3_MOE, "qwen3-30b-a3b"),
        (QWEN2, "qwen2.5-7b"), (GPT2, "gpt2"), (DEEPSEEK_V3, "deepseek-v3"),
        (DEEPSEEK_V2_LITE, "deepseek-v2-lite"),
    ],
)  # fmt: skip
def test_a_config_describes_the_same_shape_as_the_preset(
    tmp_path: Path, config: dict[str, Any], name: str
) -> None:
    for place in (_file(tmp_path, config), tmp_path):
        assert dataclasses.replace(model(place), name=name) == PRESETS[name]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model_type": "lama"}, "type 'lama'. Did you mean 'llama'"),
        ({"hidden_size": None}, "hidden_size is None; it must be a whole number"),
        ({"n_shared_experts": 1}, "has n_shared_experts 1"),
        ({"decoder_sparse_step": 2}, "mixtures in some layers only"),
    ],
)
def test_configs_of_other_models_are_refused(
    tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    with pytest.raises((DataError, UsageError), match=sentence):
        model(_file(tmp_path, {**LLAMA3_8B, **change}))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"attention_bias": True}, "has attention_bias, which latent attention has not"),
        ({"moe_layer_freq": 2}, "moe_layer_freq 2, mixtures in some of the later layers"),
        ({"q_lora_rank": "full"}, "q_lora_rank is 'full'; it must be a whole number"),
        ({"n_routed_experts": "many"}, "n_routed_experts is 'many'; it must be a whole number"),
    ],
)
def test_configs_of_other_latent_models_are_refused(
    tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    with pytest.raises((DataError, UsageError), match=sentence):
        model(_file(tmp_path, {**DEEPSEEK_V3, **change}))


def test_a_latent_model_without_experts_has_dense_layers_only(tmp_path: Path) -> None:
    shape = model(_file(tmp_path, {**DEEPSEEK_V3, "n_routed_experts": None}))
    assert (shape.experts, shape.feed_forward, shape.dense_layers) == (0, 18432, 0)


def test_a_config_that_lacks_a_number_or_is_no_json_is_refused(tmp_path: Path) -> None:
    config = {key: value for key, value in LLAMA3_8B.items() if key != "hidden_size"}
    with pytest.raises(DataError, match="lacks 'hidden_size', which a llama has"):
        model(_file(tmp_path, config))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(DataError, match="is no JSON"):
        model(tmp_path)
    with pytest.raises(DataError):
        model(tmp_path / "absent.json")


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UsageError, match="Did you mean 'llama3-8b'"):
        model("llama-3-8b")
    with pytest.raises(UsageError, match="dlrm-v2 is a recommendation model"):
        model("dlrm-v2")
