"""Blocks of a program's file that follow each other: stored once, with the modules that they are.

Twelve layers of a transformer are twelve times the same calls. In a file one entry of ``nodes``
stands for all of them::

    {"block": [NODE, ...], "modules": ["h.0", "h.1", ...], "next": [[4, 20]]}

Its nodes are those of the first module; the others have the same calls with the own module's path.
Inputs are positions in the whole program. One before the block is read by every module, unless
``next`` has it: where the first module reads node 4, the second one reads node 20. If that is a
node of the first module, the third one reads the same node of the second, and so on; if not, as
where each expert reads its own part of a tensor, positions go on by the same distance.

Modules say here what a block is, and copies are exact. ``layerdag.graph.repeats`` finds blocks of
graphs that have no modules, by their neighborhoods.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from layerdag.runtime.json_shape import require_known, require_shape

MAX_NODES = 100_000
"""Nodes that a program has at most, whatever a small file says of repetitions."""
MAX_CHARACTERS = 100_000_000
"""Length of the JSON of all copies of a block."""

_OF_A_COPY = ("inputs", "module", "names")
"""Keys of a node that differ between copies."""

_SHAPE = {"block": [dict], "modules": [str], "next": [[int]]}


@final
@dataclass(frozen=True)
class RepeatedBlock:
    """Consecutive nodes that modules have in common, one module after the other.

    Attributes:
        first: Position of the first node of the first module.
        length: Nodes of one module.
        modules: Paths of the modules.
        second: Position before the block to the one that the second module reads in its place.
    """

    first: int
    length: int
    modules: tuple[str, ...]
    second: Mapping[int, int]

    @property
    def end(self) -> int:
        """One past the last node of the last module."""
        return self.first + self.length * len(self.modules)

    def input_of(self, position: int, copy: int) -> int:
        """Return what a module reads where the first one reads ``position``."""
        if position >= self.first:
            return position + copy * self.length
        second = self.second.get(position, position)
        if second >= self.first:
            return second + (copy - 1) * self.length if copy else position
        return position + copy * (second - position)


def repeated_blocks(
    nodes: Sequence[Mapping[str, Any]], first: int, end: int
) -> list[RepeatedBlock]:
    """Return the blocks between two positions, the outermost of nested ones.

    Args:
        nodes: JSON data of all nodes of a program.
        first: First position that is looked at.
        end: One past the last.
    """
    found = []
    finder = _Finder(nodes, first, end)
    at = first
    while at < end:
        block = finder.block_at(at)
        if block is None:
            at += 1
        else:
            found.append(block)
            at = block.end
    return found


def fold(nodes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the entries of a file: nodes, and blocks that stand for several."""
    return _folded(nodes, 0, len(nodes))


def _folded(nodes: Sequence[Mapping[str, Any]], first: int, end: int) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    at = first
    for block in repeated_blocks(nodes, first, end):
        found += nodes[at : block.first]
        found.append(
            {
                "block": _folded(nodes, block.first, block.first + block.length),
                "modules": list(block.modules),
                "next": [list(pair) for pair in block.second.items()],
            }
        )
        at = block.end
    return [*found, *nodes[at:end]]


def unfold(entries: Sequence[Any]) -> list[dict[str, Any]]:
    """Return all nodes that the entries of a file stand for; the file is not trusted.

    Raises:
        ValueError: If a block is none, or there are more than ``MAX_NODES`` nodes.
    """
    nodes: list[dict[str, Any]] = []
    _unfold(entries, nodes)
    return nodes


def _unfold(entries: Sequence[Any], nodes: list[dict[str, Any]]) -> None:
    for entry in entries:
        if not (isinstance(entry, Mapping) and "block" in entry):
            nodes.append(entry)
            _require_few(len(nodes))
            continue
        first = len(nodes)
        where = f"block at node {first}"
        require_shape(entry, _SHAPE, where)
        require_known(entry, _SHAPE)
        _unfold(entry["block"], nodes)
        made = nodes[first:]
        block = _read_block(entry, first, len(made), where)
        _require_few(block.end)
        paths = sum(1 + len(_names(node)) for node in made) * sum(map(len, block.modules))
        if paths + len(json.dumps(made)) * len(block.modules) > MAX_CHARACTERS:
            raise ValueError(f"the {where} stands for more than {MAX_CHARACTERS:,} characters")
        for copy in range(1, len(block.modules)):
            nodes += [_copied(node, block, copy) for node in made]


def _read_block(entry: Mapping[str, Any], first: int, length: int, where: str) -> RepeatedBlock:
    modules = tuple(entry["modules"])
    if not length or len(modules) < 2:
        raise ValueError(
            f"the {where} has {length} nodes in {len(modules)} modules; it needs one in two"
        )
    for pair in entry["next"]:
        if len(pair) != 2 or not 0 <= pair[0] < first or not 0 <= pair[1] < first + length:
            raise ValueError(
                f"'next' of the {where} holds {pair}; a pair is a node before the block, and one "
                "up to the end of its first module"
            )
    second = dict(entry["next"])
    if len(second) < len(entry["next"]):
        raise ValueError(f"'next' of the {where} names a position twice")
    return RepeatedBlock(first, length, modules, second)


