"""Traces and profiles with words that nobody can know: PyTorch, Chakra, ASTRA-sim's text."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from host_json import MM, node, plain, tensor, write_host
from profile_json import event, kernel, launch, write_profile

from layerdag.codec.convert_inputs import Inputs, read_inputs
from layerdag.codec.formats import read_any, recognize
from layerdag.runtime.notes import Note, NoteKind
from layerdag.traces.analysis import impossible
from layerdag.traces.builder import VARINT, NodeSpec, build_trace, length_delimited, tag, varint
from layerdag.traces.chakra.files import write_trace
from layerdag.traces.chakra.json_forms import encode_trace_json
from layerdag.traces.chakra.workload import read_workload
from layerdag.traces.pytorch.kineto import read_timings
from layerdag.traces.trace import Attribute, NodeType, Wire, Workload
from tests.helpers.unknown_words.case import UnknownWord

P = "traces/pytorch/"
COUNT = {"In msg nelems": 4, "dtype": "Float"}


def _profile(*events: dict, **head: Any):
    """Return what reads a profile of these events beside a sound kernel."""

    def read(folder: Path) -> Sequence[Note]:
        sound = (launch(1, 0), kernel(1, 5, 2))
        path = write_profile(folder / "p.json", [*sound, *events], **head)
        return read_any(path).notes

    return read


def _kernel(name: str, **args: Any):
    """Return what reads a profile with this kernel, of a job of four ranks and two groups."""
    told = {"world_size": 4, "pg_config": [{"pg_name": "tp", "ranks": [0, 1]}]}
    events = (launch(2, 20), kernel(2, 30, 2, name, **args))
    return _profile(*events, distributedInfo=told)


def _shaped(dims: object):
    """Return what reads a profile of an operator whose tensors have these shapes."""
    told = {"External id": 1, "Input Dims": dims, "Input type": ["float"]}
    return _profile(event("cpu_op", "aten::mm", 19, 9, **told), launch(2, 20), kernel(2, 30, 5))


def _raw_profile(sound: str, raw: str):
    """Return what reads a profile in which a text became what is no JSON."""

    def read(folder: Path) -> Sequence[Note]:
        path = folder / "p.json"
        write_profile(path, [launch(1, 0), kernel(1, 5, 2, "a@b")])
        path.write_text(path.read_text().replace(sound, raw))
        return read_any(path).notes

    return read


def _two_profiles(end: str, more: str):
    def read(folder: Path) -> Sequence[Note]:
        path = write_profile(folder / "p.json", [launch(1, 0), kernel(1, 5, 2)])
        path.write_text(path.read_text().removesuffix("}") + end + more)
        return read_any(path).notes

    return read


def _timings(folder: Path) -> Sequence[Note]:
    told = {"Record function id": 42}
    events = [event("cpu_op", "a", 1, 2, **told), event("cpu_op", "b", 1, -7, **told)]
    return read_timings(write_profile(folder / "p.json", events)).notes


def _host(*nodes: dict):
    return lambda folder: read_any(write_host(folder / "h.json", list(nodes))).notes


def _ranks(folder: Path) -> Sequence[Note]:
    for name, rank in (("rank1.json", 0), ("rank0.json", 1)):
        info = {"rank": rank, "world_size": 2}
        write_profile(folder / name, [launch(1, 0), kernel(1, 5, 2)], distributedInfo=info)
    return read_inputs(recognize(folder), Inputs((str(folder),)), lambda line: None).notes


def _text(first: str):
    def read(folder: Path) -> Sequence[Note]:
        path = folder / "w.txt"
        path.write_text(f"HYBRID_TRANSFORMER {first}\n1\na -1 10 NONE 0 20 NONE 0 30 NONE 0 4\n")
        return read_any(path, num_ranks=4).notes

    return read


def _chakra(fields: bytes, meta: bytes = b""):
    """Return what reads a trace of one computation with further fields."""

    def read(folder: Path) -> Sequence[Note]:
        sound = tag(1, VARINT) + varint(7) + tag(3, VARINT) + varint(4) + fields
        head = length_delimited(1, b"1.0.0") + meta
        path = folder / "t.0.et"
        path.write_bytes(b"".join(varint(len(part)) + part for part in (head, sound)))
        return read_any(path).notes

    return read


def _impossible(num_ops: int = 1, data_deps: tuple[int, ...] = ()):
    """Return what is told where one computation is written as JSON."""
    costs = (Attribute("num_ops", Wire.INT64, num_ops),)
    one = NodeSpec(0, "mm", NodeType.COMP, data_deps=data_deps, attributes=costs)
    job = Workload((build_trace([one]),))
    return lambda folder: impossible(job, dependencies=True)


def _empty(folder: Path) -> Sequence[Note]:
    (folder / "t.0.et").write_bytes(b"\0")
    return read_any(folder / "t.0.et").notes


def _feeder(folder: Path) -> Sequence[Note]:
    (folder / "t.json").write_text('{"workload_graph": [{"Id": 7, "runtime": 3}]}')
    return read_any(folder / "t.json").notes


def _collective(kind: int | None) -> Callable[[Path], Sequence[Note]]:
    def read(folder: Path) -> Sequence[Note]:
        stated = () if kind is None else (Attribute("comm_type", Wire.INT64, kind),)
        trace = build_trace([NodeSpec(0, "x", NodeType.COMM_COLL, attributes=stated)])
        write_trace(trace, folder / "t.0.et")
        return read_workload(folder / "t").notes

    return read


def _group(name: str | int):
    """Return what reads a trace with a collective in a group that nothing describes."""

    def read(folder: Path) -> Sequence[Note]:
        wire = Wire.STRING if isinstance(name, str) else Wire.INT32
        stated = (Attribute("comm_type", Wire.INT64, 0), Attribute("pg_name", wire, name))
        trace = build_trace([NodeSpec(0, "x", NodeType.COMM_COLL, attributes=stated)])
        write_trace(trace, folder / "t.0.et")
        return recognize(folder / "t").traces().notes

    return read


def _changed(old: str, new: str):
    """Return what reads traces as JSON in which a word is another."""

    def read(folder: Path) -> Sequence[Note]:
        text = encode_trace_json(Workload((build_trace([]),))).decode()
        (folder / "t.json").write_text(text.replace(f'"{old}"', f'"{new}"'))
        return read_any(folder / "t.json").notes

    return read


def _json_of(document: Any):
    def read(folder: Path) -> Sequence[Note]:
        (folder / "t.json").write_text(json.dumps(document))
        return read_any(folder / "t.json").notes

    return read


def _own_json(folder: Path) -> Sequence[Note]:
    document = json.loads(
        encode_trace_json(Workload((build_trace([NodeSpec(0, "x", NodeType.COMP)]),)))
    )
    document["traces"][0]["nodes"][0]["stream"] = 7
    (folder / "t.json").write_text(json.dumps(document))
    return read_any(folder / "t.json").notes


ODD = {**tensor(1), "type": "Tensor(c10::Float3)"}
FUSED = "symm_mem::fused_all_gather_matmul"
RECEIVE = (
    "c10d::recv_any_source_(Tensor[] tensors, __torch__.torch.classes.c10d.ProcessGroup g, int tag)"
    " -> __torch__.torch.classes.c10d.Work"
)
STORAGE = length_delimited(
    11, tag(1, VARINT) + varint(1) + length_delimited(10, tag(1, VARINT) + varint(44))
)

CASES = (
    UnknownWord(
        P + "kineto.py", NoteKind.ENCODING, "raw control character",
        _raw_profile("a@b", "a\x01b"),
    ),
    UnknownWord(
        P + "kineto.py", NoteKind.ENCODING, '{"traceEvents": []}',
        _two_profiles("}\n", '{"traceEvents": []}'),
    ),
    UnknownWord(
        P + "kineto.py", NoteKind.ENCODING, "end of 'traceEvents'", _two_profiles(', "a"', ""),
    ),
    UnknownWord(
        P + "kineto.py", NoteKind.CATEGORY, "gcu_runtime", _profile(event("gcu_runtime", "x", 1, 1))
    ),
    UnknownWord(P + "kineto.py", NoteKind.KEY, "distributedInfo", _profile(distributedInfo=[7])),
    UnknownWord(
        P + "kineto.py", NoteKind.RANK, "9", _profile(distributedInfo={"rank": 9, "world_size": 2})
    ),
    UnknownWord(P + "kineto.py", NoteKind.TIME, "1, -7 us", _timings),
    UnknownWord(
        P + "kineto.py", NoteKind.TIME, "inf us", _profile(kernel(2, float("inf"), 1, stream=8))
    ),
    UnknownWord(
        P + "device_import.py", NoteKind.DTYPE, "Float3",
        _kernel("ncclAllReduce", **{**COUNT, "dtype": "Float3"}),
    ),
    UnknownWord(P + "device_import.py", NoteKind.SIZE, "ncclAllReduce", _kernel("ncclAllReduce")),
    UnknownWord(P + "device_import.py", NoteKind.SIZE, "[[4, 4]]", _shaped("[[4, 4]]")),
    UnknownWord(P + "device_import.py", NoteKind.SIZE, "[4, 's0']", _shaped([[4, "s0"]])),
    UnknownWord(P + "device_import.py", NoteKind.SIZE, "[-4, 4]", _shaped([[-4, 4]])),
    UnknownWord(
        P + "device_import.py", NoteKind.SIZE, "-4",
        _kernel("ncclAllReduce", **{**COUNT, "In msg nelems": -4}),
    ),
    UnknownWord(
        P + "device_import.py", NoteKind.TIME, "kernel begins before its launch",
        _profile(launch(2, 20), kernel(2, 10, 3)),
    ),
    UnknownWord("traces/analysis.py", NoteKind.GROUP, "7", _group("7")),
    UnknownWord("traces/analysis.py", NoteKind.GROUP, "9", _group(9)),
    UnknownWord("traces/chakra/json_forms.py", NoteKind.VERSION, "9.9", _changed("1.0.0", "9.9")),
    UnknownWord(
        "traces/chakra/json_forms.py", NoteKind.VERSION, "layerdag-trace-2",
        _changed("layerdag-trace", "layerdag-trace-2"),
    ),
    UnknownWord(
        "codec/foreign.py", NoteKind.KEY, "InfraGraph",
        _json_of({"devices": [], "instances": [], "edges": []}),
    ),
    UnknownWord(
        P + "device_import.py", NoteKind.PEER, "send",
        _kernel("ncclSendRecv", **{"Collective name": "send"}, **COUNT),
    ),
    UnknownWord(
        P + "device_import.py", NoteKind.COLLECTIVE, "teleport",
        _kernel("ncclDevKernel_SendRecv", **{"Collective name": "teleport"}),
    ),
    UnknownWord(
        P + "device_import.py", NoteKind.GROUP, "nccl::all_reduce",
        _kernel("ncclAllReduce", **{"Process Group Name": "mystery"}, **COUNT),
    ),
    UnknownWord(
        P + "device_import.py", NoteKind.KERNEL, "cudaGraphLaunch",
        _profile(event("cuda_runtime", "cudaGraphLaunch", 9, 1, correlation=77)),
    ),
    UnknownWord(
        P + "device_import.py", NoteKind.NUMBER, "many",
        _profile(distributedInfo={"world_size": "many"}),
    ),
    UnknownWord(
        P + "host_dataflow.py", NoteKind.DTYPE, "c10::Float3",
        _host(node(3, "aten::mm", MM, (ODD, tensor(2)), (tensor(4),))),
    ),
    UnknownWord(
        P + "host_dataflow.py", NoteKind.COLLECTIVE, FUSED,
        _host(node(3, FUSED, f"{FUSED}(Tensor A) -> Tensor", (tensor(1),), (tensor(4),))),
    ),
    UnknownWord(
        P + "host_dataflow.py", NoteKind.NODE, "id 3",
        _host(*(node(3, "aten::mm", MM, (tensor(1), tensor(2)), (tensor(4),)) for _ in "ab")),
    ),
    UnknownWord(
        P + "host_dataflow.py", NoteKind.NODE, "parent 77",
        _host(
            {**node(3, "aten::mm", MM, (tensor(1), tensor(2)), (tensor(4),)), "ctrl_deps": 77},
        ),
    ),
    UnknownWord(
        P + "device_import.py", NoteKind.KERNEL, "lonely",
        _profile(kernel(77, 30, 2, "lonely")),
    ),
    UnknownWord(
        P + "device_import.py", NoteKind.KERNEL, "echo",
        _profile(launch(2, 20), *[kernel(2, 30, 2, "echo")] * 2),
    ),
    UnknownWord(
        P + "device_import.py", NoteKind.KERNEL, "cudaLaunchKernel",
        _profile(launch(2, 20), kernel(2, 30, 2), kernel(2, 40, 2)),
    ),
    UnknownWord(
        P + "kineto.py", NoteKind.GROUP, "'everyone'",
        _profile(distributedInfo={"pg_config": [{"pg_name": "0", "ranks": "everyone"}]}),
    ),
    UnknownWord(
        P + "kineto.py", NoteKind.GROUP, "7", _profile(distributedInfo={"pg_config": [7]})
    ),
    UnknownWord(
        P + "kineto.py", NoteKind.KEY, "distributedInfo",
        _two_profiles(', "distributedInfo": {"rank": 1}}', ""),
    ),
    UnknownWord(P + "kineto.py", NoteKind.VERSION, "9", _profile(schemaVersion=9)),
    UnknownWord(
        P + "kineto.py", NoteKind.ENCODING, "inf or nan for a number",
        _raw_profile('"correlation": 1', '"GB/s": inf, "correlation": 1'),
    ),
    UnknownWord("traces/analysis.py", NoteKind.NUMBER, "below 0", _impossible(num_ops=-1)),
    UnknownWord("traces/analysis.py", NoteKind.EDGE, "dependency", _impossible(data_deps=(7,))),
    UnknownWord(
        P + "importer.py", NoteKind.PEER, "c10d::recv_any_source_",
        _host(
            node(3, "aten::mm", MM, (tensor(1), tensor(2)), (tensor(4),)),
            node(5, "c10d::recv_any_source_", RECEIVE,
                (tensor(1), plain("<Object>", "Object"), plain(7))),
        ),
    ),
    UnknownWord(P + "ranks.py", NoteKind.RANK, "rank1.json", _ranks),
    UnknownWord("traces/astra_text.py", NoteKind.KEY, "ga: 4", _text("ga: 4")),
    UnknownWord("traces/astra_text.py", NoteKind.KEY, "mystery", _text("mystery: 4")),
    UnknownWord("traces/astra_text.py", NoteKind.NUMBER, "all_gpus: 32", _text("all_gpus: 32")),
    UnknownWord(
        "traces/chakra/wire.py", NoteKind.KEY, "field 44 of Node",
        _chakra(length_delimited(44, b"new")),
    ),
    UnknownWord(
        "traces/chakra/wire.py", NoteKind.KEY, "field 9 of GlobalMetadata",
        _chakra(b"", length_delimited(9, b"new")),
    ),
    UnknownWord("traces/chakra/files.py", NoteKind.NODE, "0 nodes", _empty),
    UnknownWord("traces/chakra/files.py", NoteKind.COLLECTIVE, "comm_type 77", _collective(77)),
    UnknownWord("traces/chakra/files.py", NoteKind.COLLECTIVE, "no comm_type", _collective(None)),
    UnknownWord("traces/chakra/json_forms.py", NoteKind.NODE, "7", _feeder),
    UnknownWord("traces/chakra/json_forms.py", NoteKind.KEY, "stream", _own_json),
    UnknownWord("traces/chakra/storage.py", NoteKind.OPERATOR, "FS fs.44", _chakra(STORAGE)),
)  # fmt: skip
