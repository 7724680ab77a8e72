"""Local memory as the reference counts it."""

import json

import pytest
from simulator_traces import node, workload

from layerdag.cli.main import main
from layerdag.errors import SimulationError, UsageError
from layerdag.simulator.reference_memory import in_units, reference_memory, write_memory
from layerdag.simulator.run import simulate
from layerdag.traces.builder import NodeSpec
from layerdag.traces.chakra.workload import write_workload
from layerdag.traces.trace import Attribute, NodeType, Wire

_TEXTS = Wire.STRING + 1


def using(id: int, inputs: tuple[str, ...], outputs: tuple[str, ...] | None, *deps: int):
    """Return a node of 1 us; without outputs the attribute has no value, as STAGE writes it."""
    written = (
        Attribute("outputs", _TEXTS, outputs) if outputs else Attribute("outputs", Wire.UNSET, None)
    )
    read = Attribute("inputs", _TEXTS, inputs) if inputs else Attribute("inputs", Wire.UNSET, None)
    return NodeSpec(
        id, f"n{id}", NodeType.COMP, data_deps=deps, duration_us=1, attributes=(read, written)
    )


NODES = [
    using(0, ("weight", "100"), ("a", "10")),
    using(1, ("a", "10", "none", "0"), ("b", "40"), 0),
    using(2, ("b", "40", "weight", "100"), None, 1),
]


def test_a_tensor_is_held_from_its_writer_to_its_last_reader():
    (found,) = reference_memory(simulate(workload(NODES), compute="measured"))
    # The weight is there from the start; "a" ends with node 1, "b" and the weight with node 2.
    assert found.usage == {0: 110, 1000: 150, 2000: 140, 3000: 0}
    assert found.peak == 150
    events = list(found.events())
    reads = [e for e in events if e.get("cat") == "tensorRead"]
    assert [(e["name"], e["ph"], e["ts"]) for e in reads[:4]] == [
        ("weight", "B", 0.0), ("weight", "E", 1.0), ("weight", "B", 2.0), ("weight", "E", 3.0),
    ]  # fmt: skip
    counted = [e["args"]["Memory_MB"] * 2**20 for e in events if e["ph"] == "C"]
    assert counted == list(found.usage.values())


def test_a_node_without_its_tensors_is_one_sentence():
    result = simulate(workload([*NODES, node(3, NodeType.COMP, (2,), 1)]), compute="measured")
    with pytest.raises(SimulationError, match="node 3 has no attribute 'inputs', which track-loc"):
        list(reference_memory(result))


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0.00 B"), (1536, "1.50 KB"), (151_980_000, "144.94 MB")]
)
def test_peaks_are_told_in_the_units_of_the_reference(size, text):
    assert in_units(size) == text


def test_the_command_writes_a_file_for_each_rank_and_the_report(tmp_path, capsys):
    write_workload(workload(NODES, NODES), tmp_path / "w")
    system = {
        "preferred-dataset-splits": 1, "collective-optimization": "baseline",
        "track-local-mem": 1, "local-mem-trace-filename": str(tmp_path / "memory"),
    }  # fmt: skip
    (tmp_path / "s.json").write_text(json.dumps(system))
    (tmp_path / "n.yml").write_text(
        "topology: [Ring]\nnpus_count: [2]\nbandwidth: [50]\nlatency: [5]\n"
    )
    words = ["simulate", str(tmp_path / "w"), "--system", str(tmp_path / "s.json")]
    words += ["--network", str(tmp_path / "n.yml")]
    assert main([*words, "--report", "--memory-capacity", "1"]) == 0
    assert "peak memory usage: 150.00 B" in capsys.readouterr().out
    written = json.loads((tmp_path / "memory.1.json").read_text())
    assert {event["pid"] % 10 for event in written["traceEvents"]} == {1}
    (tmp_path / "memory.0.json").write_text("mine")
    assert main(words) == 2
    assert "holds no memory trace and is not replaced" in capsys.readouterr().err


def test_another_file_is_never_replaced(tmp_path):
    (tmp_path / "m.0.json").write_text("mine")
    (found,) = reference_memory(simulate(workload(NODES), compute="measured"))
    with pytest.raises(UsageError):
        write_memory(found, str(tmp_path / "m"))