def _require_few(number: int) -> None:
    if number > MAX_NODES:
        raise ValueError(f"it has {number:,} nodes or more; at most {MAX_NODES:,} are read")


def _copied(node: Mapping[str, Any], block: RepeatedBlock, copy: int) -> dict[str, Any]:
    if not isinstance(node, Mapping):
        raise ValueError(f"the block at node {block.first} holds {node!r:.40}, which is no node")
    own, other = block.modules[0], block.modules[copy]
    found = dict(node)
    inputs = node.get("inputs")
    if isinstance(inputs, list):
        found["inputs"] = [block.input_of(i, copy) if type(i) is int else i for i in inputs]
    if isinstance(node.get("module"), str):
        found["module"] = _moved(node["module"], own, other)
    if _names(node):
        found["names"] = [_moved(n, own, other) if isinstance(n, str) else n for n in node["names"]]
    return found


def _names(node: Any) -> Sequence[Any]:
    """Return the names of the leaves of a node that may be none; what is no list holds none."""
    names = node.get("names") if isinstance(node, Mapping) else None
    return names if isinstance(names, list) else ()


def _moved(path: str, own: str, other: str) -> str:
    return other + path[len(own) :] if path == own or path.startswith(f"{own}.") else path


def _numbered(module: str) -> Iterator[str]:
    parts = module.split(".")
    for depth, part in enumerate(parts, start=1):
        if part[:1].isdigit():
            yield ".".join(parts[:depth])


def _sibling(module: str, path: str) -> str | None:
    """Return the module of the same list that a path leads through, or None."""
    parent, depth = path.split(".")[:-1], path.count(".")
    parts = module.split(".")
    if parts[:depth] != parent or not parts[depth : depth + 1] or not parts[depth][:1].isdigit():
        return None
    return ".".join(parts[: depth + 1])


def _belongs(module: str, path: str) -> bool:
    return module == path or module.startswith(f"{path}.")


def _module(node: Mapping[str, Any]) -> str:
    return str(node.get("module", ""))


def _inputs(node: Mapping[str, Any]) -> Sequence[int]:
    return node.get("inputs", ())


@final
class _Finder:
    """Finds the blocks between two positions.

    Args:
        nodes: JSON data of all nodes.
        first: First position that is looked at.
        end: One past the last.
    """

    def __init__(self, nodes: Sequence[Mapping[str, Any]], first: int, end: int) -> None:
        self._nodes, self._first, self._end = nodes, first, end
        # As texts: to Python 1, 1.0 and True are equal.
        self._call_N = {
            at: json.dumps({k: v for k, v in nodes[at].items() if k not in _OF_A_COPY})
            for at in range(first, end)
        }

    def block_at(self, at: int) -> RepeatedBlock | None:
        """Return the block that begins at a position, of the longest module with followers."""
        for path in _numbered(_module(self._nodes[at])):
            if at > self._first and _belongs(_module(self._nodes[at - 1]), path):
                continue  # its run began before
            block = RepeatedBlock(at, self._run(at, path), (path,), {})
            longer: RepeatedBlock | None = block
            while longer is not None:
                block, longer = longer, None
                start = block.end
                is_last = start == self._end
                follower = None if is_last else _sibling(_module(self._nodes[start]), path)
                is_new = follower not in block.modules
                if follower and is_new and self._run(start, follower) == block.length:
                    longer = self._with_follower(block, follower)
            if len(block.modules) > 1:
                return block
        return None

    def _run(self, at: int, path: str) -> int:
        stop = at
        while stop < self._end and _belongs(_module(self._nodes[stop]), path):
            stop += 1
        return stop - at

    def _with_follower(self, block: RepeatedBlock, follower: str) -> RepeatedBlock | None:
        """Return a block with one more module, or None if that is no copy of the first."""
        nodes, copy = self._nodes, len(block.modules)
        second = dict(block.second)
        own = range(block.first, block.first + block.length)
        if copy == 1:
            for at in own:
                reads = zip(_inputs(nodes[at]), _inputs(nodes[at + block.length]), strict=False)
                second |= {i: found for i, found in reads if i < block.first and found != i}
            if any(found >= own.stop for found in second.values()):
                return None  # it reads its own node where the first one reads one before the block
        longer = RepeatedBlock(block.first, block.length, (*block.modules, follower), second)
        for at in own:
            other = at + copy * block.length
            if self._call_N[at] != self._call_N[other]:
                return None
            if _copied(nodes[at], longer, copy) != nodes[other]:
                return None
        return longer
