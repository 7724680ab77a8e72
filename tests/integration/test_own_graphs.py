"""A user's 32 graphs: trained on, sampled, audited, without an error on the way."""

import json

import pytest
from raw_graphs import chain

from layerdag.cli.main import main
from layerdag.graph.attributed_graph import write_json

pytestmark = pytest.mark.usefixtures("few_redraws")

TINY = ["model.width=32", "model.depth=1", "training.max_steps=2", "logger.sample_graphs=0"]


def test_32_graphs_with_labels_elsewhere_are_trained_on_sampled_and_audited(
    tmp_path, capsys, computed_once
):
    folder, labels, run = tmp_path / "graphs", tmp_path / "labels.csv", tmp_path / "run"
    folder.mkdir()
    rows = ["name,label"]
    for i in range(32):
        write_json(folder / f"g{i}.json", chain(f"g{i}", "ab" * (i % 6 + 1) + "a" * (i // 6)))
        rows.append(f"g{i},{i + 1}")
    labels.write_text("\n".join(rows))
    data = [f"data.folder={folder}", f"data.labels={labels}"]
    assert main(["train", "data=folder", *data, *TINY, f"out={run}"]) == 0
    assert "12 graphs are held out (validation and test) beside 20" in capsys.readouterr().err
    samples = str(tmp_path / "samples")
    words = ["num=6", "seed=0", "max_nodes=30", "best_of=1", f"out={samples}"]
    assert main(["sample", f"checkpoint={run / 'best'}", *words]) == 0
    manifest = json.loads((tmp_path / "samples" / "manifest.json").read_text())
    assert manifest["split"]["train"]
    assert str(tmp_path) not in json.dumps(manifest)
    computed_once("layerdag.privacy.auditing.audit_of")
    for against in ([str(run)], [str(folder)], [str(folder), "--labels", str(labels)]):
        capsys.readouterr()
        assert main(["audit", "--synthetic", samples, "--data", *against]) == 0
        printed = capsys.readouterr()
        assert "6 samples, 20 training and 12 held-out graphs" in printed.out
        assert "too few graphs to tell" in printed.out
        assert "warning" not in printed.err
    other = ["--synthetic", samples, "--data", str(folder), "--labels", str(tmp_path / "split.csv")]
    halves = [f"{row},{'test' if i % 2 else 'train'}" for i, row in enumerate(rows[1:])]
    (tmp_path / "split.csv").write_text("\n".join(["name,label,split", *halves]))
    assert main(["audit", *other]) == 2
    assert "another split" in capsys.readouterr().err
