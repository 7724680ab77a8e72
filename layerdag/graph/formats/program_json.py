"""Forward programs (``.program.json``, see ``layerdag.programs``) as flow graphs, both ways.

A node is a call, an edge leads from a result to the call that takes it; its type names the places
among the inputs, "0" or "0+2" where one tensor is taken twice. Words of a node: its call, which is
the operator with the pattern of its arguments, and the size expressions and other numbers that
stand in the pattern's gaps. A third word tells consecutive units (blocks of the model) apart: the
number of the unit modulo three, "" outside. The numbers of the table of sizes are conditions of
the graph.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.errors import GraphError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.formats.repeated_blocks import fold, unfold
from layerdag.runtime.files import write_text
from layerdag.runtime.json_shape import found_value, parse_json, plain_reason, require_shape
from layerdag.runtime.notes import NoteCollector, NoteKind
from layerdag.runtime.reading import read_parsed

FORMAT = "layerdag-program/1"
SUFFIX = ".program.json"
CALL, SIZES, UNIT = "call", "sizes", "unit"
ATTRIBUTES = (CALL, SIZES, UNIT)
"""Of the nodes of a program's graph: the call, its sizes, and the module that it is a part of."""

NAMESPACES = ("aten", "torchvision")
"""Namespaces whose operators a program may call; all of them are public."""

UNIT_COLORS = 3
"""Units in a row that are told apart; the number of a unit follows from those of its inputs."""

_GAP = "?"
_LEAVES = ("input", "parameter", "buffer", "constant")
_KNOWN = frozenset(
    ("format", "name", "sizes", "outputs", "order", "unused", "units", "notes", "nodes")
)
_FRACTION = re.compile(r"-?\d+(\.\d+(e[-+]?\d+)?|e[-+]?\d+)")
_ENTRY = re.compile(r"(?<![\w.])[Bnwrh]\d{1,6}")
_IN_A_GAP = re.compile(r"max|-?(inf|nan)|-?\d\S*|[Bnwrh]\d{1,6}\S*|[ap]\d{1,4}\.\S+")
_DAMAGED = (LookupError, TypeError, ValueError, AttributeError)
"""What data of another shape than a program's lead to."""
_PLAIN = (0.0, 1.0)
"""Numbers that stay in the pattern: they switch something off or on."""


_KNOWN_OF_A_NODE = frozenset(
    ("operator", "arguments", "inputs", "keywords", "mode", "module", "names")
)

_SHAPE = {
    "format": str,
    "name": str,
    "sizes": {str: float},
    "units?": [str],
    "nodes": [
        {
            "operator": str,
            "arguments": list,
            "inputs?": [int],
            "keywords?": dict,
            "mode?": [str],
            "module?": str,
        }
    ],
}


def read_program_json(path: str | Path) -> AttributedGraph:
    """Return the graph of a program; the file is not trusted.

    Raises:
        GraphError: If the file is no program.
    """
    source = str(path)
    try:
        data = parse_json(read_parsed(path, GraphError))
    except (ValueError, RecursionError) as error:
        raise GraphError(
            f"{source}: is no program of layerdag ({plain_reason(error)}); write it again."
        ) from error
    return program_graph(data, source)


def program_graph(data: Any, source: str) -> AttributedGraph:
    """Return the graph of a program's JSON data, which is not trusted.

    Raises:
        GraphError: If the data are no program.
    """
    try:
        if isinstance(data, Mapping) and isinstance(data.get("nodes"), list):
            data = {**data, "nodes": unfold(data["nodes"])}
        require_shape(data, _SHAPE)
        for name, number in data["sizes"].items():
            if number < 1 or number % 1:
                raise ValueError(f"size {name[:20]} is {number}, no whole number from 1 on")
        if data["format"] != FORMAT:
            raise ValueError(f"its format is '{data['format']:.40}', not '{FORMAT}'")
        notes = NoteCollector(source)
        for key in sorted(data.keys() - _KNOWN):
            notes.add(NoteKind.KEY, key, "unknown; left out")
        for at, node in enumerate(data["nodes"]):
            for key in sorted(node.keys() - _KNOWN_OF_A_NODE):
                notes.add(NoteKind.KEY, key, "unknown; left out", where=f"node {at}")
        return _graph(data, notes)
    except (*_DAMAGED, OverflowError, RecursionError) as error:
        raise GraphError(
            f"{source}: is no program of layerdag ({plain_reason(error)}); write it again."
        ) from error


