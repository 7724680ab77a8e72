"""Unknown words in files of flow graphs, of labels, and of published data sets."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import networkx as nx
from raw_graphs import chain

from layerdag.codec.formats import read
from layerdag.datasets.alibaba import load_alibaba
from layerdag.datasets.discovery import read_folder
from layerdag.datasets.folder import load_folder
from layerdag.datasets.settings import AlibabaConfig, FolderConfig
from layerdag.graph.attributed_graph import read_labels, write_json
from layerdag.graph.formats.dot import write_dot
from layerdag.graph.formats.graphml import write_graphml
from layerdag.graph.formats.rows import from_networkx
from layerdag.runtime.notes import Note, NoteKind
from tests.helpers.unknown_words.case import UnknownWord

DOT = "graph/formats/dot.py"
GRAPHML = "graph/formats/graphml.py"
NODE_LINK = "graph/formats/node_link.py"
ROWS = "graph/formats/rows.py"
WFFORMAT = "graph/formats/wfformat.py"
PROGRAM = "graph/formats/program_json.py"
LABELS = "graph/attributed_graph.py"

Read = Callable[[Path], Sequence[Note]]


def _file(name: str, text: str) -> Read:
    """Read a file of any format."""

    def told(folder: Path) -> Sequence[Note]:
        (folder / name).write_text(text)
        return read(folder / name).notes

    return told


def _graphml(keys: str = "", node: str = "", edge: str = "") -> Read:
    """Read GraphML with these declarations, and data at the first of two nodes and their edge."""
    return _file(
        "g.graphml",
        f"<graphml>{keys}<graph edgedefault='directed'><node id='a'>{node}</node><node id='b'/>"
        f"<edge source='a' target='b'>{edge}</edge></graph></graphml>",
    )


Json = dict[str, object]


def _node_link(node: Json | None = None, edge: Json | None = None, **document: object) -> Read:
    """Read node-link JSON with more in the first node, in the edge, or in the document."""
    nodes = [{"id": 0, **(node or {})}, {"id": 1}]
    link = {"source": 0, "target": 1, **(edge or {})}
    return _file("g.json", json.dumps({"nodes": nodes, "links": [link], **document}))


def _wfformat(task: Json | None = None, **workflow: object) -> Read:
    """Read WfFormat 1.4 with more in its task or its workflow."""
    one = {"name": "a", "parents": [], "children": [], **(task or {})}
    return _file(
        "w.json", json.dumps({"schemaVersion": "1.4", "workflow": {"tasks": [one], **workflow}})
    )


def _own(**changes: object) -> Read:
    """Read layerdag's own JSON with more in it."""

    def told(folder: Path) -> Sequence[Note]:
        write_json(folder / "g.json", chain("g", "ab"))
        document = json.loads((folder / "g.json").read_text())
        (folder / "g.json").write_text(json.dumps({**document, **changes}))
        return read(folder / "g.json").notes

    return told


def _labels(text: str) -> Read:
    """Read a label file."""

    def told(folder: Path) -> Sequence[Note]:
        (folder / "l.csv").write_text(text)
        return read_labels(folder / "l.csv").notes

    return told


def _written(write: Callable[..., Sequence[Note]], word: str) -> Read:
    """Write a graph with a word that the format cannot hold."""
    graph = replace(chain("g", "ab"), categories={"op": ["a", word]})
    return lambda folder: write(folder / "g", graph)


def _graphs(folder: Path) -> Path:
    """Write three graphs."""
    for name, kinds in (("g1", "ab"), ("g2", "abb"), ("g3", "abbb")):
        write_json(folder / f"{name}.json", chain(name, kinds))
    return folder


def _folder(text: str) -> Read:
    """Load a folder with a label file."""

    def told(folder: Path) -> Sequence[Note]:
        (folder / "l.csv").write_text(text)
        return load_folder(FolderConfig(folder=_graphs(folder), labels=folder / "l.csv")).notes

    return told


def _listed(text: str) -> Read:
    """Read a folder with a list of runs."""

    def told(folder: Path) -> Sequence[Note]:
        (folder / "runs.jsonl").write_text(text)
        return read_folder(_graphs(folder)).notes

    return told


