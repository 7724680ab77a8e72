"""``info`` and ``convert`` of compiled programs."""

import json

import pytest

from layerdag.cli.main import main
from layerdag.traces.chakra.workload import read_workload

pytest.importorskip("jaxlib", reason="StableHLO is parsed by jaxlib, the extra 'hlo'")


@pytest.fixture
def program(repository) -> str:
    return str(repository / "data" / "examples" / "programs" / "mlp.mlir")


def test_info_prints_totals_as_json(program, capsys):
    assert main(["info", program, "--compute", "a100-80", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    products = 2 * 2 * 64 * 256 * 128
    elements = 2 * 64 * 128 + 2 * 256 * 128
    assert (found["flops"], found["devices"]) == (products + elements, 4)
    assert 0 < found["runtime_s"] < 1e-5
    assert found["collectives"] == {"all_reduce": {"count": 1, "bytes": 4 * 256 * 128}}


def test_info_without_hardware_counts_only(program, capsys):
    assert main(["info", program]) == 0
    assert "us on" not in capsys.readouterr().out


def test_convert_writes_a_trace_for_each_device(program, tmp_path):
    assert main(["convert", program, "--compute", "tpu-v3", "--out", str(tmp_path / "p")]) == 0
    workload = read_workload(tmp_path / "p")
    assert workload.num_ranks == 4
    assert workload.groups == {"1": (0, 1), "2": (2, 3)}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["convert", "{program}", "--out", "x"], "takes its times from --compute HARDWARE"),
        (["info", "{program}", "--compute", "a100"], "There is no hardware 'a100'"),
        (["info", "{trace}", "--compute", "a100-80"], "--compute is for StableHLO"),
        (
            ["convert", "{trace}", "--compute", "a100-80", "--out", "x"],
            "--compute is for StableHLO",
        ),
    ],
)
def test_what_does_not_fit_is_one_sentence(program, repository, words, sentence, capsys):
    trace = str(repository / "data" / "examples" / "ddp_mlp")
    assert main([word.format(program=program, trace=trace) for word in words]) == 2
    assert sentence in capsys.readouterr().err
