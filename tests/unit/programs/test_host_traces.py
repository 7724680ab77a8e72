"""Programs taken from host traces of real training steps."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from small_programs import images, language
from torch import Tensor, nn
from torch.profiler import ExecutionTraceObserver
from trace_examples import pair_workload

import layerdag as ld
from layerdag.cli.main import main
from layerdag.datasets.job_programs import programs_in
from layerdag.datasets.loading import read_dataset
from layerdag.errors import LayerdagError
from layerdag.graph.attributed_graph import write_step_times
from layerdag.kinds.job import JOB
from layerdag.kinds.program import PROGRAM
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.chakra.files import read_trace, write_trace
from layerdag.traces.chakra.workload import rank_file, write_workload
from layerdag.traces.pytorch.forward_calls import argument_texts
from layerdag.traces.pytorch.importer import import_host
from layerdag.traces.trace import Attribute, NodeType, Wire


def traced(model: torch.nn.Module, inputs: list[Any], path: Path) -> Path:
    """Write the host trace of one training step of AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for observer in (None, ExecutionTraceObserver().register_callback(str(path))):
        if observer is not None:
            observer.start()
        model(*inputs).backward()
        optimizer.step()
        optimizer.zero_grad()
        if observer is not None:
            observer.stop()
            observer.unregister_callback()
    return path


@pytest.mark.parametrize("make", [language, images])
def test_the_program_of_a_trace_is_that_of_the_module(make, tmp_path):
    model, inputs = make()
    own = ld.program(model, inputs)
    found = ld.program(traced(model, inputs, tmp_path / "host.json"))
    assert sorted(n.operator for n in found.nodes) == sorted(n.operator for n in own.nodes)
    assert found.parameters() == own.parameters()
    assert found.check() == []
    derived, step = found.step(data=4).trace, own.step(data=4).trace
    assert derived.names() == step.names()
    for name in ("num_ops", "tensor_size", "comm_size"):
        assert derived.integers(name)[0].tolist() == step.integers(name)[0].tolist()


def test_numbers_that_a_trace_lacks_are_told(tmp_path):
    """PyTorch passes the one that batch norm counts with as a tensor without content."""
    found = ld.program(traced(*images(), tmp_path / "host.json"))
    (note,) = found.notes
    assert note.startswith("Numbers of aten.add_.Tensor that the trace lacks: 1. 0.5 and 1 stand")


def test_a_number_whose_place_the_optimizer_uses_again_stays_a_number(tmp_path):
    path = traced(*images(), tmp_path / "host.json")
    data = json.loads(path.read_text())
    numbers = [
        node["inputs"]["values"][1]
        for node in data["nodes"]
        if node["name"] == "aten::add_" and node["inputs"]["types"][1] == "Tensor(long int)"
    ]
    assert len(numbers) > 1
    numbers[-1][0] = numbers[0][0]
    path.write_text(json.dumps(data))
    assert (
        ld.program(path).notes[0].startswith("Numbers of aten.add_.Tensor that the trace lacks: 1.")
    )


@pytest.mark.parametrize(
    ("node", "told"),
    [
        ('"name": "x"', r"as .id., which is the number of a node"),
        ('"id": 1, "name": "x"', "has no forward pass"),
        (
            '"id": 1, "name": "fsdp::all_gather_copy_in", "inputs": {}, "outputs": {}',
            r"node 1 \(fsdp::all_gather_copy_in\) has no operator",
        ),
    ],
)
def test_a_host_trace_without_a_program_is_refused(tmp_path, node, told):
    path = tmp_path / "host.json"
    path.write_text(f'{{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [{{{node}}}]}}')
    with pytest.raises(LayerdagError, match=told):
        ld.program(path)


