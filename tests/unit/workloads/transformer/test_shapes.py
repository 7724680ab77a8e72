"""Models by name and by Hugging Face's config.json."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from symbolic_jobs import GPT, LLAMA, MIXTURE, sizes, small

from layerdag.errors import ConfigError, DataError, UsageError
from layerdag.workloads.transformer.hugging_face import model
from layerdag.workloads.transformer.job import transformer_job
from layerdag.workloads.transformer.shapes import PRESETS, Image, Latent, ModelShape

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
def test_a_config_describes_the_same_shape_as_the_preset(tmp_path, config, name):
    for place in (_file(tmp_path, config), tmp_path):
        assert dataclasses.replace(model(place), name=name) == PRESETS[name]


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({**LLAMA3_8B, "model_type": "lama"}, "type 'lama'. Did you mean 'llama'"),
        ({**LLAMA3_8B, "hidden_size": None}, "hidden_size is null; it must be a whole number"),
        ({**LLAMA3_8B, "n_shared_experts": 1}, "has n_shared_experts 1"),
        ({**LLAMA3_8B, "num_key_value_heads": 0}, "num_key_value_heads is 0; leave it out"),
        ({**LLAMA3_8B, "decoder_sparse_step": 2}, "mixtures in some layers only"),
        ({**LLAMA3_8B, "tie_word_embeddings": "no"}, "is 'no'; it must be true or false"),
        ({**LLAMA3_8B, "num_experts_per_tok": 2}, "experts as .* it has num_experts_per_tok"),
        ({**LLAMA3_8B, "moe_intermediate_size": 64}, "of mixtures it has moe_intermediate_size"),
        ({**LLAMA3_8B, "model_type": "mixtral", "experts": 8}, "a mixtral .* it has experts"),
        ({**LLAMA3_8B, "model_type": "qwen3_moe"}, "of mixtures it has no key at all"),
        (
            {**LLAMA3_8B, "model_type": "mixtral", "num_local_experts": None},
            "is null, but a mixtral is a mix",
        ),
        (
            {**LLAMA3_8B, "num_experts": 8, "num_local_experts": 4, "num_experts_per_tok": 2},
            "different numbers of experts .num_local_experts 4, num_experts 8.",
        ),
        ({**LLAMA3_8B, "num_hidden_layers": 10**30}, "layers is 10+; .* at most 100,000,000"),
        ({**LLAMA3_8B, "model_type": "mistral", "attention_bias": True}, "which a mistral has not"),
        ({**DEEPSEEK_V3, "attention_bias": True}, "attention_bias, which latent attention has not"),
        ({**DEEPSEEK_V3, "moe_layer_freq": 2}, "moe_layer_freq 2, mixtures in some layers only"),
        ({**DEEPSEEK_V3, "q_lora_rank": "full"}, "q_lora_rank is 'full'; it must be a whole"),
        ({**DEEPSEEK_V3, "n_routed_experts": "many"}, "n_routed_experts is 'many'; it must be a"),
    ],
)
def test_configs_of_other_models_are_refused(tmp_path, config, sentence):
    with pytest.raises((DataError, UsageError), match=sentence):
        model(_file(tmp_path, config))


def test_attention_bias_is_that_of_queries_keys_values_and_output(tmp_path):
    plain, biased = (
        model(_file(tmp_path, {**LLAMA3_8B, "attention_bias": has})) for has in (False, True)
    )
    more = 4096 + 2 * 1024 + 4096
    assert biased.parameters == plain.parameters + 32 * more
    here = [transformer_job(shape).costs.layer_dense for shape in (plain, biased)]
    assert here[1] == here[0] + more


def test_keys_that_are_not_known_are_told_and_those_without_shapes_are_not(tmp_path):
    usual = {"rms_norm_eps": 1e-6, "rope_scaling": {}, "eos_token_id": 2}
    assert model(_file(tmp_path, {**LLAMA3_8B, **usual})).notes == ()
    shape = model(_file(tmp_path, {**LLAMA3_8B, "num_extra_layers": 3, "use_gate_in_attention": 1}))
    assert [note.word for note in shape.notes] == ["num_extra_layers", "use_gate_in_attention"]
    (note,) = model(_file(tmp_path, {**LLAMA3_8B, "sliding_window": 4096})).notes
    assert (note.word, note.effect) == (
        "sliding_window: 4096",
        "attention is counted over all tokens",
    )
    assert transformer_job(shape).workload().notes == shape.notes


def test_more_runs_of_layers_than_memory_holds_are_refused_before_they_are_made():
    for settings, shape in (
        ({}, dataclasses.replace(PRESETS["gpt2"], layers=10**8)),
        ({"micro_batches": 10**9}, PRESETS["gpt2"]),
        ({"phase": "decode", "tokens": 10**9}, PRESETS["gpt2"]),
    ):
        with pytest.raises(ConfigError, match="at most 100,000 are taken"):
            transformer_job(shape, **settings)


def test_a_latent_model_without_experts_has_dense_layers_only(tmp_path):
    shape = model(_file(tmp_path, {**DEEPSEEK_V3, "n_routed_experts": None}))
    assert (shape.experts, shape.feed_forward, shape.dense_layers) == (0, 18432, 0)
    with pytest.raises(DataError, match="states num_experts_per_tok 8, but no experts"):
        model(_file(tmp_path, {**DEEPSEEK_V3, "n_routed_experts": 0}))


def test_a_config_that_lacks_a_number_or_is_no_json_is_refused(tmp_path):
    config = {key: value for key, value in LLAMA3_8B.items() if key != "hidden_size"}
    with pytest.raises(DataError, match="lacks 'hidden_size', which a llama has"):
        model(_file(tmp_path, config))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(DataError, match="is no JSON"):
        model(tmp_path)
    with pytest.raises(DataError):
        model(tmp_path / "absent.json")


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(UsageError, match="Did you mean 'llama3-8b'"):
        model("llama-3-8b")
    with pytest.raises(UsageError, match="dlrm-v2 is a recommendation model"):
        model("dlrm-v2")


PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "llama3.2-1b": 1_235_814_400,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_630_071_296,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-8b": 8_190_735_360,
    "qwen3-30b-a3b": 30_532_122_624,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v3": 671_026_419_200,  # without the module that predicts a second token
    # torchvision, "num_params" of the metadata of its weights
    "vit-b16": 86_567_656,
    "vit-l16": 304_326_632,
    "vit-h14": 632_045_800,
    # elements of the modules of facebookresearch/DiT, "675M" in Peebles and Xie 2023
    "dit-xl-2": 675_129_632,
}
"""Numbers of elements of the published checkpoints."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_have_the_parameters_of_their_checkpoints(name):
    assert PRESETS[name].parameters == PUBLISHED[name]


