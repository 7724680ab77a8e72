"""Private words in the files of a release."""

from pathlib import Path

from simulator_traces import comp, workload

from layerdag.evaluation.privacy import foreign_words, private_words
from layerdag.traces import Workload, write_workload
from layerdag.traces.chakra import NodeSpec, build_trace


def named(*names: str) -> Workload:
    nodes = [NodeSpec(id=i, name=name, type=4, duration_us=3) for i, name in enumerate(names)]
    return Workload((build_trace(nodes),))


def test_private_words_are_those_that_anonymizing_takes_out() -> None:
    found = private_words(named("aten::mm", "acme_flash_v7_kernel"))
    assert "acme_flash_v7_kernel" in found
    assert "aten::mm" not in found
    assert not private_words(workload([comp(0, 1)])) & {"comp", "aten::mm"}


def test_words_are_found_in_text_names_of_files_and_traces(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("<p>as in runs/acme-gpt_77b/3</p>")
    (tmp_path / "acme-gpt_77b.csv").write_text("name\n")
    write_workload(named("aten::mm", "acme_kernel_9"), tmp_path / "job")
    found = {(one.file, one.word) for one in foreign_words(tmp_path, ["acme-gpt_77b", "other_1"])}
    assert ("acme-gpt_77b.csv", "acme-gpt_77b") in found
    assert ("job.0.et", "acme_kernel_9") in found  # private or not: nothing but public words
    assert ("report.html", "acme-gpt_77b") in found
    assert len(found) == 3
    [sentence] = [one.sentence() for one in foreign_words(tmp_path, []) if one.file == "job.0.et"]
    assert sentence == "job.0.et: holds 'acme_kernel_9', a word of the private traces."


def test_a_word_inside_a_path_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"at": "/data/acme_77/run.et", "b": "with acme_78."}')
    found = {one.word for one in foreign_words(tmp_path, ["acme_77", "acme_78", "acme_79"])}
    assert found == {"acme_77", "acme_78"}


def test_plain_words_and_numbers_are_no_evidence_in_prose(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("training jobs of 2048 nodes")
    assert not list(foreign_words(tmp_path, ["training", "2048", "jobs", "of"]))
