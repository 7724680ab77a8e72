"""What only the private graphs hold stands in nothing that is made of them to be handed on."""

import contextlib
import gzip
import io
import json
import lzma
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet
from raw_graphs import chain
from tiny_checkpoints import untrained_checkpoint

import layerdag as ld
from layerdag.cli.main import main
from layerdag.datasets.folder import load_folder
from layerdag.datasets.settings import FolderConfig
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.formats.graphml import write_graphml
from layerdag.privacy.audit_inputs import private_words_of, search_words
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.chakra.workload import write_workload
from layerdag.traces.trace import Attribute, NodeType, Wire, Workload
from layerdag.training.run import BEST, LAST

KINDS = ("zqvcorp::mm", "zqvcorp/acme::add", "projects/zqvfalcon::conv2d", "4815162342", "conv2d")
OPERATORS = ("aten::mm", "aten::add", KINDS[0], "aten::relu", KINDS[1], "aten::mul", "4815162342")
CLIENTS = ("zqvclient::mm", "48151623420", "10.23.42.108", "gpt")
SIZE, LABEL_OF_ONE = 48151623421.0, 815.0
CANARIES = ("zqv", "4815162342", "10.23.42.108", "4815162", "48200000000", "815.0")
"""As written, and as rounding of sizes and labels would leave them."""


def private_graphs(count: int, copies: int) -> Iterator[AttributedGraph]:
    """Yield different graphs, and one of them traced several times, with a size of its own."""
    for i in range(count + copies):
        program = min(i, count)
        words = [KINDS[(program + k) % len(KINDS)] for k in range(4 + program % 5)]
        size = SIZE if i >= count else 1000.0 + 10 * program
        label = LABEL_OF_ONE if i >= count else 1.0 + program / 10
        graph = chain("g", "a" * len(words), label=label, client=CLIENTS[program % len(CLIENTS)])
        numbers = {"size": np.full(len(words), size), "duration": np.full(len(words), 5.0 + i)}
        yield replace(graph, categories={"op": words}, numbers=numbers)


def write_private(folder: Path, count: int = 32, copies: int = 8) -> Path:
    """Write the graphs as files."""
    folder.mkdir()
    for i, graph in enumerate(private_graphs(count, copies)):
        write_graphml(folder / f"g{i:02d}.graphml", graph)
    return folder