def _alibaba(*tasks: str) -> Read:
    """Load jobs of Alibaba with one whose tasks these are, name and status."""

    def told(folder: Path) -> Sequence[Note]:
        fine = [f"M1,1,j{i},1,Terminated,1,2,3,4\nR2_1,1,j{i},1,Terminated,2,{i + 3},3,4"
            for i in range(3)]  # fmt: skip
        rows = [f"{task.partition(',')[0]},1,j9,1,{task.partition(',')[2]},1,2,3,4"
            for task in tasks]  # fmt: skip
        (folder / "batch_task.csv").write_text("\n".join([*fine, *rows]))
        return load_alibaba(AlibabaConfig(folder=folder)).notes

    return told


_KEY = "<key id='k' for='node' attr.name='x' attr.type='{}'/>"
_DATA = "<data key='k'>{}</data>"

CASES = [
    UnknownWord(DOT, NoteKind.EDGE, "a -> b", _file("g.dot", "digraph { a -> b; a -> b }")),
    UnknownWord(DOT, NoteKind.ATTRIBUTE, "bytes", _file("g.dot", "digraph { a -> b [bytes=3] }")),
    UnknownWord(DOT, NoteKind.ATTRIBUTE, "flag", _file("g.dot", "digraph { a [flag] }")),
    UnknownWord(DOT, NoteKind.NUMBER, "0x70", _file("g.dot", "digraph { a [cost=0x70] }")),
    UnknownWord(DOT, NoteKind.ENCODING, r"\0", _written(write_dot, "\0")),
    UnknownWord(GRAPHML, NoteKind.ENCODING, r"\x1b", _written(write_graphml, "\x1b")),
    UnknownWord(GRAPHML, NoteKind.ATTRIBUTE, "x",
        _graphml(_KEY.format("int"), _DATA.format(1) + _DATA.format(2))),
    UnknownWord(GRAPHML, NoteKind.DTYPE, "quaternion", _graphml(_KEY.format("quaternion"))),
    UnknownWord(GRAPHML, NoteKind.NUMBER, "1.5", _graphml(_KEY.format("int"), _DATA.format(1.5))),
    UnknownWord(GRAPHML, NoteKind.NUMBER, "far", _graphml(
        "<key id='d' for='edge' attr.name='distance' attr.type='int'/>",
        edge="<data key='d'>far</data>")),
    UnknownWord(GRAPHML, NoteKind.CATEGORY, "maybe",
        _graphml(_KEY.format("boolean"), _DATA.format("maybe"))),
    UnknownWord(GRAPHML, NoteKind.KEY, "other",
        _graphml(_KEY.format("int"), "<data key='other'>1</data>")),
    UnknownWord(GRAPHML, NoteKind.ATTRIBUTE, "x",
        _graphml(_KEY.format("string"), _DATA.format("<b>1</b>"))),
    UnknownWord(GRAPHML, NoteKind.ATTRIBUTE, "bytes", _graphml(edge="<data key='bytes'>1</data>")),
    UnknownWord(GRAPHML, NoteKind.GROUP, "outer", _file("g.graphml",
        "<graphml><graph edgedefault='directed'><node id='outer'><graph><node id='a'/></graph>"
        "</node></graph></graphml>")),
    UnknownWord(NODE_LINK, NoteKind.KEY, "palette", _node_link(palette=[1])),
    UnknownWord(NODE_LINK, NoteKind.KEY, "connections",
        _file("g.json", '{"directed": true, "nodes": [{"id": 0}], "connections": []}')),
    UnknownWord(NODE_LINK, NoteKind.NUMBER, "inf", _node_link({"cost": float("inf")})),
    UnknownWord(NODE_LINK, NoteKind.ATTRIBUTE, "a.b", _node_link({"a": {"b": {"c": {"d": 1}}}})),
    UnknownWord(NODE_LINK, NoteKind.ATTRIBUTE, "bytes", _node_link(edge={"bytes": 3})),
    UnknownWord(NODE_LINK, NoteKind.EDGE, "7", _node_link(edge={"flow": 7})),
    UnknownWord(NODE_LINK, NoteKind.EDGE, "0", _file("g.json", json.dumps(
        {"nodes": [{"id": 1}, {"id": 0}], "links": [{"source": 1, "target": 0}]}))),
    UnknownWord("graph/formats/rows.py", NoteKind.EDGE, "x -> y -> x",
        _file("g.dot", "digraph { x -> y -> x }")),
    UnknownWord(ROWS, NoteKind.NUMBER, "nan",
        _file("g.dot", "digraph { a [cost=1]; b [cost=nan] }")),
    UnknownWord(ROWS, NoteKind.NUMBER, "1O",
        _file("g.dot", "digraph { a [cost=1]; b [cost=2]; c [cost=\"1O\"] }")),
    UnknownWord(ROWS, NoteKind.ATTRIBUTE, "palette", lambda folder: from_networkx(
        nx.DiGraph([(0, 1)], palette=[1])).notes),
    UnknownWord(ROWS, NoteKind.EDGE, "b -> b", lambda folder: from_networkx(
        nx.DiGraph([("a", "b"), ("b", "b")])).notes),
    UnknownWord(ROWS, NoteKind.NUMBER, "many",
        _graphml(_KEY.format("double"), _DATA.format("many"))),
    UnknownWord(LABELS, NoteKind.KEY, "palette", _own(palette=1)),
    UnknownWord(LABELS, NoteKind.ATTRIBUTE, "deep", _own(conditions={"deep": [1]})),
    UnknownWord(LABELS, NoteKind.VERSION, "layerdag-graph-9", _own(format="layerdag-graph-9")),
    UnknownWord(WFFORMAT, NoteKind.ATTRIBUTE, "colour", _wfformat({"colour": 1})),
    UnknownWord(
        WFFORMAT, NoteKind.ATTRIBUTE, "shade",
        _wfformat({"files": [{"link": "input", "name": "f", "shade": 1}]}),
    ),
    UnknownWord(WFFORMAT, NoteKind.KEY, "hosts", _wfformat(hosts=[])),
    UnknownWord(WFFORMAT, NoteKind.LABEL, "long", _wfformat(makespanInSeconds="long")),
    UnknownWord(WFFORMAT, NoteKind.VERSION, "0.7",
        _file("w.json", '{"schemaVersion": "0.7", "workflow": {"tasks": []}}')),
    UnknownWord(PROGRAM, NoteKind.KEY, "palette", _file("p.program.json", json.dumps({
        "format": "layerdag-program/1", "name": "p", "sizes": {}, "palette": 1, "nodes": [
            {"operator": "input", "arguments": [{"input": [2], "dtype": "float32"}]}]}))),
    UnknownWord(PROGRAM, NoteKind.DTYPE, "frob", _file("p.program.json", json.dumps({
        "format": "layerdag-program/1", "name": "p", "sizes": {}, "nodes": [
            {"operator": "input", "arguments": [{"input": [2], "dtype": "frob"}]}]}))),
    UnknownWord("codec/foreign.py", NoteKind.VERSION, "GEXF", _file("g.xml", "<gexf></gexf> " * 9)),
    UnknownWord(LABELS, NoteKind.LABEL, "nan", _labels("name,label\na,1\nb,nan\n")),
    UnknownWord(LABELS, NoteKind.LABEL, "true", _labels("name,label\na,1\nb,true\n")),
    UnknownWord(LABELS, NoteKind.NUMBER, "inf", _labels("name,cost\na,1\nb,inf\n")),
    UnknownWord(LABELS, NoteKind.NUMBER, "12O", _labels("name,cost\na,1\nb,2\nc,12O\n")),
    UnknownWord("datasets/folder.py", NoteKind.LABEL, "g9",
        _folder("name,label\ng1,1\ng2,2\ng9,3\n")),
    UnknownWord("datasets/discovery.py", NoteKind.ENCODING, "runs.jsonl", _listed("{\n")),
    UnknownWord("datasets/discovery.py", NoteKind.LABEL, "soon",
        _listed('{"name": "g1", "step_time": "soon"}\n')),
    UnknownWord("datasets/alibaba.py", NoteKind.STATUS, "Lost",
        _alibaba("M1,Terminated", "R2_1,Lost")),
    UnknownWord("datasets/alibaba.py", NoteKind.NODE, "R2_x",
        _alibaba("M1,Terminated", "R2_x,Terminated")),
]  # fmt: skip
