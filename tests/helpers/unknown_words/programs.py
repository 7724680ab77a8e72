"""Unknown words in compiled programs, configurations of models, and descriptions of clusters."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trace_examples import pair_workload

from layerdag.datasets.job_programs import learned_sources
from layerdag.datasets.sources import find_sources
from layerdag.hardware.devices import Hardware
from layerdag.runtime.notes import Note, NoteKind
from layerdag.simulator.cluster import read_memory, read_network, read_system
from layerdag.simulator.sweep import read_sweep
from layerdag.traces.chakra.workload import write_workload
from layerdag.traces.hlo.parser import read_program
from layerdag.traces.hlo.program import program_workload
from layerdag.workloads.study import read_study
from layerdag.workloads.transformer.hugging_face import model
from layerdag.workloads.transformer.job import transformer_job
from tests.helpers.unknown_words.case import UnknownWord

FILE = "traces/hlo/parser.py"
KIND = "(tensor<4xf32>) -> tensor<4xf32>"


def module(body: str) -> Callable[[Path], Sequence[Note]]:
    """Return what reads a StableHLO module with these operations in its main function."""

    def read(folder: Path) -> Sequence[Note]:
        file = folder / "program.mlir"
        main = f"func.func @main(%a: tensor<4xf32>) {{\n{body}\nreturn\n}}"
        file.write_text(f'module {{\nsdy.mesh @devices = <["x"=2]>\n{main}\n}}\n')
        return read_program(file).notes

    return read


def timed_products(folder: Path) -> Sequence[Note]:
    """Read a product of FP8 numbers and time it on a device without a rate for them."""
    kind = "tensor<4x4xf8E4M3FN>"
    file = folder / "program.mlir"
    file.write_text(
        f"module {{\nfunc.func @main(%a: {kind}) {{\n%b = stablehlo.dot_general %a, %a, "
        f"contracting_dims = [1] x [0] : ({kind}, {kind}) -> {kind}\nreturn\n}}\n}}\n"
    )
    return program_workload(read_program(file), Hardware.from_name("a100-80")).notes


def unusable_program(folder: Path) -> Sequence[Note]:
    """Learn from one trace, beside which lies a program that names no call."""
    write_workload(pair_workload(), folder / "mine")
    (folder / "mine.program.json").write_text('{"format": "layerdag-program/1"}')
    return learned_sources(folder, find_sources(folder).found)[2]


def described(
    name: str, reader: Callable[[Path], Any], content: dict[str, Any]
) -> Callable[[Path], Sequence[Note]]:
    """Return what reads a file with this content, which is JSON and so YAML, too."""

    def read(folder: Path) -> Sequence[Note]:
        (folder / name).write_text(json.dumps(content))
        return getattr(reader(folder / name), "notes", ())

    return read


def refused(reader: str, word: str, *given: Any, kind: NoteKind = NoteKind.KEY) -> UnknownWord:
    """Return the case of a reader that refuses an unknown word."""
    return UnknownWord(reader, kind, word, described(*given))


CONFIG = {
    "model_type": "llama", "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1,
    "num_hidden_layers": 1, "vocab_size": 8,
}  # fmt: skip
SYSTEM = {"preferred-dataset-splits": 1, "collective-optimization": "baseline"}
NETWORK = {"topology": ["Ring"], "npus_count": [2], "bandwidth": [1], "latency": [1]}
LINK = {"topology": "Ring", "ranks": 2, "gb_per_s": 1}
STUDY = {
    "model": "gpt2", "step": {"batch": 2}, "plans": {},
    "clusters": {"c": {"device": "h100", "network": [LINK]}},
}  # fmt: skip
CLUSTER = "simulator/cluster.py"
CONFIGS = "workloads/transformer/hugging_face.py"
STUDIES = "workloads/study.py"
EXPERTS = {"num_experts_per_tok": 2, "frob_experts": 8}
OTHER_LINK = {"c": {"device": "h100", "network": [{**LINK, "topology": "Torus"}]}}


def _long_step(_: Path) -> Sequence[Note]:
    return transformer_job("gpt2", sequence=4096).notes


CASES = (
    UnknownWord(
        "workloads/transformer/shapes.py", NoteKind.NUMBER, "sequence of 4096", _long_step
    ),
    UnknownWord("traces/hlo/program.py", NoteKind.DTYPE, "f8E4M3FN", timed_products),
    UnknownWord(
        FILE, NoteKind.OPERATOR, "frobnicate", module(f'%r = "my.frobnicate"(%a) : {KIND}')
    ),
    UnknownWord(
        FILE,
        NoteKind.OPERATOR,
        "my_kernel",
        module(f"%r = stablehlo.custom_call @my_kernel(%a) : {KIND}"),
    ),
    UnknownWord(FILE, NoteKind.ATTRIBUTE, "sdy.mesh @devices", module("")),
    UnknownWord(
        FILE, NoteKind.SIZE, "ragged_all_to_all",
        module(
            "%i = stablehlo.constant dense<1> : tensor<2xi64>\n"
            "%r = stablehlo.custom_call @ragged_all_to_all(%a, %a, %i, %i, %i, %i) {api_version = "
            "4 : i32, backend_config = {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}} : "
            "(tensor<4xf32>, tensor<4xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>, "
            "tensor<2xi64>) -> tensor<4xf32>"
        ),
    ),
    UnknownWord(
        "traces/hlo/program.py",
        NoteKind.DTYPE,
        "!my.float",
        module('%r = "my.made"() : () -> tensor<4x!my.float>'),
    ),
    UnknownWord("datasets/job_programs.py", NoteKind.OPERATOR, "mine", unusable_program),
    refused(
        CONFIGS, "hidden_act: frob", "config.json", model, {**CONFIG, "hidden_act": "frob"},
        kind=NoteKind.OPERATOR,
    ),
    refused(CONFIGS, "num_frobs", "config.json", model, {**CONFIG, "num_frobs": 3}),
    refused(CONFIGS, "frob_experts", "config.json", model, {**CONFIG, **EXPERTS}),
    refused(CONFIGS, "frob", "config.json", model, {"model_type": "frob"}, kind=NoteKind.OPERATOR),
    refused(CLUSTER, "frob-bw", "system.json", read_system, {**SYSTEM, "frob-bw": 1}),
    refused(CLUSTER, "frobs", "network.yml", read_network, {**NETWORK, "frobs": [1]}),
    refused(CLUSTER, "Torus", "network.yml", read_network, {**NETWORK, "topology": ["Torus"]}),
    refused(CLUSTER, "InfraGraph", "network.yml", read_network,
            {"devices": [], "instances": [], "edges": []}, kind=NoteKind.VERSION),
    refused(CLUSTER, "FROB", "memory.json", read_memory, {"memory-type": "FROB"}),
    refused("simulator/sweep.py", "frobs", "sweep.yml", read_sweep, {"frobs": []}),
    refused("hardware/devices.py", "frob", "device.json", Hardware.from_file,
            {"peak_flops": 1, "memory_bandwidth": 1, "frob": 1}),
    refused(STUDIES, "frobs", "s.yaml", read_study, {**STUDY, "frobs": 1}),
    refused(STUDIES, "frobs", "s.yaml", read_study, {**STUDY, "plans": {"frobs": [1]}}),
    refused(STUDIES, "frob", "s.yaml", read_study, {**STUDY, "step": {"batch": 2, "frob": 1}}),
    refused(STUDIES, "Torus", "s.yaml", read_study, {**STUDY, "clusters": OTHER_LINK}),
)  # fmt: skip