def write_private_jobs(folder: Path, count: int = 32, copies: int = 8) -> Path:
    """Write jobs of one rank with private names, sizes and labels, one traced several times."""
    folder.mkdir()
    lines = ["name,label"]
    for i in range(count + copies):
        program = min(i, count)
        operations = int(SIZE) if i >= count else 1000 + 10 * program
        nodes = [
            NodeSpec(
                k, OPERATORS[(program + k) % len(OPERATORS)], NodeType.COMP,
                data_deps=(k - 1,) * (k > 0), duration_us=5 + i + k,
                attributes=(Attribute("num_ops", Wire.INT64, operations),),
            )
            for k in range(4 + program % 5)
        ]  # fmt: skip
        write_workload(Workload((build_trace(nodes),)), folder / f"zqvjob{i:02d}")
        lines.append(f"zqvjob{i:02d},{LABEL_OF_ONE if i >= count else 1 + program / 10}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder


def write_private_programs(folder: Path, count: int = 32, copies: int = 8) -> Path:
    """Write programs of private modules, one recorded several times with numbers of its own."""
    folder.mkdir()
    for i in range(count + copies):
        program = min(i, count)
        width, scale = (4815, 0.4815162342) if i >= count else (8 * (1 + program % 4), 0.5)
        nodes: list[dict[str, object]] = [
            {"operator": "input", "arguments": [{"input": ["B0", "w0"], "dtype": "float32"}]},
            {"operator": "parameter", "names": ["zqvnet.weight"], "module": "zqvnet",
             "arguments": [{"parameter": ["w0"], "dtype": "float32"}]},
            {"operator": "aten.mul.Tensor", "arguments": [{"edge": "#"}, {"edge": "#"}],
             "inputs": [0, 1], "module": "zqvnet"},
        ]  # fmt: skip
        for k in range(2, 4 + program % 5):
            call = ("aten.relu.default", "aten.tanh.default", "aten.mul.Tensor")[(program + k) % 3]
            extra = [scale] if call == "aten.mul.Tensor" else []
            nodes.append(
                {"operator": call, "arguments": [{"edge": "#"}, *extra], "inputs": [k],
                 "module": f"zqvnet.{k}"}
            )  # fmt: skip
        nodes.append(
            {"operator": "aten.mean.default", "arguments": [{"edge": "#"}], "module": "zqvnet",
             "inputs": [len(nodes) - 1]}
        )  # fmt: skip
        document = {
            "format": "layerdag-program/1", "name": f"zqvmodel{i}", "sizes": {"B0": 4, "w0": width},
            "outputs": [len(nodes) - 1], "units": ["zqvnet.2"], "order": ["zqvnet.weight"],
            "notes": ["recorded in /home/zqvcorp"], "nodes": nodes,
        }  # fmt: skip
        (folder / f"zqv{i:02d}.program.json").write_text(json.dumps(document))
    return folder


def contents(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield each file below a folder as text, unpacked, with what archives hold."""
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".parquet":
            rows = parquet.read_table(path)
            yield path.name, f"{rows.schema.metadata} {rows.to_pylist()}"
        elif path.is_file():
            yield from ((path.name, text) for text in texts(path.read_bytes()))


def texts(data: bytes) -> Iterator[str]:
    """Yield the text of a file, or of each member of an archive."""
    for magic, unpack in ((b"\x1f\x8b", gzip.decompress), (b"\xfd7zXZ", lzma.decompress)):
        data = unpack(data) if data.startswith(magic) else data
    if data.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for name in archive.namelist():
                yield name
                yield from texts(archive.read(name))
    elif data[257:262] == b"ustar":
        with tarfile.open(fileobj=io.BytesIO(data)) as members:
            for member in members:
                held = members.extractfile(member)
                yield member.name
                yield from texts(held.read()) if held else ()
    else:
        yield data.decode("latin-1")


def leaks(folder: Path) -> list[tuple[str, str]]:
    """Return each canary with the file that holds it."""
    return [(name, word) for name, text in contents(folder) for word in CANARIES if word in text]


@pytest.fixture(scope="module")
def traces(tmp_path_factory) -> Path:
    return write_private(tmp_path_factory.mktemp("private") / "traces")


def test_the_canaries_are_there(traces):
    assert {word for _, word in leaks(traces)} >= {"zqv", "4815162342", "10.23.42.108", "815.0"}


def test_neither_checkpoint_nor_samples_hold_a_canary(traces, tmp_path):
    model = untrained_checkpoint(tmp_path, load_folder(FolderConfig(folder=traces)))
    for i, graph in enumerate(ld.sample(model, num=6, seed=1, max_nodes=12, best_of=1)):
        ld.write(graph, tmp_path / f"s{i}.graphml")
        ld.write(graph, tmp_path / f"s{i}.json")
    assert leaks(tmp_path) == []


def test_no_checkpoint_of_programs_holds_a_canary(tmp_path):
    programs = write_private_programs(tmp_path / "programs")
    assert {word for _, word in leaks(programs)} >= {"zqv", "4815162"}
    out = tmp_path / "out"
    untrained_checkpoint(out, load_folder(FolderConfig(folder=programs)))
    assert leaks(out) == []
    assert not [name for name, text in contents(out) if name == "schema.json" and "4815" in text]


def test_the_search_finds_what_was_renamed_in_whatever_file(traces, tmp_path):
    words = private_words_of(traces)
    assert {*KINDS[:4], *CLIENTS[:3]} <= words
    assert not {"conv2d", "gpt"} & words
    handed_on = tmp_path / "out"
    handed_on.mkdir()
    (handed_on / "a.graphml").write_text("<data>4815162342</data>")
    (handed_on / "b.json.gz").write_bytes(gzip.compress(b'{"op": "zqvcorp::mm"}'))
    np.savez_compressed(handed_on / "c.npz", words=np.frombuffer(b"zqvcorp/acme::add", np.uint8))
    (handed_on / "d.txt").write_text("of conv2d, gpt and 1000 others")
    found = search_words(handed_on, words)
    assert {(each.file, each.word) for each in found.found} >= {
        ("a.graphml", "4815162342"),
        ("b.json.gz", "zqvcorp::mm"),
        ("c.npz", "zqvcorp/acme::add"),
    }
    assert "d.txt" not in {each.file for each in found.found}


@pytest.mark.slow
@pytest.mark.parametrize("write", [write_private, write_private_jobs], ids=["flow", "jobs"])
def test_nothing_that_verbs_make_to_be_handed_on_holds_a_canary(write, tmp_path):
    (tmp_path / "zqvfolder").mkdir()
    traces = write(tmp_path / "zqvfolder" / "traces")
    assert leaks(traces)
    run, out = tmp_path / "zqvfolder" / "run", tmp_path / "out"
    small = ["--max-steps", "12", "--width", "32", "--depth", "1", "--threads", "1"]
    assert (
        main(["train", "--data", "folder", "--folder", f"{traces}", "--out", f"{run}", *small]) == 0
    )
    for name in (BEST, LAST):
        shutil.copytree(run / name, out / name)
    for form in ("auto", "json", "tar", "parquet"):
        made = [f"checkpoint={run / BEST}", "num=12", f"out={out / form}", f"format={form}"]
        if main(["sample", *made, "best_of=1", "max_nodes=16"]) != 0:
            assert (form, write) == ("json", write_private_jobs)  # jobs are written as traces
    audit = ["audit", "--data", f"{run}", "--synthetic", f"{out / 'auto'}"]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main([*audit, "--report", f"{out / 'audit.html'}", "--json"]) == 0
    (out / "a.json").write_text(printed.getvalue())
    compare = ["compare", f"{run}", f"{out / 'auto'}"]
    assert main([*compare, "--out", f"{out / 'compare.json'}"]) == 0
    assert main(["release", f"{traces}", "--out", f"{out / 'release'}", "--budget", "60"]) in (0, 1)
    refused = out / "release.private" / "refused-samples"
    if refused.is_dir():
        refused.rename(out / "refused")
    shutil.rmtree(out / "release.private")  # stays with the owner
    assert (out / "release" / "report.html").is_file()
    assert leaks(out) == []


@pytest.mark.slow
def test_a_release_holds_no_canary(traces, tmp_path):
    found = ld.release(traces, tmp_path / "out", num=20, budget=120)
    assert found.verdict is not None
    assert leaks(tmp_path / "out") == []
    assert leaks(tmp_path / "out.private" / "refused-samples") == []


@pytest.mark.slow
def test_no_sample_of_private_programs_holds_a_canary(tmp_path):
    programs = write_private_programs(tmp_path / "zqvprograms")
    run, out = tmp_path / "zqvrun", tmp_path / "out"
    small = ["--max-steps", "240", "--width", "32", "--depth", "1", "--threads", "1"]
    train = ["train", "--data", "folder", "--folder", f"{programs}", "--out", f"{run}", *small]
    assert main(train) == 0
    shutil.copytree(run / BEST, out / BEST)
    for form in ("program", "graphml", "et", "tar"):
        made = [f"checkpoint={run / BEST}", "num=4", f"out={out / form}", f"format={form}"]
        assert main(["sample", *made, "processes=1", "temperature=0.5", "max_nodes=24"]) == 0
    assert leaks(out) == []
