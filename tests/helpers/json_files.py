"""Sound JSON and YAML files of every kind that is read, each with its reader."""

import json
import lzma
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from host_json import ALL_REDUCE, MM, listed, node, plain, tensor, write_host
from profile_json import event, kernel, launch, write_profile
from random_jobs import random_job
from raw_graphs import chain
from sample_parts import TEN, written
from small_studies import study
from tile_files import write_tile
from tiny_checkpoints import chain_checkpoint, chains
from tiny_corpus import write_corpus

from layerdag.codec.formats import read, read_any
from layerdag.codec.unfolding import unfold
from layerdag.datasets.loading import read_dataset
from layerdag.datasets.programs import load_programs
from layerdag.datasets.run_plans import STEPS, measured_steps
from layerdag.datasets.settings import ProgramsConfig
from layerdag.graph.attributed_graph import (
    read_json,
    read_labels,
    read_step_time,
    write_json,
    write_step_times,
)
from layerdag.hardware.devices import Hardware
from layerdag.programs.forward_program import Program
from layerdag.samples.manifest import PartIndex, SampleRun
from layerdag.samples.reader import iter_samples
from layerdag.samples.stored import StoredSample
from layerdag.sampling.folder import write_samples
from layerdag.serving.requests import read_requests
from layerdag.simulator.calibration import CalibratedMachine, read_machine, write_machine
from layerdag.simulator.calibration_fit import FittedLink
from layerdag.simulator.cluster import read_memory, read_network, read_system
from layerdag.simulator.learned import OperatorTrees
from layerdag.simulator.sweep import read_sweep
from layerdag.surrogates.families.trees import BoostingSettings, fit_boosting
from layerdag.surrogates.files import load_surrogate, save_surrogate
from layerdag.traces.chakra.corpus import read_index
from layerdag.traces.chakra.json_forms import encode_feeder_json, encode_trace_json
from layerdag.traces.chakra.workload import read_groups
from layerdag.traces.trace import Workload
from layerdag.training.checkpoint import load_checkpoint, read_schema
from layerdag.training.run_file import read_run_file, run_record, write_run_file
from layerdag.workloads.step_efficiency import read_efficiency, shipped_efficiency, write_efficiency
from layerdag.workloads.study import read_study
from layerdag.workloads.transformer.hugging_face import read_hugging_face


@dataclass(frozen=True)
class JsonFile:
    """A kind of file.

    Attributes:
        name: Of the test.
        write: Writes a sound file, and what belongs to it, into a folder; returns its path.
        read: Reads the file.
    """

    name: str
    write: Callable[[Path], Path]
    read: Callable[[Path], object]

    def __str__(self) -> str:
        """Return the name of the test."""
        return self.name


def _text(document: object) -> Callable[[Path], Path]:
    """Return a function that writes a document as it is."""

    def write(folder: Path) -> Path:
        (folder / "it.json").write_text(json.dumps(document))
        return folder / "it.json"

    return write