@pytest.mark.parametrize(
    ("name", "billions"), [("gpt3-175b", 174.6), ("transformer-1t", 1008.0), ("gpt3-13b", 12.85)]
)
def test_gpt_presets_have_the_parameters_of_their_papers(name, billions):
    shape = PRESETS[name]
    assert shape.parameters / 1e9 == pytest.approx(billions, rel=1e-3)
    # Narayanan et al. 2021, equation 2, whose last term counts the token and position tables.
    h, layers = shape.hidden, shape.layers
    tables = shape.vocabulary + shape.positions
    formula = 12 * layers * h**2 * (1 + 13 / (12 * h) + tables / (12 * layers * h))
    assert shape.parameters == pytest.approx(formula, rel=1e-6)


def test_a_token_passes_the_experts_that_it_is_sent_to():
    assert PRESETS["mixtral-8x7b"].active_parameters / 1e9 == pytest.approx(12.9, abs=0.05)
    assert PRESETS["qwen3-235b-a22b"].active_parameters / 1e9 == pytest.approx(22.2, abs=0.05)
    # "37B" in the V3 report, "36.7B" in its README_WEIGHTS, 21B in the V2 report; the token table
    # of 0.93 B (V3) counts here, although a token reads one row of it.
    v3 = PRESETS["deepseek-v3"]
    assert v3.active_parameters == 37_552_297_472
    assert (v3.active_parameters - v3.embedding_parameters) / 1e9 == pytest.approx(36.7, abs=0.1)
    assert PRESETS["deepseek-v2"].active_parameters / 1e9 == pytest.approx(21, abs=0.5)
    dense = PRESETS["llama3-8b"]
    assert dense.active_parameters == dense.parameters


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"layers": 0}, "layers is 0; it must be a whole number of at least 1"),
        ({"heads": 3}, "3 heads do not divide the width 8; give head_size"),
        ({"heads": 4, "kv_heads": 3}, "4 query heads are no multiple of 3 key heads"),
        ({"experts": 4}, "0 of 4 experts a token make no mixture"),
        ({"experts": 2, "experts_per_token": 4}, "4 of 2 experts"),
        ({"shared_experts": 1}, "belong to a mixture; give experts"),
        (
            {"experts": 4, "experts_per_token": 2, "dense_layers": 1},
            "1 dense layers of inner width 0",
        ),
        (
            {"experts": 4, "experts_per_token": 2, "dense_layers": 3, "dense_feed_forward": 8},
            "3 dense layers are more than all of its 2 layers",
        ),
        ({"latent": Latent(), "kv_heads": 1, "biases": "none"}, "widths of its own and reads text"),
        ({"latent": Latent()}, "latent attention is known without biases"),
        ({"norm": "adaptive"}, "adaptive norms need an image with labels"),
        ({"image": Image(labels=10)}, "adaptive norms need an image with labels"),
    ],
)
def test_impossible_shapes_are_refused(change, sentence):
    given = {"layers": 2, "hidden": 8, "heads": 2, "feed_forward": 16, "vocabulary": 10}
    with pytest.raises(ConfigError, match=sentence):
        ModelShape("tiny", **{**given, **change})