class Cast(torch.nn.Module):
    """A layer and its loss under autocast, which no scope of the trace tells."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(24, 40), torch.nn.LayerNorm(40))

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return nn.functional.cross_entropy(self.body(x), target)


def test_casts_of_autocast_are_calls(tmp_path):
    inputs = [torch.randn(8, 24), torch.zeros(8, dtype=torch.long)]
    path = traced(Cast(), inputs, tmp_path / "host.json")
    found = ld.program(path)
    called = [(node.operator, node.mode) for node in found.nodes]
    assert ("aten.linear.default", ()) in called
    assert sum(operator.startswith("aten.to.") for operator, _ in called) >= 3
    derived, real = found.step(optimizer="adamw-fused").trace, import_host(path).trace
    assert Counter(derived.names()) == Counter(real.names())


class Infinite(torch.nn.Module):
    """A model whose arguments are no finite numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(24, 40)

    def forward(self, x: Tensor) -> Tensor:
        masked = self.body(x).masked_fill(torch.zeros(8, 40, dtype=torch.bool), float("nan"))
        return masked.clamp(max=float("inf")).sum()


def program_or_refusal(path: Path) -> str:
    try:
        found = ld.program(path)
    except LayerdagError as error:
        return str(error).removeprefix(str(path))
    return repr((*found.nodes, found.name, dict(found.sizes), *found.outputs, *found.order,
                 *found.unused, *found.units, *found.notes))  # fmt: skip


def converted(host: Path, folder: Path) -> Path:
    out = folder / host.name.partition(".")[0]
    assert main(["convert", str(host), "--only-rank", "--overwrite", "--out", str(out)]) == 0
    return rank_file(out, 0)


@pytest.mark.parametrize(
    "make",
    [
        *(language, images),
        lambda: (Cast(), [torch.randn(8, 24), torch.zeros(8, dtype=torch.long)]),
        lambda: (Infinite(), [torch.randn(8, 24)]),
    ],
    ids=["language", "images", "autocast", "infinite"],
)
def test_a_converted_trace_has_the_program_of_its_host_trace(make, tmp_path, capfd):
    host = traced(*make(), tmp_path / "host.json")
    chakra = converted(host, tmp_path)
    assert program_or_refusal(chakra) == program_or_refusal(host)
    trace = read_trace(chakra)
    (row,) = [row for row, name in enumerate(trace.names()) if name == "aten::addmm"][:1]
    stated = [trace.strings[at] for at in trace.io_N6[row].tolist()]
    assert stated[1].startswith("[[")
    assert stated[2].startswith("['Tensor(")
    assert main(["convert", str(chakra), "--out", str(tmp_path / "again")]) == 0
    assert repr(ld.program(tmp_path / "again.0.et").nodes) == repr(ld.program(host).nodes)
    assert main(["convert", str(chakra), "--scrub", "--out", str(tmp_path / "scrubbed")]) == 0
    with pytest.raises(LayerdagError, match="does not keep the arguments of its forward calls"):
        ld.program(tmp_path / "scrubbed.0.et")


@pytest.mark.slow
def test_collected_traces_have_the_programs_of_their_host_traces(shared_data, tmp_path, capfd):
    hosts = sorted((shared_data / "collected").glob("*.et.json.gz"))[::10]
    assert len(hosts) > 15
    found = [program_or_refusal(host) for host in hosts]
    assert found == [program_or_refusal(converted(host, tmp_path)) for host in hosts]
    assert sum(text.startswith("(") for text in found) > 8


def test_all_calls_among_the_nodes_are_a_program_too(tmp_path):
    """So Chakra's own converter writes them: every call a node, its caller in ``ctrl_deps``."""
    host = traced(*language(), tmp_path / "host.json")
    nodes = sorted(json.loads(host.read_text())["nodes"], key=lambda node: node["id"])
    specs = [
        NodeSpec(
            node["id"],
            node["name"],
            NodeType.COMP,
            ctrl_deps=(node["ctrl_deps"],),
            attributes=tuple(
                Attribute(each["name"], Wire.STRING, each["value"])
                for each in node["attrs"]
                if each["name"] == "op_schema"
            ),
            io=argument_texts(node),
        )
        for node in nodes
    ]
    write_trace(build_trace(specs), tmp_path / "host.0.et")
    assert program_or_refusal(tmp_path / "host.0.et") == program_or_refusal(host)


