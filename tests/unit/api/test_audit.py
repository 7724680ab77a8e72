from pathlib import Path

import pytest
from raw_graphs import chain
from tiny_checkpoints import chain_checkpoint

import layerdag as ld
from layerdag.errors import UsageError

GRAPHS = [chain(f"g{i}", "abcab"[: 2 + i % 4] * (1 + i // 4), label=1.0 + i) for i in range(24)]
DATA = ld.GraphDataset.build(
    "chains", "flow", {"train": GRAPHS[:12], "val": GRAPHS[12:18], "test": GRAPHS[18:]}
)


def test_copies_of_training_graphs_are_told(tmp_path: Path) -> None:
    found = ld.audit(GRAPHS[:12], DATA)
    assert (found.train, found.held_out, found.novelty.copied) == (12, 12, 1.0)
    assert not found.passes
    assert str(found).startswith("12 samples, 12 training and 12 held-out graphs\n")
    assert "copies of training graphs            100%" in str(found)


def test_the_weights_are_attacked_with_the_conditions_they_know(tmp_path: Path) -> None:
    settings = ld.TrainSettings(max_steps=1, warmup_steps=1, evaluate_every=1)
    named = [chain(g.name, "".join(g.categories["kind"]), **g.conditions, size=1.0) for g in GRAPHS]
    data = ld.GraphDataset.build(
        "chains", "flow", {"train": named[:12], "val": named[12:18], "test": named[18:]}
    )
    checkpoint = ld.train(data.conditioned_on(["label"]), settings=settings, width=32, depth=1)
    weights = ld.audit(ld.sample(checkpoint, num=3), data, checkpoint).weights
    assert all(0 <= attack.auc <= 1 for attack in weights)
    assert "likelihood" in weights[0].name


def test_a_checkpoint_of_another_split_is_refused(tmp_path: Path) -> None:
    checkpoint = chain_checkpoint(tmp_path)
    with pytest.raises(UsageError, match="split"):
        ld.audit(ld.sample(checkpoint, num=2), DATA, checkpoint)