@pytest.mark.parametrize(
    ("part", "given", "sentence"),
    [
        (Image, {"size": 0}, "size is 0; it must be a whole number of at least 1"),
        (Image, {"size": 100, "patch": 16}, "patches of 16 pixels do not fill a side of 100"),
        (Latent, {"kv_rank": 0}, "kv_rank is 0; it must be a whole number of at least 1"),
    ],
)
def test_impossible_parts_of_a_shape_are_refused(part, given, sentence):
    with pytest.raises(ConfigError, match=sentence):
        part(**given)
    assert Latent(query_rank=0).compressed_width == 576


def _matrices(shape: ModelShape) -> int:
    """Return the weights that a token is multiplied with, without biases and norms."""
    attention = shape.hidden * (2 * shape.query_width + 2 * shape.kv_width)
    experts = max(shape.experts_per_token, 1)
    feed_forward = shape.hidden * (shape.up_width + shape.feed_forward) * experts
    layer = attention + feed_forward + shape.router_parameters
    return shape.layers * layer + shape.vocabulary * shape.hidden


@pytest.mark.parametrize("shape", [GPT, LLAMA, MIXTURE, model("gpt3-175b"), model("llama3-8b")])
def test_a_training_step_takes_6_operations_a_weight_and_token_and_12_lsh_for_attention(shape):
    made = transformer_job(shape, sequence=2048, batch=2)
    tokens = 2 * 2048
    attention = 12 * shape.layers * 2048 * shape.query_width * tokens
    assert made.summary()["matrix_flops"] == 6 * _matrices(shape) * tokens + attention
    assert made.summary()["flops"] == pytest.approx(made.summary()["matrix_flops"], rel=0.03)


def test_a_gpt_step_with_full_recompute_takes_the_published_operations():
    """96 B s L h^2 (1 + s / 6h + V / 16Lh): Narayanan et al. 2021, equation 3."""
    shape, batch, s = model("gpt3-175b"), 4, 2048
    made = transformer_job(shape, sequence=s, batch=batch, recompute="full")
    h, layers, words = shape.hidden, shape.layers, shape.vocabulary
    formula = 96 * batch * s * layers * h**2 * (1 + s / (6 * h) + words / (16 * layers * h))
    assert made.summary()["matrix_flops"] == pytest.approx(formula, rel=1e-9)


def test_attention_is_quadratic_in_the_sequence_and_half_of_it_where_asked():
    def attention(sequence: int, **more: Any) -> int:
        made = transformer_job(LLAMA, sequence=sequence, batch=1, **more)
        rest = 6 * _matrices(LLAMA) * sequence
        return int(made.summary()["matrix_flops"]) - rest

    assert attention(512) == 4 * attention(256)
    assert attention(512, causal="half") * 2 == attention(512)


