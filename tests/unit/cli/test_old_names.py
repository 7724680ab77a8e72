"""Every old name that users may type still works, with one sentence that tells the new one."""

import pytest
from omegaconf import OmegaConf

from layerdag._runtime import RenamedWarning
from layerdag.cli import main
from layerdag.cli.settings import as_plain, build_spec, compose, sample_config
from layerdag.datasets.sources import load_latent_preferential


@pytest.mark.parametrize(
    ("words", "shown", "told"),
    [
        (["sample", "candidates=2"], "best_of: 2", "'candidates' is now called 'best_of'"),
        (
            ["train", "model.plans=true"],
            "predict_out_degree: true",
            "'model.plans' is now called 'model.predict_out_degree'",
        ),
        (
            ["train", "model.dropout=0.3"],
            "dropout: 0.3",
            "'model.dropout' is now called 'model.encoder.dropout'",
        ),
        (
            ["train", "model=reference", "model.size_width=80", "model.node_width=80"],
            "width: 80",
            "'model.size_width' and 'model.node_width' are now called 'model.layer_size.width' and",
        ),
        (
            ["train", "training.schedule=cosine", "training.learning_rate=2e-3"],
            "shape: cosine",
            "'training.schedule' and 'training.learning_rate' are now called 'training.lr_",
        ),
        (["train", "++model.plans=false"], "predict_out_degree: false", "'model.plans' is now"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_old_settings_are_replaced_and_told_once(
    words: list[str], shown: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "dry_run=true"]) == 0
    out, err = capsys.readouterr()
    assert shown in out
    assert err.count(f"layerdag: warning: {told}") == 1
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(("old", "new"), [("asked", "requested"), ("judged", "predicted")])
def test_old_names_for_labels_are_replaced(old: str, new: str) -> None:
    with pytest.warns(RenamedWarning, match=f"'labels={old}' is now called 'labels={new}'"):
        settings = sample_config(compose("sample", [f"labels={old}"])).generation()
    assert settings.labels == new


def test_an_old_setting_in_a_file_of_settings_is_replaced() -> None:
    data = load_latent_preferential(num_train=3, num_val=1, num_test=1)
    node = OmegaConf.create({**as_plain(compose("train").model), "plans": False})
    with pytest.warns(RenamedWarning, match="'model.plans' is now called"):
        assert build_spec(node, data).arguments["predict_out_degree"] is False