@pytest.mark.parametrize("text", ["[", "-" * 200_000 + "1", "__import__('os')", "3"])
def test_damaged_arguments_of_a_chakra_trace_are_refused(text, tmp_path):
    schema = Attribute("op_schema", Wire.STRING, "aten::relu(Tensor self) -> Tensor")
    node = NodeSpec(1, "aten::relu", NodeType.COMP, attributes=(schema,), io=(text,) * 6)
    write_trace(build_trace([node]), tmp_path / "x.0.et")
    with pytest.raises(LayerdagError, match=r"x\.0\.et: node 1 "):
        ld.program(tmp_path / "x.0.et")


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder with a host trace and its measured times, and a job without arguments."""
    place = tmp_path / "traces"
    place.mkdir()
    traced(*language(), place / "mine.json")
    (place / "mine.steps.json").write_text('{"seconds": [1]}')
    write_workload(pair_workload(), place / "pair")
    return place


def test_a_folder_of_host_traces_becomes_one_of_programs(folder, capsys):
    out = folder.with_name("programs")
    assert main(["program", str(folder), "--out", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in found["programs"]] == ["mine"]
    assert [row["name"] for row in found["left_out"]] == ["pair"]
    assert found["left_out"][0]["reason"].startswith("does not keep the arguments of its forward")
    assert ld.program(out / "mine.program.json").nodes == ld.program(folder / "mine.json").nodes
    assert (out / "mine.steps.json").read_text() == '{"seconds": [1]}'
    write_workload(pair_workload(), folder / "mine", overwrite=True)  # beside its host trace
    (folder / "empty.json").touch()
    told = {made.name: made.reason for made in programs_in(folder)}
    assert told["mine"] == ""
    assert told["empty.json"].startswith("is empty")
    again = programs_in(out)  # programs alone are jobs, too
    assert [(made.name, made.program is not None) for made in again] == [("mine", True)]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "is a folder; name one for its programs, --out FOLDER"),
        (["--out", "."], "older programs would stand among the new ones"),
        (["--out", "p", "--size", "w0=3"], "name one of these for another size"),
        (["--out", "p", "--parameters", "1e6"], "name one of these for another size"),
    ],
)
def test_what_a_folder_does_not_take_is_refused(folder, capsys, words, reason):
    assert main(["program", str(folder), *words]) == 2
    assert reason in capsys.readouterr().err


def test_programs_are_what_is_loaded_of_traces_with_arguments(folder):
    write_step_times(folder / "mine", [2.0, 1.0], 1)
    data = ld.load_dataset(folder)
    assert data.schema.kind is PROGRAM
    assert (data.names["train"], data.members[0].conditions["label"]) == (("mine",), 1.0)
    assert [line.partition(":")[0] for line in data.left_out] == ["pair"]
    assert "has no program to learn, as others have" in data.left_out[0]
    (program,) = data.graphs["train"]
    assert program.num_nodes == len(ld.program(folder / "mine.json").nodes)


def test_traces_with_arguments_are_loaded_as_graphs_where_that_is_asked_for(folder):
    data = read_dataset(folder, as_jobs=True)
    assert (data.schema.kind, sum(map(len, data.names.values()))) == (JOB, 2)
    assert "flops" in [attribute.name for attribute in data.schema.attributes]


def test_traces_without_arguments_are_loaded_as_graphs(folder):
    (folder / "mine.json").unlink()
    data = ld.load_dataset(folder)
    assert (data.schema.kind, data.left_out, data.notes) == (JOB, (), ())


def test_traces_whose_arguments_are_no_program_are_graphs_and_noted(folder):
    host = json.loads((folder / "mine.json").read_text())
    for node in host["nodes"]:
        if node["name"] == "aten::linear":
            node["attrs"] = [each for each in node["attrs"] if each["name"] != "op_schema"]
    (folder / "mine.json").write_text(json.dumps(host))
    data = ld.load_dataset(folder)
    assert (data.schema.kind, sum(map(len, data.names.values()))) == (JOB, 2)
    (note,) = data.notes
    assert note.word == "mine"
    assert "has no program, so it is learned as a graph" in note.effect
