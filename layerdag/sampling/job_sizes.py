"""The sizes of a sampled job: which have to be equal, and what most of the job was drawn with.

Results and inputs that have to be equally large are one class; the class has the size that most of
its nodes and matrix products were drawn with. Whether an operator works on all that its parent made
is told by the operators, by how often sizes change between them in training jobs, and by the draw.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache

import numpy as np

from layerdag.codec.folding import MESSAGE
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.schema.costs import COST_NAMES, MOST, data_edges
from layerdag.validation.operators import (
    ARITHMETIC,
    ELEMENTWISE_BACKWARD,
    NORMS,
    PAIRS,
    REDUCTIONS,
    SHAPE_KEEPING,
    SOFTMAXES,
    SPLIT,
    operator_of,
)
from layerdag.validation.product_shapes import Shape, shapes_of

_BITS = re.compile(r"[a-z]+(\d+)")


def element_bytes(dtype: str) -> int:
    """Return the bytes of an element, as the word tells; of "" and "<other>" those of a float32."""
    if dtype == "bool":
        return 1
    bits = _BITS.match(dtype)
    return max(int(bits[1]) // 8, 1) if bits else 4


NORM_BACKWARD = tuple(f"{name}_backward" for name in NORMS)
_SOFTMAX_BACKWARD = tuple(f"{name}_backward_data" for name in SOFTMAXES)
_LOSSES = ("nll_loss_forward", "nll_loss_backward", "mse_loss", "mse_loss_backward")
SAME = frozenset(
    (*ARITHMETIC, *ELEMENTWISE_BACKWARD, *SOFTMAXES, *_SOFTMAX_BACKWARD, *NORMS, *NORM_BACKWARD,
     *_LOSSES, "clone", "copy_", "_to_copy", "native_dropout", "native_dropout_backward",
     "lerp_", "addcmul_", "addcdiv_", "detach_")
)  # fmt: skip
"""Operators that make as many elements as they work on."""
WHOLES = frozenset(("slice_backward", "select_backward", "cat", "stack"))
"""Operators whose result is larger than their inputs."""
MATRICES = ("mm", "addmm")
_STARTS_BACKWARD = frozenset((*MATRICES, "bmm", *NORMS, *SOFTMAXES, *PAIRS))
_TOGETHER = ("ALL_REDUCE", "ALL_TO_ALL", "BROADCAST")
_RARE = 0.02
"""A change of sizes that is this much rarer than none is taken for a fault of the draw."""
_USUAL = 0.9
"""Operators that so often work on as much as another one made do so whatever was drawn."""
_CLOSE, ALIKE = 0.5, 1.5
"""Logarithms of quotients up to which sizes are taken for one, by how little else speaks for it."""
_MOST_OPERATIONS = 1 << 42
"""Of a product whose shapes are looked for: there are too many divisions beyond."""


def far(one: int, other: int) -> float:
    """Return how far two sizes are apart, in logarithms."""
    return abs(math.log(max(one, 1) / max(other, 1)))


def most_common(sizes: Iterable[int]) -> int:
    """Return the most frequent size; of several the largest."""
    count = Counter(sizes)
    return max(count, key=lambda size: (count[size], size))


@lru_cache(maxsize=1 << 14)
def _shapes(name: str, operations: int, elements: int) -> tuple[Shape, ...]:
    """Return the shapes of a product with so many operations and elements, as ``shapes_of``."""
    if operations > _MOST_OPERATIONS:
        return ()
    return tuple(sorted(shapes_of(name, operations, elements)))


class JobSizes:
    """The nodes of a job, and the sizes that they work on and make.

    Args:
        graph: A job with operators, dependencies and drawn numbers.
        steps: How sizes change between the operators at the ends of a dependency in training jobs:
            share of each quotient.

    Attributes:
        op: Operators without namespace, "" where they are not PyTorch's.
        flops: Operations of each node, 0 for absent.
        moved: Bytes.
        sent: Bytes of a message or collective.
        drawn: These three as they were drawn.
        parents: Along data dependencies.
        children: The same.
        order: Nodes in topological order.
        value: Sizes of classes, by what stands for the class.
        rows: How many products of the job have so many rows.
        widths: The same of columns and inner sizes.
    """

    def __init__(
        self, graph: AttributedGraph, steps: Mapping[tuple[str, str], Mapping[float, float]]
    ) -> None:
        self.graph, self._steps = graph, steps
        self._words = words = graph.categories["op"]
        named = ("aten::", "fsdp::")
        self.op = [operator_of(word) if word.startswith(named) else "" for word in words]
        nothing = [""] * graph.num_nodes
        self.type = graph.categories.get("type", nothing)
        self.stage = graph.categories.get("stage", nothing)
        self.collective = graph.categories.get("collective", nothing)
        dtypes = graph.categories.get("dtype", nothing)
        self.is_float = ["float" in word or word in ("", "none") for word in dtypes]
        self.element = [element_bytes(word) for word in dtypes]
        self.flops, self.moved, self.sent = (
            np.clip(np.nan_to_num(graph.numbers[name]), 0, MOST).astype(np.int64).tolist()
            for name in COST_NAMES
        )
        self.drawn = (self.flops.copy(), self.moved.copy(), self.sent.copy())
        self.parents: list[list[int]] = [[] for _ in words]
        self.children: list[list[int]] = [[] for _ in words]
        for source, target in np.unique(
            graph.edge_index_2E[:, data_edges(graph)].T, axis=0
        ).tolist():
            self.connect(source, target)
        self.order: list[int] = np.argsort(graph.layer_N, kind="stable").tolist()
        self._leader = list(range(2 * len(words)))
        self.value: dict[int, int] = {}
        self.rows: Counter[int] = Counter()
        self.widths: Counter[int] = Counter()

    def connect(self, source: int, target: int) -> None:
        """Add a dependency."""
        self.parents[target].append(source)
        self.children[source].append(target)

    def find(self, variable: int) -> int:
        """Return what stands for the class of a size."""
        while self._leader[variable] != variable:
            self._leader[variable] = self._leader[self._leader[variable]]
            variable = self._leader[variable]
        return variable

    def _join(self, one: int, other: int) -> None:
        self._leader[self.find(one)] = self.find(other)

    @staticmethod
    def work(node: int) -> int:
        """Return the size that a node works on."""
        return 2 * node

    @staticmethod
    def result(node: int) -> int:
        """Return the size of what a node makes."""
        return 2 * node + 1

    def _moves(self, node: int) -> bool:
        return self.type[node] == MESSAGE or self.collective[node] in _TOGETHER

    def communicates(self, node: int) -> bool:
        """Return whether a node is a message or collective."""
        return self.type[node] == MESSAGE or self.type[node] == "COMM_COLL"

    def order_only(self, parent: int, node: int) -> bool:
        """Return whether one collective merely waits for another one."""
        return self.communicates(parent) and self.communicates(node)

    def elements(self, node: int) -> int:
        """Return the elements that a node reads and writes."""
        return self.moved[node] // self.element[node]

    def drawn_work(self, node: int) -> int:
        """Return the drawn size of a node, 0 where its operator has none."""
        if self.communicates(node):
            return self.sent[node] // self.element[node]
        if self.op[node] in SAME or self.op[node] in REDUCTIONS or self.op[node] in WHOLES:
            return self.flops[node]
        return 0

    def made(self, node: int) -> int:
        """Return the drawn elements of the result of a node, 0 where they are not known."""
        if self.op[node] in REDUCTIONS:
            left = self.elements(node) - self.flops[node]
            return left if 0 < left <= self.flops[node] else 0
        return self.drawn_work(node)

    def drawn_shapes(self, node: int) -> tuple[Shape, ...]:
        """Return the shapes that a product was drawn with."""
        return _shapes(
            self.op[node], self.drawn[0][node], self.drawn[1][node] // self.element[node]
        )

    def is_activation(self, parent: int) -> bool:
        """Return whether a parent of a product is an activation or gradient, not a parameter."""
        name = self.op[parent]
        known = not name.endswith("_backward") or name in SAME
        return known and name != SPLIT and self.is_float[parent]

    @cached_property
    def backward(self) -> frozenset[int]:
        """Backward operators, and all that follows from them."""
        found: set[int] = set()
        for node in self.order:
            if "_backward" in self.op[node] or any(
                parent in found for parent in self.parents[node] if not self._waits(parent, node)
            ):
                found.add(node)
        return frozenset(found)

    @cached_property
    def gradients(self) -> frozenset[int]:
        """Nodes of the backward pass from which no further backward operator follows.

        They are gradients of parameters, and what is done with them.
        """
        before = set()
        for node in reversed(self.order):
            for child in self.children[node]:
                if self._waits(node, child):
                    continue
                if (
                    child in before
                    or self.op[child] in _STARTS_BACKWARD
                    or (self.type[child] == MESSAGE)
                ):
                    before.add(node)
        return frozenset(
            node
            for node in self.backward - before
            if self.type[node] != MESSAGE and self.op[node] not in PAIRS
        )

    def _waits(self, parent: int, node: int) -> bool:
        return self.collective[node] == "ALL_GATHER" or self.order_only(parent, node)

    def join_equal(self) -> None:
        """Join what has to be equally large."""
        for node, name in enumerate(self.op):
            if name in SAME or name in WHOLES or self._moves(node):
                self._join(self.work(node), self.result(node))
        for node in self.order:
            self._join_parents(node)
        self._join_messages()

    def _join_parents(self, node: int) -> None:
        name = self.op[node]
        parents = self._joinable(node)
        same = [p for p in parents if self._as_large(p, node, len(parents))]
        if not same and parents:
            same = self._nearest(parents, node)
        for parent in same:
            self._join(self.work(node), self.result(parent))
        if name in PAIRS:
            for parent in self.parents[node]:
                for other in (parent, *self.children[parent]):
                    if self.op[other] in PAIRS[name] and self.op[other] in SAME:
                        self._join(self.work(node), self.work(other))

    def _joinable(self, node: int) -> list[int]:
        name = self.op[node]
        sized = name in SAME or name in REDUCTIONS or self._moves(node)
        if not sized or node in self.gradients:
            return []
        # Of several results or of another size, parameters, and what is a part of another axis.
        others = {"ones_like", SPLIT, *(PAIRS.keys() - SAME)}
        if name in REDUCTIONS:
            others.add("bmm")
        return [
            parent
            for parent in self.parents[node]
            if self.op[parent] not in others and not self.order_only(parent, node)
        ]

    def _as_large(self, parent: int, node: int, inputs: int) -> bool:
        wanted = self.drawn_work(node)
        if self.op[parent] in NORM_BACKWARD and self.op[node] not in ELEMENTWISE_BACKWARD:
            # The gradients of its parameters come out of it, too.
            return far(self.made(parent), wanted) < ALIKE
        if self.op[parent] in MATRICES:
            return self._product_as_large(parent, wanted, inputs + (self.op[node] == "div"))
        made = self.made(parent)
        if made == wanted:
            return True
        if self.collective[parent] == "ALL_REDUCE":  # of activations, of tensor parallel ranks
            return far(made, wanted) < ALIKE
        if self.op[parent] in REDUCTIONS:  # or it is repeated along what was summed
            near = inputs == 1 or far(made, wanted) < ALIKE
            return near and wanted != self.flops[parent]
        if not made:
            if self.op[parent].startswith("embedding"):
                left = self.elements(parent) - self.flops[parent]
                return inputs == 1 or far(left, wanted) < 0.35
            return inputs == 1 or self.is_float[parent]
        shares = self._steps.get((self._words[parent], self._words[node]))
        if shares is None:
            return inputs == 1 and made < 4 * wanted
        equal = shares.get(1.0, 0.0)
        return equal >= _USUAL and shares.get(wanted / made, 0.0) < _RARE * equal

    def _product_as_large(self, parent: int, wanted: int, inputs: int) -> bool:
        shapes = self.drawn_shapes(parent)
        taken = {self.made(p) for p in self.parents[parent]}
        likely = [s for s in shapes if s[0] * s[1] in taken] or shapes
        made = {s[0] * s[2] for s in likely}
        if wanted in made:
            return True
        if len([p for p in self.parents[parent] if self.is_activation(p)]) > 1:
            return False  # the gradient of a parameter
        if not made:
            return inputs == 1
        parts = {size // wanted for size in made if wanted and size % wanted == 0}
        several = len(self.children[parent]) > 1
        nearest = min(far(size, wanted) for size in made)
        return not (several and parts & {2, 3, 4, 6, 8}) and nearest < (1.5 if inputs == 1 else 0.8)

    def _nearest(self, parents: Sequence[int], node: int) -> list[int]:
        """Return the input of the nearest size, if a node has to work on as much; else nothing."""
        wanted = self.drawn_work(node)
        known = [parent for parent in parents if self.made(parent)] or parents
        nearest = min(known, key=lambda parent: far(self.made(parent), wanted))
        alone = len(parents) == 1 and self._moves(node)
        whole = self.op[node] in SHAPE_KEEPING and not self._sees_part(nearest, node)
        close = far(self.made(nearest), wanted) < _CLOSE
        return [nearest] if close or alone or whole else []

    def _sees_part(self, parent: int, node: int) -> bool:
        made, wanted = self.made(parent), self.drawn_work(node)
        if not made or not wanted or made <= wanted or made % wanted:
            return False
        shares = self._steps.get((self._words[parent], self._words[node]), {})
        return wanted / made in shares

    def _join_messages(self) -> None:
        ways: dict[frozenset[str], list[int]] = defaultdict(list)
        for node, kind in enumerate(self.type):
            if kind != MESSAGE:
                continue
            ends = {self.stage[node], *(self.stage[child] for child in self.children[node])}
            if len(ends) == 2:
                ways[frozenset(ends)].append(node)
        for nodes in ways.values():
            usual = most_common(self.drawn_work(node) for node in nodes)
            near = [n for n in nodes if far(self.drawn_work(n), usual) < ALIKE]
            for node in near[1:]:
                self._join(self.work(near[0]), self.work(node))

    def give_sizes(self) -> None:
        """Give each class the size that most of its nodes were drawn with."""
        votes: dict[int, Counter[int]] = defaultdict(Counter)
        for node in range(len(self.op)):
            if node in self.gradients:
                continue
            work, made = self.drawn_work(node), self.made(node)
            if work:
                votes[self.find(self.work(node))][work] += 2
            if made and self.op[node] in REDUCTIONS:
                votes[self.find(self.result(node))][made] += 2
        for node, name in enumerate(self.op):
            if name not in MATRICES or node in self.gradients:
                continue
            for vote, sizes in self._product_votes(node):
                for size in sizes if vote in votes else ():
                    votes[vote][size] += 1
        usual = Counter(self.drawn_work(node) for node in range(len(self.op)))
        for leader, found in votes.items():
            self.value[leader] = max(found, key=lambda size: (found[size], usual[size], size))

    def _product_votes(self, node: int) -> Iterator[tuple[int, set[int]]]:
        shapes = self.drawn_shapes(node)
        if not shapes:
            return
        inputs = [p for p in self.parents[node] if self.is_activation(p)]
        if len(inputs) == 1:
            yield self.find(self.result(inputs[0])), {m * k for m, k, _ in shapes}
            yield self.find(self.result(node)), {m * n for m, _, n in shapes}

    def size_of(self, variable: int) -> int:
        """Return the size of a class, 0 where it is unknown."""
        return self.value.get(self.find(variable), 0)

    def write_sizes(self, nodes: Iterable[int]) -> None:
        """Write the sizes of classes into nodes."""
        for node in nodes:
            size = self.size_of(self.work(node))
            if not size:
                continue
            if self.communicates(node):
                self.write_sent(node, size)
            elif self.op[node] in SAME or self.op[node] in WHOLES:
                self.write_work(node, size)
            elif self.op[node] in REDUCTIONS:
                made = self.size_of(self.result(node)) or self.made(node)
                self.write_reduction(node, size, made)

    def write_work(self, node: int, size: int) -> None:
        """Let an element-wise operator work on so many elements."""
        before = self.flops[node]
        if before == size or not before or not size:
            return
        times, left = divmod(self.elements(node), before)
        if self.op[node] not in NORMS and self.op[node] not in NORM_BACKWARD:
            left = left * size // before  # what is repeated along the others
        self.flops[node] = size
        self.moved[node] = (max(times, 1) * size + left) * self.element[node]

    def write_reduction(self, node: int, size: int, made: int) -> None:
        """Let a sum or mean of so many elements make fewer, of a width if it is not known."""
        kept = size == self.flops[node] and made and made == self.made(node)
        if kept or not self.flops[node]:
            return
        if not made or made > size or size % made:
            made = max(
                (d for d in self.widths if size % d == 0), key=self.widths.__getitem__, default=1
            )
        self.flops[node] = size
        self.moved[node] = (size + made) * self.element[node]
        self.value[self.find(self.result(node))] = made

    def write_sent(self, node: int, size: int) -> None:
        """Let a message or collective move so many elements."""
        sent = size * self.element[node]
        if sent and self.sent[node] and sent != self.sent[node]:
            self.moved[node] = round(self.moved[node] / self.sent[node] * sent)
            self.sent[node] = sent
