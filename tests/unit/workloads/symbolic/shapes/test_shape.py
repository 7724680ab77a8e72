"""Parameter counts as published, and what is no model."""

from typing import Any

import pytest

from layerdag.errors import ConfigError
from layerdag.workloads.symbolic import PRESETS, Image, Latent, ModelShape

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
def test_presets_have_the_parameters_of_their_checkpoints(name: str) -> None:
    assert PRESETS[name].parameters == PUBLISHED[name]


@pytest.mark.parametrize(
    ("name", "billions"), [("gpt3-175b", 174.6), ("transformer-1t", 1008.0), ("gpt3-13b", 12.85)]
)
def test_gpt_presets_have_the_parameters_of_their_papers(name: str, billions: float) -> None:
    shape = PRESETS[name]
    assert shape.parameters / 1e9 == pytest.approx(billions, rel=1e-3)
    # Narayanan et al. 2021, equation 2, whose last term counts the token and position tables.
    h, layers = shape.hidden, shape.layers
    tables = shape.vocabulary + shape.positions
    formula = 12 * layers * h**2 * (1 + 13 / (12 * h) + tables / (12 * layers * h))
    assert shape.parameters == pytest.approx(formula, rel=1e-6)


def test_a_token_passes_the_experts_that_it_is_sent_to() -> None:
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
def test_impossible_shapes_are_refused(change: dict[str, Any], sentence: str) -> None:
    given: dict[str, Any] = {
        "layers": 2,
        "hidden": 8,
        "heads": 2,
        "feed_forward": 16,
        "vocabulary": 10,
    }
    with pytest.raises(ConfigError, match=sentence):
        ModelShape("tiny", **{**given, **change})


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"size": 0}, "size is 0; it must be a whole number of at least 1"),
        ({"size": 100, "patch": 16}, "patches of 16 pixels do not fill a side of 100"),
    ],
)
def test_impossible_images_are_refused(given: dict[str, int], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Image(**given)


def test_an_impossible_latent_width_is_refused() -> None:
    with pytest.raises(ConfigError, match="kv_rank is 0; it must be a whole number of at least 1"):
        Latent(kv_rank=0)
    assert Latent(query_rank=0).compressed_width == 576