@pytest.mark.parametrize("shape", [GPT, LLAMA, MIXTURE])
@pytest.mark.parametrize(
    "plan",
    [
        {"data": 2}, {"tensor": 4}, {"tensor": 4, "sequence_parallel": True}, {"pipeline": 4},
        {"pipeline": 2, "schedule": "gpipe", "micro_batches": 4}, {"context": 2},
        {"data": 2, "tensor": 2, "pipeline": 2, "micro_batches": 2}, {"data": 2, "zero": 3},
        {"micro_batches": 8},
    ],
)  # fmt: skip
def test_splitting_changes_no_matrix_operation(shape, plan):
    whole, split = small(shape).summary(), small(shape, **plan).summary()
    replicated = 0
    if shape.experts and plan.get("tensor", 1) > 1 and not plan.get("sequence_parallel"):
        # The router is the same on all tensor ranks, unless the sequence is split.
        router = 6 * shape.layers * shape.router_parameters * 8 * 128
        replicated = router * (plan["tensor"] - 1)
    assert split["matrix_flops"] == whole["matrix_flops"] + replicated


def test_sequence_parallelism_moves_what_the_sums_moved_and_gathers_inputs_again():
    """All-reduce = reduce-scatter + all-gather; the second gather of inputs comes on top."""
    ranks, stream = 4, 8 * 128 * GPT.hidden * 2
    made = small(GPT, tensor=ranks, sequence_parallel=True)
    scattered = sizes(made, "sum1", "sum2", "sum_dx1", "sum_dx2")
    gathered = sizes(made, "gather1", "gather2")
    again = sizes(made, "gather_again1", "gather_again2")
    assert scattered == [stream] * 4 * GPT.layers
    assert gathered == [stream // ranks] * 4 * GPT.layers
    assert again == [stream // ranks] * 2 * GPT.layers
    moved_by_a_sum = 2 * (ranks - 1) * stream // ranks
    moved = [(ranks - 1) * size // ranks for size in scattered]
    moved += [(ranks - 1) * size for size in gathered]
    assert sum(moved) == 4 * GPT.layers * moved_by_a_sum


@pytest.mark.parametrize(("zero", "volumes"), [(0, 2), (1, 2), (2, 2), (3, 3)])
def test_zero_moves_2_or_3_times_the_parameters(zero, volumes):
    """Rajbhandari et al. 2020, section 7: 2 Psi with stages 1 and 2 as without, 3 Psi with 3."""
    ranks, made = 8, small(LLAMA, data=8, zero=zero)
    trace = made.stages[0]
    kind_N, coll_N = trace.integers("comm_type")
    size_N, _ = trace.integers("comm_size")
    names = [trace.strings[index] for index in trace.name_N.tolist()]
    moved = 0.0
    for row in coll_N.nonzero()[0].tolist():
        if names[row].split(".")[1] == "L1":  # "gradients.L1.B0", "weights.L1.F0", ...
            factor = {0: 2 * (ranks - 1) / ranks, 2: ranks - 1, 7: (ranks - 1) / ranks}
            moved += factor[int(kind_N[row])] * int(size_N[row])
    expected = volumes * (ranks - 1) / ranks * LLAMA.layer_parameters * 2
    assert moved == pytest.approx(expected, rel=1e-6)


def test_stages_pass_the_stream_of_each_micro_batch_on_both_ways():
    made = small(LLAMA, pipeline=4, micro_batches=4)
    stream = 2 * 128 * LLAMA.hidden * 2
    assert sizes(made, "send", stage=0) == [stream] * 4
    assert sizes(made, "send", stage=1) == [stream] * 8
    assert sizes(made, "send", stage=3) == [stream] * 4
    halved = small(LLAMA, pipeline=4, micro_batches=4, tensor=2, sequence_parallel=True)
    assert sizes(halved, "send", stage=1) == [stream // 2] * 8


def test_decode_reads_the_cache_and_prefill_fills_it():
    decode = transformer_job(LLAMA, phase="decode", sequence=1024, batch=4, tokens=2).summary()
    weights = 2 * _matrices(LLAMA) * 4 * 2
    attention = 4 * LLAMA.layers * LLAMA.query_width * 4 * (1025 + 1026)
    assert decode["matrix_flops"] == weights + attention
    prefill = transformer_job(LLAMA, phase="prefill", sequence=1024, batch=4).summary()
    head = LLAMA.vocabulary * LLAMA.hidden
    forward = 2 * (_matrices(LLAMA) - head) * 4096 + 2 * head * 4  # logits of the last tokens only
    attention = 4 * LLAMA.layers * LLAMA.query_width * 1024 * 4096
    assert prefill["matrix_flops"] == forward + attention
    cache = 2 * LLAMA.layers * LLAMA.kv_width * 2
    assert prefill["memory"][0]["kv_cache"] == 4 * 1024 * cache
    assert decode["memory"][0]["kv_cache"] == 4 * 1026 * cache
