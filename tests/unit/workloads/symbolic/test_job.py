"""A job: its settings, its figures, and both front doors."""

import json
from pathlib import Path
from typing import Any

import pytest
from symbolic_jobs import GPT, LLAMA, MIXTURE, VIT, small

import layerdag as ld
from layerdag.cli import main
from layerdag.errors import ConfigError, DataError, UsageError
from layerdag.traces import read_workload
from layerdag.workloads.symbolic import ModelShape, SymbolicJob, job

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
    "num_hidden_layers": 2, "num_key_value_heads": 2, "vocab_size": 100,
}  # fmt: skip


# ---- settings ----


def test_settings_go_to_plan_and_step() -> None:
    made = job(LLAMA, tensor=2, zero=1, data=2, batch=4, sequence=64, precision="fp32")
    assert (made.plan.tensor, made.plan.zero, made.plan.ranks) == (2, 1, 4)
    assert (made.step.batch, made.step.sequence, made.step.precision) == (4, 64, "fp32")
    assert made.shape is LLAMA


def test_a_job_of_nothing_but_a_shape_is_a_training_step_on_one_rank() -> None:
    made = SymbolicJob(LLAMA)
    assert (made.plan.ranks, made.step.phase, made.step.batch) == (1, "training", 1)
    assert made.workload().num_ranks == 1


def test_images_have_a_sequence_of_their_own() -> None:
    assert job(VIT).step.sequence == 8 * 8 + 1
    assert job(VIT, batch=3).tokens == 3 * 65


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({"sequence": 100, "batch": 3}, 300),
        ({"sequence": 100, "batch": 3, "phase": "prefill"}, 300),
        ({"sequence": 100, "batch": 3, "phase": "decode"}, 3),
        ({"sequence": 100, "batch": 3, "phase": "decode", "tokens": 5}, 15),
    ],
)
def test_tokens_of_a_step_are_those_computed(settings: dict[str, Any], tokens: int) -> None:
    assert job(LLAMA, **settings).summary()["tokens"] == tokens


# ---- figures ----


def test_the_summary_counts_what_the_traces_of_all_ranks_hold() -> None:
    made = small(MIXTURE, tensor=2, data=2, expert=2, pipeline=2, micro_batches=2)
    traces, found = made.workload().traces, made.summary()
    for figure, attribute in (("flops", "num_ops"), ("bytes", "tensor_size")):
        assert found[figure] == sum(int(trace.integers(attribute)[0].sum()) for trace in traces)
    assert found["nodes"] == sum(trace.num_nodes for trace in traces)
    moved = sum(int(trace.integers("comm_size")[0].sum()) for trace in traces)
    assert sum(row["bytes"] for row in found["communication"].values()) == moved


def test_the_summary_is_json_and_names_model_plan_and_step() -> None:
    found = json.loads(json.dumps(small(LLAMA, pipeline=2, micro_batches=2).summary()))
    assert (found["model"], found["ranks"]) == ("tiny-llama", 2)
    assert (found["plan"]["pipeline"], found["step"]["micro_batches"]) == (2, 2)
    assert [held["stage"] for held in found["memory"]] == [0, 1]
    assert found["peak_memory"] == max(held["total"] for held in found["memory"])


def test_the_total_of_memory_is_the_sum_of_its_parts() -> None:
    (held,) = small(LLAMA, data=2, zero=3).summary()["memory"]
    parts = ("weights", "gathered", "gradients", "optimizer", "activations", "kv_cache")
    assert held["total"] == sum(held[part] for part in parts)


def test_operations_of_a_trillion_parameters_do_not_overflow() -> None:
    """6 x 1.008e12 x 2,097,152 tokens are more than 2^63 = 9.2e18."""
    found = job("transformer-1t", batch=1024).summary()
    weights = 6 * found["parameters"] * found["tokens"]
    assert found["matrix_flops"] > weights > 2**63
    assert found["flops"] == pytest.approx(weights, rel=0.05)


def test_a_batch_that_no_trace_can_state_is_refused_and_none_is_made() -> None:
    with pytest.raises(ConfigError, match=r"tiny-llama, stage 0: 'embedding\.F0' takes .* smaller"):
        job(LLAMA, batch=10**17).summary()