def _graph(data: Mapping[str, Any], notes: NoteCollector) -> AttributedGraph:
    columns: dict[str, list[str]] = {name: [] for name in ATTRIBUTES}
    places: dict[tuple[int, int], list[int]] = {}
    names = []
    units = {str(path): at for at, path in enumerate(data.get("units", ()))}
    for at, node in enumerate(data["nodes"]):
        gaps: list[str] = []
        for word in _dtypes([node["arguments"], node.get("keywords")]):
            if not _DTYPE.fullmatch(word):
                notes.add(NoteKind.DTYPE, word, "no data type of PyTorch; kept", where=f"node {at}")
        given = {"arguments": node["arguments"], **_if(node, "keywords"), **_if(node, "mode")}
        pattern = json.dumps(_opened(given, gaps), separators=(",", ":"))
        columns[CALL].append(f"{node['operator']} {pattern}")
        columns[SIZES].append(" ".join(gaps))
        for size in gaps:
            if not _IN_A_GAP.fullmatch(size):
                raise ValueError(f"node {at}: '{size:.40}' is no size")
            lacking = sorted({*_ENTRY.findall(size)} - data["sizes"].keys())
            if lacking:
                raise ValueError(f"node {at}: the table of sizes has no '{lacking[0]}'")
        columns[UNIT].append(_unit_color(str(node.get("module", "")), units))
        for place, source in enumerate(node.get("inputs", ())):
            places.setdefault((int(source), at), []).append(place)
        names.append(f"v{at} {node.get('module', '')}".rstrip())
    kinds = ["+".join(map(str, held)) for held in places.values()]
    known = tuple(sorted(set(kinds))) or ("0",)
    return AttributedGraph(
        name=str(data["name"]),
        categories=columns,
        numbers={},
        edge_index_2E=np.array(list(places), dtype=np.int64).reshape(-1, 2).T,
        edge_type_E=np.array([known.index(kind) for kind in kinds], dtype=np.int64),
        edge_type_names=known,
        conditions={str(name): float(number) for name, number in data["sizes"].items()},
        open_vocabularies=ATTRIBUTES,
        node_names=tuple(names),
        notes=notes.notes,
    ).checked()


def _dtypes(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if isinstance(value.get("dtype"), str):
            yield value["dtype"]
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _dtypes(part)


def _unit_color(module: str, units: Mapping[str, int]) -> str:
    """Return the number of the unit around a module, modulo ``UNIT_COLORS``; "" for none."""
    while module and module not in units:
        module = module.rpartition(".")[0]
    return str(units[module] % UNIT_COLORS) if module else ""


def is_size(name: str) -> bool:
    """Return whether a graph-level name is that of an entry in a table of sizes, such as "w0"."""
    return re.fullmatch(r"[Bnwrh]\d{1,6}", name) is not None


def has_public_operator(call: str) -> bool:
    """Return whether a call is of a public operator, of a part of a result, or of a leaf."""
    operator = call.partition(" ")[0]
    return operator.partition(".")[0] in NAMESPACES or is_part_or_leaf(operator)


def is_part_or_leaf(operator: str) -> bool:
    """Return whether it takes a part of a result, or is an input, parameter, buffer or constant."""
    return operator.partition(".")[0] in ("getitem", *_LEAVES)


# Strings among arguments that say how a call is made; equations of einsum have an arrow.
_OF_ARGUMENTS = frozenset(
    ("#", "?", "#*", "inf", "-inf", "nan", "no_grad", "run", "same", "valid", "tanh", "none",
     "mean", "sum", "trunc", "floor", "bilinear", "nearest", "contiguous_format", "channels_last",
     "preserve_format", "strided", "cpu", "cuda", "autocast:bfloat16", "autocast:float16")
)  # fmt: skip
_EQUATION = re.compile(r"[a-zA-Z.]{0,8}(, ?[a-zA-Z.]{0,8})* ?-> ?[a-zA-Z.]{0,8}")
_DTYPE = re.compile(r"bool|(bfloat|float|u?int|complex)\d{1,3}(_e\d.{0,8})?")


def words_of_call(call: str) -> Iterator[str]:
    """Yield the words among the arguments of a call that are not those of PyTorch."""
    given = call.partition(" ")[2]
    try:
        waiting = [json.loads(given)] if given else []
    except ValueError:
        yield call
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, str):
            known = _DTYPE.fullmatch(value) or _EQUATION.fullmatch(value)
            if not known and value not in _OF_ARGUMENTS:
                yield value