def _checkpoint(name: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        chain_checkpoint(folder)
        return folder / "model" / name

    return write


def _parts(name: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        return written(chain_checkpoint(folder), folder / "samples") / name

    return write


def _measured_step(folder: Path) -> Path:
    step = {"run": "it", "family": "mlp", "settings": {"optimizer": "adamw-fused"},
            "precision": "bf16", "step_times_s": [0.5, 0.25], "peak_bytes": 4096}  # fmt: skip
    (folder / STEPS).write_text(json.dumps(step))
    return folder / STEPS


def _manifest(folder: Path) -> Path:
    return write_samples(chain_checkpoint(folder), TEN, folder / "samples")


def _entry(folder: Path) -> Path:
    sample = next(iter_samples(written(chain_checkpoint(folder), folder / "samples")))
    return _text(sample.entry)(folder)


def _run(folder: Path) -> Path:
    write_run_file(
        folder, run_record(folder, {"data": {"name": "folder", "folder": "x"}, "seed": 1})
    )
    return folder / "run.json"


def _index(folder: Path) -> Path:
    """Write a corpus whose index is one line, that is, one document."""
    return write_corpus(folder, {"train": 1}) / "index.jsonl"


def _boosting(folder: Path) -> Path:
    data = chains()
    target_B = np.arange(1.0, 1 + len(data.graphs["train"]))
    fitted = fit_boosting(
        list(data.graphs["train"]), target_B, data.schema.sizes(), seed=0,
        settings=BoostingSettings(trees=3),
    )  # fmt: skip
    save_surrogate(fitted, folder / "fitted")
    return folder / "fitted" / "surrogate.json"


def _job(layers: int = 3) -> Workload:
    return unfold(random_job(1, 2, layers=layers), 2).workload


def _own_trace(folder: Path) -> Path:
    (folder / "job.json").write_bytes(encode_trace_json(_job()))
    return folder / "job.json"


def _feeder(folder: Path) -> Path:
    (folder / "job.0.json").write_bytes(encode_feeder_json(_job().traces[0]))
    return folder / "job.0.json"


def _operators(folder: Path) -> Path:
    save_surrogate(OperatorTrees.fit(_job(30).traces), folder / "fitted")
    return folder / "fitted" / "surrogate.json"


def _host(folder: Path) -> Path:
    a, b, c = tensor(1), tensor(2), tensor(3)
    nodes = [
        node(3, "aten::mm", MM, (a, b), (c,)),
        node(4, "c10d::allreduce_", ALL_REDUCE, (listed(c), plain("", "")), (listed(c),)),
    ]
    return write_host(folder / "host.json", nodes)


def _profile(folder: Path) -> Path:
    shapes = {"Input Dims": [[4, 4], [4, 4]], "Input type": ["float", "float"]}
    nccl = {"Collective name": "allreduce", "In msg nelems": 4, "dtype": "Float",
            "Process Group Ranks": "[0, 1]"}  # fmt: skip
    events = [
        event("cpu_op", "aten::mm", 0, 9, **{"External id": 1, **shapes}),
        launch(1, 1),
        kernel(1, 20, 5),
        launch(2, 12),
        kernel(2, 30, 5, "ncclDevKernel_AllReduce", **nccl),
    ]
    return write_profile(
        folder / "p.json", events, distributedInfo={"rank": 0, "world_size": 2, "pg_config": [
            {"pg_name": "0", "ranks": [0, 1]}]},
    )  # fmt: skip


def _step_time(folder: Path) -> Path:
    return write_step_times(folder / "job", [0.5, 0.25], 2)


def _shares(folder: Path) -> Path:
    whole = shipped_efficiency()
    one = {
        name: dict([next(iter(getattr(whole, name).items()))]) for name in ("devices", "software")
    }
    write_efficiency(replace(whole, **one), folder / "s.json")
    return folder / "s.json"


def _machine(folder: Path) -> Path:
    from layerdag.simulator.calibration import FittedOperatorCosts

    costs = FittedOperatorCosts({"mm": (1.0, 2.0, 3.0)}, (4.0, 5.0, 6.0))
    write_machine(CalibratedMachine(costs, FittedLink(10.0, 1e9), 2), folder / "m.json")
    return folder / "m.json"


def _graph(folder: Path) -> Path:
    write_json(folder / "g.json", chain("g", "abc", label=1.0, family="x"))
    return folder / "g.json"


def _family(folder: Path) -> Path:
    """Write programs of many structures, and the one that is damaged in a file of its own."""
    step = PROGRAM["nodes"][1]
    longer = ([PROGRAM["nodes"][0], step, *[{**step, "inputs": [1]}] * at] for at in range(6))
    lines = [json.dumps({**PROGRAM, "nodes": nodes, "units": ["a"]}) + "\n" for nodes in longer]
    (folder / "f.jsonl.xz").write_bytes(lzma.compress("".join(lines).encode(), preset=0))
    return _text({**PROGRAM, "units": ["a", "b"]})(folder)


def _of_family(path: Path) -> object:
    (path.parent / "g.jsonl.xz").write_bytes(lzma.compress(path.read_bytes() + b"\n", preset=0))
    return load_programs(ProgramsConfig(folder=path.parent))


def _tile_split(folder: Path) -> Path:
    """Write one file of four graphs, and how it is split."""
    tile = write_tile(folder / "tile", np.random.default_rng(0), {"train": 4}, layers=2, codes=2)
    (tile / "train.pth").rename(tile / "test.pth")
    (tile / "split.json").write_text(json.dumps({"train": [0, 1], "val": [2], "test": [3]}))
    return tile / "split.json"


def _first_part(path: Path) -> object:
    return PartIndex.read(path.parent, 0)


PROGRAM = {
    "format": "layerdag-program/1", "name": "p", "sizes": {"B0": 2}, "outputs": [1],
    "nodes": [
        {"operator": "input", "arguments": [{"input": ["B0", 4], "dtype": "float32"}]},
        {"operator": "aten.sum.default", "arguments": [{"edge": "#"}], "inputs": [0],
         "keywords": {"dtype": {"dtype": "float32"}}, "module": "m"},
    ],
}  # fmt: skip
CONSTANT = {
    **PROGRAM,
    "nodes": [
        {"operator": "constant", "arguments": [
            {"constant": [2], "dtype": "float32", "content": [1.0, {"float": "inf"}]}]},
        {"operator": "aten.relu.default", "arguments": [{"edge": "#"}], "inputs": [0],
         "mode": ["no_grad"]},
    ],
}  # fmt: skip
LLAMA = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 100,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "max_position_embeddings": 64,
    "hidden_act": "silu", "rope_scaling": None,
}  # fmt: skip
MIXTURE = {
    **LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2,
}  # fmt: skip
LATENT = {
    **LLAMA, "model_type": "deepseek_v3", "q_lora_rank": 16, "kv_lora_rank": 8,
    "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
}  # fmt: skip
WFFORMAT = {
    "name": "w", "schemaVersion": "1.5",
    "workflow": {
        "specification": {
            "tasks": [
                {"name": "a", "id": "a", "parents": [], "children": ["b"], "inputFiles": ["f"],
                 "outputFiles": ["f"]},
                {"name": "b", "id": "b", "parents": ["a"], "children": [], "inputFiles": []},
            ],
            "files": [{"id": "f", "sizeInBytes": 5}],
        },
        "execution": {
            "makespanInSeconds": 2.5,
            "tasks": [{"id": "a", "runtimeInSeconds": 1.5, "coreCount": 2,
                       "command": {"program": "x", "arguments": ["-v"]}, "machines": ["m"]}],
        },
    },
}  # fmt: skip
WFFORMAT_1_4 = {
    "name": "w", "schemaVersion": "1.4",
    "workflow": {
        "makespanInSeconds": 2.5,
        "tasks": [
            {"name": "a", "type": "compute", "parents": [], "children": ["b"],
             "runtimeInSeconds": 1.5, "cores": 1.0,
             "files": [{"link": "output", "name": "f", "sizeInBytes": 5}]},
            {"name": "b", "type": "compute", "parents": ["a"], "children": []},
        ],
    },
}  # fmt: skip
NODE_LINK = {
    "directed": True, "multigraph": False, "graph": {"label": 2.0},
    "nodes": [{"id": "a", "op": "mm", "shape": [1, 2], "more": {"x": 1}}, {"id": "b", "op": "add"}],
    "links": [{"source": "a", "target": "b", "type": "data"}],
}  # fmt: skip
CYTOSCAPE = {
    "data": {"name": "g"},
    "elements": {
        "nodes": [{"data": {"id": "a", "op": "mm"}}, {"data": {"id": "b"}}],
        "edges": [{"data": {"source": "a", "target": "b"}}],
    },
}
JSON_GRAPH = {
    "graph": {
        "directed": True, "metadata": {"label": 2},
        "nodes": {"a": {"label": "mm", "metadata": {"x": 1}}, "b": {"label": "add"}},
        "edges": [{"source": "a", "target": "b", "relation": "data", "metadata": {"y": 1}}],
    }
}  # fmt: skip
GRAPHOLOGY = {
    "options": {"type": "directed"}, "attributes": {"name": "g"},
    "nodes": [{"key": "a", "attributes": {"op": "mm"}}, {"key": "b"}],
    "edges": [{"key": "e", "source": "a", "target": "b", "attributes": {}}],
}  # fmt: skip
STUDY = {**study(), "model": "gpt2"}
SWEEP = {
    "workloads": {"a": "w"}, "systems": {"s": "s.json"}, "networks": {"n": "n.yml"},
    "compute": ["reference"], "congestion": ["unaware"], "costs": {"n": 1.0},
}  # fmt: skip
NETWORK = {"topology": ["Ring"], "npus_count": [2], "bandwidth": [50.0], "latency": [500]}
SYSTEM = {
    "scheduling-policy": "LIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 4, "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"], "reduce-scatter-implementation": ["ring"],
    "all-to-all-implementation": ["direct"], "collective-optimization": "localBWAware",
    "local-mem-bw": 50.0, "peak-perf": 10, "roofline-enabled": 1,
}  # fmt: skip
MEMORY = {
    "memory-type": "PER_NODE_MEMORY_EXPANSION", "remote-mem-latency": 1, "remote-mem-bw": 2.5,
    "num-npus-per-node": 2, "num-nodes": 1,
}  # fmt: skip
HARDWARE = {
    "peak_flops": 1e12, "memory_bandwidth": 1e11, "per_datatype_flops": {"bf16": 2e12},
}  # fmt: skip

FILES = (
    JsonFile(
        "requests",
        _text({"timestamp": 5, "input_length": 374, "output_length": 44, "hash_ids": [46]}),
        read_requests,
    ),
    JsonFile("samples.json", _parts("samples.json"), lambda path: SampleRun.read(path.parent)),
    JsonFile("index of a part", _parts("part-000000.json"), _first_part),
    JsonFile(
        "entry of a sample",
        _entry,
        lambda path: StoredSample.from_files(path.read_bytes(), str(path), {}),
    ),
    JsonFile("manifest", _manifest, lambda path: list(iter_samples(path.parent))),
    JsonFile("meta of a checkpoint", _checkpoint("meta.json"), lambda p: load_checkpoint(p.parent)),
    JsonFile(
        "config of a checkpoint", _checkpoint("config.json"), lambda p: load_checkpoint(p.parent)
    ),
    JsonFile("schema of a checkpoint", _checkpoint("schema.json"), lambda p: read_schema(p.parent)),
    JsonFile("settings of a run", _run, lambda path: read_run_file(path.parent)),
    JsonFile("index of a corpus", _index, lambda path: read_index(path.parent)),
    JsonFile("surrogate", _boosting, lambda path: load_surrogate(path.parent)),
    JsonFile("surrogate of operators", _operators, lambda path: OperatorTrees.load(path.parent)),
    JsonFile("machine", _machine, read_machine),
    JsonFile("shares", _shares, read_efficiency),
    JsonFile("step times", _step_time, read_step_time),
    JsonFile("labels", _text({"g0": {"label": 1.0, "family": "x"}, "g1": 2}), read_labels),
    JsonFile("groups", _text({"1": [0, 1]}), lambda path: read_groups(path, 2)),
    JsonFile("trace", _own_trace, read_any),
    JsonFile("feeder trace", _feeder, read_any),
    JsonFile("host trace", _host, read_any),
    JsonFile("profile", _profile, read_any),
    JsonFile("graph", _graph, read_json),
    JsonFile("program as a graph", _text(PROGRAM), read),
    JsonFile("program", _text(PROGRAM), Program.load),
    JsonFile("programs of a family", _family, _of_family),
    JsonFile("measured steps", _measured_step, lambda path: measured_steps(path.parent)),
    JsonFile("split of TPU Tile", _tile_split, lambda path: read_dataset(path.parent)),
    JsonFile("program with a constant", _text(CONSTANT), Program.load),
    JsonFile("WfFormat 1.5", _text(WFFORMAT), read),
    JsonFile("WfFormat 1.4", _text(WFFORMAT_1_4), read),
    JsonFile("node-link", _text(NODE_LINK), read),
    JsonFile("Cytoscape", _text(CYTOSCAPE), read),
    JsonFile("JSON Graph Format", _text(JSON_GRAPH), read),
    JsonFile("graphology", _text(GRAPHOLOGY), read),
    JsonFile("llama", _text(LLAMA), read_hugging_face),
    JsonFile("mixtral", _text(MIXTURE), read_hugging_face),
    JsonFile("deepseek", _text(LATENT), read_hugging_face),
    JsonFile("study", _text(STUDY), read_study),
    JsonFile("sweep", _text(SWEEP), read_sweep),
    JsonFile("network", _text(NETWORK), read_network),
    JsonFile("system", _text(SYSTEM), read_system),
    JsonFile("remote memory", _text(MEMORY), read_memory),
    JsonFile("hardware", _text(HARDWARE), Hardware.from_file),
)


READERS: dict[str, tuple[str, ...]] = {
    "training/run_file.py": ("settings of a run",),
    "samples/manifest.py": ("samples.json", "index of a part", "manifest"),
    "samples/stored.py": ("entry of a sample",),
    "datasets/programs.py": ("programs of a family",),
    "datasets/run_plans.py": ("measured steps",),
    "datasets/tpu_tile.py": ("split of TPU Tile",),
    "graph/attributed_graph.py": ("graph", "labels", "step times"),
    "graph/formats/node_link.py": ("node-link", "Cytoscape", "JSON Graph Format", "graphology"),
    "graph/formats/program_json.py": ("program as a graph",),
    "graph/formats/wfformat.py": ("WfFormat 1.5", "WfFormat 1.4"),
    "hardware/devices.py": ("hardware",),
    "programs/forward_program.py": ("program", "program with a constant"),
    "serving/requests.py": ("requests",),
    "simulator/calibration.py": ("machine",),
    "workloads/step_efficiency.py": ("shares",),
    "simulator/cluster.py": ("network", "system", "remote memory"),
    "simulator/learned.py": ("surrogate of operators",),
    "simulator/sweep.py": ("sweep",),
    "surrogates/files.py": ("surrogate",),
    "traces/chakra/corpus.py": ("index of a corpus",),
    "traces/chakra/json_forms.py": ("trace", "feeder trace"),
    "traces/chakra/workload.py": ("groups",),
    "traces/pytorch/host_trace.py": ("host trace",),
    "traces/pytorch/kineto.py": ("profile",),
    "training/checkpoint.py": (
        *("meta of a checkpoint", "config of a checkpoint", "schema of a checkpoint"),
    ),
    "workloads/study.py": ("study",),
    "workloads/transformer/hugging_face.py": ("llama", "mixtral", "deepseek"),
}
"""Names of the files that show what each reader below ``layerdag/`` says."""

NOT_READERS = {
    "api/demo.py": "asks whether a folder is the demo's",
    "cli/commands/collect.py": "what the same command has just printed for each run",
    "datasets/cache.py": "its own cache; what is damaged is read anew",
    "datasets/discovery.py": "lines of any JSON Lines beside traces; those that are none are noted",
    "publication/drawing.py": "its own draws; what is damaged is drawn again",
    "publication/workspace.py": "asks whether a folder is a release's",
    "report/page.py": "asks whether figures are a report's",
    "runtime/files.py": "its own list of files; another is refused (test_workload.py)",
    "runtime/json_shape.py": "defines the reader of JSON",
    "runtime/settings.py": "defines the reader of YAML",
    "serving/iteration_time.py": "numbers that the package ships",
    "simulator/fitted_collectives.py": "numbers that the package ships",
    "hardware/kernels.py": "numbers that the package ships",
    "samples/table.py": "reads the metadata of a table that was written with it",
    "samples/writer.py": "asks whether a folder holds samples, and which are whole",
    "sampling/parts.py": "a copy of a request in memory",
    "simulator/astra_sim.py": "system.json, which simulator/cluster.py has read before",
    "simulator/systolic.py": "shapes in an attribute of a node",
    "traces/hlo/operations.py": "configuration of a custom call, which is noted if it is not sound",
    "traces/pytorch/host_dataflow.py": "lists in nodes of a host trace",
    "training/loggers.py": "the log of a run, line by line",
    "training/run_folder.py": "asks whether a file is a run's",
}
"""Why other files that parse JSON or YAML have no file here."""


def damages(document: Any) -> Iterator[tuple[str, Any]]:
    """Yield documents with one value dropped, null, or of another type, with what was done.

    Of a list the first entry alone is changed.
    """
    for path in _paths(document):
        *outer, last = path
        for what, value in _others(_at(document, path)):
            changed = json.loads(json.dumps(document))
            holder = _at(changed, outer)
            if what == "dropped":
                del holder[last]
            else:
                holder[last] = value
            yield f"{path} {what}", changed
    yield "list", [document]
    yield "null", None
    yield "text", "x"


def doubled(document: Any) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield JSON in which one name stands twice, with where; of a list the first entry alone."""
    for path in _paths(document):
        *outer, last = path
        if isinstance(last, str):
            changed = json.loads(json.dumps(document))
            holder = _at(changed, outer)
            held = list(holder.items())
            holder.clear()
            for name, value in held:
                holder |= {name: value, "once more": value} if name == last else {name: value}
            yield path, json.dumps(changed).replace('"once more"', json.dumps(last))


def _others(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what stands in the place of a value."""
    yield "dropped", None
    for other in (None, "x", 7, 0.5, True, [], {}):
        if other is None or type(other) is not type(value) or (not other and value):
            yield f"became {other!r}", other


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    entries = list(value.items()) if isinstance(value, dict) else list(enumerate(value))[:1]
    for key, inner in entries:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from _paths(inner, (*path, key))


def _at(value: Any, path: Any) -> Any:
    for key in path:
        value = value[key]
    return value
