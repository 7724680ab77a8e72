"""``ld.workload``: models by name, by shape and by file, recommenders beside transformers."""

import json
from pathlib import Path

import pytest
from small_recommenders import TWO
from small_studies import TINY

import layerdag as ld
from layerdag.errors import LayerdagError, UsageError
from layerdag.evaluation.rules import has_errors
from layerdag.traces import NodeType, Workload
from layerdag.workloads import symbolic
from layerdag.workloads.recommendation import RECOMMENDERS, recommender_job

CONFIG = {
    "model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 100,
    "n_positions": 32,
}  # fmt: skip


def nodes(workload: Workload) -> list[int]:
    return [trace.num_nodes for trace in workload.traces]


def operations(workload: Workload) -> int:
    return sum(int(trace.integers("num_ops")[0].sum()) for trace in workload.traces)


def test_a_shape_makes_the_traces_of_its_room() -> None:
    settings = {"tensor": 2, "data": 2, "batch": 4, "sequence": 16}
    ours, theirs = ld.workload(TINY, **settings), symbolic.workload(TINY, **settings)
    assert ours.num_ranks == 4
    assert nodes(ours) == nodes(theirs)
    assert ours.groups == theirs.groups


def test_a_shape_of_a_recommender_makes_the_traces_of_its_room() -> None:
    ours, theirs = ld.workload(TWO, data=2), recommender_job(TWO, data=2).workload()
    assert ours.num_ranks == 2
    assert nodes(ours) == nodes(theirs)


def test_every_recommender_has_a_name_that_no_transformer_has() -> None:
    assert RECOMMENDERS
    assert not set(RECOMMENDERS) & set(symbolic.PRESETS)
    name = next(iter(RECOMMENDERS))
    assert nodes(ld.workload(name, data=2)) == nodes(ld.workload(RECOMMENDERS[name], data=2))


def test_a_config_of_a_model_is_a_model(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    one, two = ld.workload(path, sequence=16), ld.workload(str(path), sequence=16)
    assert nodes(one) == nodes(two)
    assert one.num_ranks == 1


@pytest.mark.parametrize("degree", ["tensor", "data", "pipeline"])
def test_ranks_are_the_product_of_the_degrees(degree: str) -> None:
    assert ld.workload(TINY, **{degree: 2}, sequence=16).num_ranks == 2
    assert ld.workload(TINY, sequence=16).num_ranks == 1


def test_work_grows_with_the_batch_and_one_rank_does_not_communicate() -> None:
    one, two = (ld.workload(TINY, batch=batch, sequence=16) for batch in (1, 2))
    assert operations(two) > operations(one) > 0
    assert not (one.traces[0].type_N >= NodeType.COMM_SEND).any()


def test_what_it_makes_is_written_and_read_back_without_an_error(tmp_path: Path) -> None:
    made = ld.workload(TINY, tensor=2, sequence=16)
    ld.write_workload(made, tmp_path / "w")
    again = ld.read(tmp_path / "w")
    assert nodes(again) == nodes(made)
    assert again.groups == made.groups
    assert not has_errors(ld.validate(again))


@pytest.mark.parametrize(
    ("name", "settings", "told"),
    [
        ("gpt-2", {}, "gpt2"),
        (TINY, {"tensr": 2}, "tensr"),
        (TINY, {"tensor": 3, "sequence": 16}, "tiny"),
        (TWO, {"tensr": 2}, "tensr"),
        ("absent/config.json", {}, "absent"),
    ],
)
def test_what_cannot_be_made_is_a_sentence_that_names_it(
    name: str, settings: dict[str, int], told: str
) -> None:
    with pytest.raises(LayerdagError, match=told) as caught:
        ld.workload(name, **settings)
    assert str(caught.value).endswith((".", "?"))


def test_a_setting_that_is_not_known_is_wrong_use() -> None:
    with pytest.raises(UsageError):
        ld.workload(TINY, colour=1)