def operator_of(call: str) -> str:
    """Return the short name of a call's operator, as pictures show it: "linear"."""
    return call.partition(" ")[0].removeprefix("aten.").removesuffix(".default")


def rounded_numbers(words: Iterable[str]) -> dict[str, str]:
    """Return those of the words of the attribute "sizes" that change with numbers of three digits.

    A fraction with more digits may be that of a single program.
    """
    rounded = {word: " ".join(map(_rounded, word.split())) for word in words}
    return {word: new for word, new in rounded.items() if new != word}


def _rounded(part: str) -> str:
    return repr(float(f"{float(part):.3g}")) if _FRACTION.fullmatch(part) else part


def _if(node: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {key: node[key]} if node.get(key) else {}


def _opened(value: Any, gaps: list[str]) -> Any:
    if isinstance(value, list):
        return [_opened(part, gaps) for part in value]
    if isinstance(value, float) and value not in _PLAIN:
        gaps.append(repr(value))
        return {"number": _GAP}
    if not isinstance(value, Mapping):
        return value
    if "size" in value:
        gaps.append(str(value["size"]))
        return {"size": _GAP}
    kind = next((kind for kind in _LEAVES if kind in value), None)
    if kind is None:
        return {key: _opened(part, gaps) for key, part in value.items()}
    if not isinstance(value[kind], list):
        raise ValueError(f"'{kind}' of an argument is {found_value(value[kind])}, no list of sizes")
    wrong = [s for s in value[kind] if type(s) not in (int, str) or (type(s) is int and s < 0)]
    if wrong:
        raise ValueError(f"'{kind}' of an argument holds {found_value(wrong[0])}, which is no size")
    gaps += [size for size in value[kind] if isinstance(size, str)]
    return {**value, kind: [_GAP if isinstance(size, str) else size for size in value[kind]]}


def unit_numbers(colors: Sequence[str]) -> list[int]:
    """Return the number of each node's unit, -1 for none.

    In program order one unit follows another, so that a word stands for the current unit, the next
    one, or the one before.

    Args:
        colors: The attribute "unit" of the nodes in program order.
    """
    numbers, current = [], 0
    for color in colors:
        if not color.isdigit():
            numbers.append(-1)
            continue
        ahead = (int(color) - current) % UNIT_COLORS
        before = ahead == UNIT_COLORS - 1 and current > 0
        numbers.append(current - 1 if before else current + ahead)
        current = max(current, numbers[-1])
    return numbers


def write_program_json(path: str | Path, graph: AttributedGraph) -> None:
    """Write a graph whose nodes are calls as a program. Raises as ``graph_to_program``."""
    write_text(path, encode_program_json(graph))


def encode_program_json(graph: AttributedGraph) -> str:
    """Return what ``write_program_json`` writes."""
    return json.dumps(graph_to_program(graph), separators=(",", ":")) + "\n"


def graph_to_program(graph: AttributedGraph) -> dict[str, Any]:
    """Return the JSON data of a program whose calls are a graph's nodes; the last is its output.

    Raises:
        GraphError: If the nodes are no calls, an edge type names no places, a gap has no content,
            or a size that is named has no number among the graph's conditions.
    """
    missing = [name for name in (CALL, SIZES) if name not in graph.categories]
    if missing:
        raise GraphError(
            f"{graph.name}: its nodes have no attribute '{missing[0]}', so it is no program."
        )
    inputs = inputs_in_places(graph)
    nodes = [_node(graph, at, inputs[at]) for at in range(graph.num_nodes)]
    numbers = unit_numbers(graph.categories.get(UNIT, [""] * graph.num_nodes))
    paths = {number: f"blocks.{at}" for at, number in enumerate(sorted({*numbers} - {-1}))}
    for node, number in zip(nodes, numbers, strict=True):
        if number in paths:
            node["module"] = paths[number]
    return {
        "format": FORMAT,
        "name": graph.name,
        "sizes": program_sizes(graph),
        "outputs": [graph.num_nodes - 1],
        "units": list(paths.values()),
        "nodes": fold(nodes),
    }


def program_sizes(graph: AttributedGraph) -> dict[str, int]:
    """Return the table of sizes of a program's graph, which stands among its conditions."""
    return {
        name: int(number)
        for name, number in graph.conditions.items()
        if isinstance(number, float) and number == int(number) and is_size(name)
    }


def inputs_in_places(graph: AttributedGraph) -> list[list[int]]:
    """Return the inputs of each node, in the order of the places that their edges name.

    Raises:
        GraphError: If an edge names no place, two inputs one place, or a place has no input.
    """
    held: list[dict[int, int]] = [{} for _ in range(graph.num_nodes)]
    for (source, target), code in zip(graph.edges, graph.edge_type_E.tolist(), strict=True):
        for place in graph.edge_type_names[code].split("+"):
            if not place.isdigit() or int(place) in held[target]:
                raise GraphError(
                    f"{graph.name}: the edge from node {source} to {target} has the type "
                    f"'{graph.edge_type_names[code]}', which names no free place of an input."
                )
            held[target][int(place)] = source
    for target, places in enumerate(held):
        if sorted(places) != list(range(len(places))):
            raise GraphError(f"{graph.name}: node {target} lacks an input between its others.")
    return [[places[place] for place in sorted(places)] for places in held]


def _node(graph: AttributedGraph, at: int, inputs: list[int]) -> dict[str, Any]:
    call = graph.categories[CALL][at]
    try:
        given = call_to_json(call, graph.categories[SIZES][at])
    except ValueError as error:
        raise GraphError(
            f"{graph.name}: the arguments of node {at} ({call.partition(' ')[0]}) cannot be "
            f"filled: {error}."
        ) from error
    return {**given, "inputs": inputs}


def call_to_json(call: str, sizes: str) -> dict[str, Any]:
    """Return the node of the words of a call and its sizes, without inputs.

    Raises:
        ValueError: If the sizes do not fill the gaps of the call, or it is no call.
    """
    operator, _, pattern = call.partition(" ")
    gaps = iter(sizes.split())
    try:
        given = _filled(json.loads(pattern), gaps)
    except StopIteration:
        raise ValueError("there are fewer sizes than gaps") from None
    except RecursionError as error:
        raise ValueError("its arguments are nested too deeply") from error
    if next(gaps, None) is not None:
        raise ValueError("there are more sizes than gaps")
    return {"operator": operator, **given}


def is_program(graph: AttributedGraph) -> bool:
    """Return whether the nodes of a graph have the attributes of calls."""
    return graph.categories.keys() >= set(ATTRIBUTES)


def call_text(call: str, sizes: str) -> str:
    """Return a call on one short line, such as "slice.Tensor(_, 3, 0, h0)"; "_" is an input.

    What is no call of a program stays as it is.
    """
    try:
        node = call_to_json(call, sizes)
        parts = [_argument_text(value) for value in node["arguments"]]
        if "keywords" in node:
            parts += [f"{key}={_argument_text(value)}" for key, value in node["keywords"].items()]
        if "mode" in node:
            parts += node["mode"]
        inside = ", ".join(parts)
    except (*_DAMAGED, StopIteration):
        return f"{call} {sizes}"
    return inside if node["operator"] in _LEAVES else f"{operator_of(call)}({inside})"


def _argument_text(value: Any) -> str:
    """Return an argument in short; different ones differ."""
    if isinstance(value, list):
        return f"[{', '.join(map(_argument_text, value))}]"
    if not isinstance(value, Mapping):
        return repr(value)
    if value == {"edge": "#"}:
        return "_"
    kind, inner = next(iter(value.items()))
    if kind not in _LEAVES:
        return str(inner) if len(value) == 1 and kind != "edge" else json.dumps(value)
    further = [str(value[key]) if key == "dtype" else f"{key}={value[key]}"
               for key in value if key != kind]  # fmt: skip
    return " ".join([f"{kind}[{', '.join(map(str, inner))}]", *further])


def _filled(value: Any, gaps: Iterator[str]) -> Any:
    if isinstance(value, list):
        return [_filled(part, gaps) for part in value]
    if not isinstance(value, Mapping):
        return value
    if value == {"number": _GAP}:
        return float(next(gaps))
    if value == {"size": _GAP}:
        return {"size": next(gaps)}
    kind = next((kind for kind in _LEAVES if kind in value), None)
    if kind is None:
        return {key: _filled(part, gaps) for key, part in value.items()}
    return {**value, kind: [next(gaps) if size == _GAP else size for size in value[kind]]}
