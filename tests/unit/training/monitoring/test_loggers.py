import json
from pathlib import Path

from layerdag.training.monitoring import ConsoleLogger, JsonlLogger


def test_jsonl_holds_one_object_a_line(tmp_path: Path):
    logger = JsonlLogger(tmp_path / "run" / "train.jsonl")
    logger.log(1, {"train/node": 0.5})
    logger.picture(1, "samples", tmp_path / "a.png")
    logger.close()
    lines = [
        json.loads(line) for line in (tmp_path / "run" / "train.jsonl").read_text().split("\n")[:-1]
    ]
    assert lines[0] == {"step": 1, "train/node": 0.5}
    assert lines[1]["picture"] == "samples"


def test_resuming_drops_what_came_after_the_checkpoint(tmp_path: Path):
    file = tmp_path / "train.jsonl"
    file.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"step')
    JsonlLogger(file, resumed_step=2).close()
    assert file.read_text() == '{"step": 1}\n{"step": 2}\n'


def test_a_new_run_starts_a_new_file(tmp_path: Path):
    file = tmp_path / "train.jsonl"
    file.write_text('{"step": 1}\n')
    JsonlLogger(file).close()
    assert file.read_text() == ""


def test_console_shows_validations_only():
    lines: list[str] = []
    logger = ConsoleLogger(lines.append)
    logger.log(1, {"train/node": 0.5})
    logger.log(2, {"validation/node": 0.25})
    assert lines == ["step 2: node 0.25\n"]


def test_what_is_no_number_is_null(tmp_path: Path):
    logger = JsonlLogger(tmp_path / "train.jsonl")
    logger.log(1, {"a": float("nan"), "b": float("inf"), "c": 1.0})
    logger.close()
    assert (tmp_path / "train.jsonl").read_text() == '{"step": 1, "a": null, "b": null, "c": 1.0}\n'