@pytest.mark.parametrize("shape", [GPT, LLAMA, MIXTURE], ids=lambda shape: shape.name)
def test_more_of_anything_takes_more_operations(shape: ModelShape) -> None:
    least = small(shape).summary()["flops"]
    for more in ({"batch": 16}, {"sequence": 256}, {"recompute": "full"}):
        assert small(shape, **more).summary()["flops"] > least
    assert small(shape, phase="prefill").summary()["flops"] < least


@pytest.mark.parametrize(
    ("degree", "values"),
    [("zero", (0, 1, 2, 3)), ("micro_batches", (1, 2)), ("recompute", ("none", "full"))],
)
def test_memory_falls_with_what_is_meant_to_save_it(degree: str, values: tuple[Any, ...]) -> None:
    plan = {"data": 4, "sequence": 512}
    peaks = [small(LLAMA, **plan, **{degree: one}).summary()["peak_memory"] for one in values]
    assert peaks == sorted(peaks, reverse=True)
    assert len(set(peaks)) == len(peaks)


def test_all_ranks_of_a_stage_have_the_same_figures() -> None:
    once, twice = (small(LLAMA, data=data, batch=8 * data).summary() for data in (1, 2))
    assert twice["flops"] == 2 * once["flops"]
    assert twice["memory"] == once["memory"]
    assert twice["tokens"] == 2 * once["tokens"]


# ---- front doors ----


@pytest.mark.parametrize(("word", "meant"), [("tensr", "tensor"), ("micro_batch", "micro_batches")])
def test_the_python_door_names_settings_that_it_does_not_have(word: str, meant: str) -> None:
    with pytest.raises(UsageError, match=rf"no setting '{word}'\. Did you mean '{meant}'"):
        ld.workload(LLAMA, **{word: 2})


def test_groups_of_the_workload_have_the_sizes_of_the_plan() -> None:
    made = ld.workload(LLAMA, tensor=2, data=3, batch=3, sequence=64)
    sizes = sorted(map(len, made.groups.values()))
    assert sizes == [2, 2, 2, 3, 3]  # three tensor groups, two groups of replicas
    assert {rank for members in made.groups.values() for rank in members} == set(range(6))
    assert dict(ld.workload(LLAMA, sequence=64).groups) == {}


def config(folder: Path, **changes: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**CONFIG, **changes}))
    return path


def test_a_hugging_face_config_becomes_traces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(config(tmp_path, _name_or_path="mine"))
    words = ["--tensor", "2", "--sequence", "32", "--out", str(tmp_path / "w")]
    assert main(["workload", path, *words]) == 0
    assert capsys.readouterr().out.startswith("mine: ")
    assert read_workload(tmp_path / "w").num_ranks == 2
    assert ld.workload(path, tensor=2, sequence=32).num_ranks == 2


def test_a_model_is_named_after_its_folder_where_the_config_has_no_name(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    config(folder)
    assert job(folder).shape.name == "my-model"


@pytest.mark.parametrize(("value", "dropout"), [(None, False), (0.0, False), (0.1, True)])
def test_a_gpt_without_dropout_says_zero_or_null(
    tmp_path: Path, value: float | None, dropout: bool
) -> None:
    gpt = {"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 32}
    assert job(config(tmp_path, **gpt, resid_pdrop=value)).shape.dropout is dropout


def test_a_config_that_cannot_be_read_is_code_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config(tmp_path, vocab_size="many")
    assert main(["workload", str(path), "--json"]) == 1
    told = capsys.readouterr().err
    assert f"{path}: vocab_size is 'many'; it must be a whole number" in told
    with pytest.raises(DataError, match="vocab_size is 'many'"):
        ld.workload(path)


@pytest.mark.parametrize(
    ("words", "part", "expected"),
    [
        (["--phase", "decode", "--tokens", "2"], "tokens", 4),
        (["--sequence-parallel", "--tensor", "2"], "ranks", 2),
        (["--pipeline", "2", "--micro-batches", "2", "--virtual-stages", "2"], "ranks", 2),
        (["--context", "4"], "ranks", 4),
    ],
)
def test_flags_of_the_verb_are_settings(
    words: list[str], part: str, expected: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["workload", "gpt2", "--batch", "2", "--sequence", "64", *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[part] == expected
