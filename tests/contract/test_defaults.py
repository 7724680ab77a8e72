"""Every default on data from outside stands in ``docs/dev/defaults.md`` with a reason.

A section ``### FILE`` lists all defaults of a file of ``layerdag/``, one line for each:
``- `expression`: reason``. ``READERS`` are the files that must have a section.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "dev" / "defaults.md"
READERS: tuple[str, ...] = (
    "api/reference_data.py",
    "codec/convert_inputs.py",
    "codec/foreign.py",
    "codec/formats.py",
    "codec/recognition.py",
    "codec/vocabulary.py",
    "datasets/alibaba.py",
    "datasets/alignment.py",
    "datasets/dgrl.py",
    "datasets/discovery.py",
    "datasets/folder.py",
    "datasets/private_words.py",
    "datasets/sources.py",
    "datasets/tpu_tile.py",
    "graph/attributed_graph.py",
    "graph/formats/dot.py",
    "graph/formats/graphml.py",
    "graph/formats/node_link.py",
    "graph/formats/program_json.py",
    "graph/formats/repeated_blocks.py",
    "graph/formats/rows.py",
    "graph/formats/wfformat.py",
    "hardware/devices.py",
    "programs/forward_program.py",
    "programs/host_traces.py",
    "programs/nodes.py",
    "runtime/settings.py",
    "samples/table.py",
    "schema/attributes.py",
    "schema/conditions.py",
    "schema/durations.py",
    "schema/schema.py",
    "simulator/calibration.py",
    "simulator/calibration_fit.py",
    "simulator/cluster.py",
    "simulator/compute.py",
    "simulator/compute_choice.py",
    "simulator/learned.py",
    "simulator/sweep.py",
    "traces/astra_text.py",
    "traces/chakra/files.py",
    "traces/chakra/json_forms.py",
    "traces/chakra/storage.py",
    "traces/chakra/wire.py",
    "traces/chakra/workload.py",
    "traces/hlo/operations.py",
    "traces/hlo/parser.py",
    "traces/hlo/program.py",
    "traces/pytorch/device_import.py",
    "traces/pytorch/forward_calls.py",
    "traces/pytorch/host_dataflow.py",
    "traces/pytorch/host_trace.py",
    "traces/pytorch/importer.py",
    "traces/pytorch/kernel_communication.py",
    "traces/pytorch/kernel_shapes.py",
    "traces/pytorch/kineto.py",
    "traces/pytorch/operators.py",
    "traces/pytorch/ranks.py",
    "workloads/exploration.py",
    "workloads/study.py",
    "workloads/transformer/hugging_face.py",
)
_ROW = re.compile(r"- `+ ?(?P<expression>.+?) ?`+: (?P<reason>\S.*)")


def defaults(path: Path) -> Iterator[str]:
    """Yield each expression that puts something in the place of what is not there."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            named = isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop")
            asked = isinstance(node.func, ast.Name) and node.func.id == "getattr"
            if (named and len(node.args) == 2) or (asked and len(node.args) == 3):
                yield ast.unparse(node)
        elif isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            if isinstance(node.values[-1], ast.Constant | ast.Tuple | ast.List | ast.Dict):
                yield ast.unparse(node)
        elif isinstance(node, ast.IfExp) and getattr(node.orelse, "value", None) is not None:
            if_constant = isinstance(node.orelse, ast.Constant)
            yield from [ast.unparse(node)] * if_constant


def listed() -> dict[str, list[str]]:
    """Return the expressions of each section of the page."""
    sections: dict[str, list[str]] = {}
    for line in PAGE.read_text().splitlines():
        if line.startswith("### "):
            sections[line.removeprefix("### ").strip()] = []
        elif (row := _ROW.match(line)) and sections:
            sections[next(reversed(sections))].append(row["expression"])
    return sections


SECTIONS = listed()


@pytest.mark.parametrize("name", sorted({*SECTIONS, *READERS}))
def test_every_default_of_a_reader_has_a_reason(name):
    found = set(defaults(ROOT / "layerdag" / name))
    told = set(SECTIONS.get(name, []))
    assert found - told == set(), "give a reason in docs/dev/defaults.md, or remove the default"
    assert told - found == set(), "these are gone from the code; remove their lines"
