"""Numbers of a sampled job that follow from other numbers of the same job.

A model draws the numbers of each node. In a training step of PyTorch most of them are functions of
a few: an element-wise operator works on what it is given, the backward operator on what the forward
one had, a bucket holds the gradients that go into it, an optimizer steps as many parameters as have
gradients. Here these are computed from those that the job itself agrees on, in this order:

1. *Sizes of tensors.* Results and inputs that have to be equally large are one class; the class has
   the size that most of its nodes and matrix products were drawn with.
2. *Matrix products.* A product keeps its shape (M, K, N) where that fits its inputs. Else it gets
   the one nearest to what was drawn, of sizes that the other products of the job use: its table of
   sizes.
3. *Gradients*, from products to buckets, copies and optimizer kernels, in topological order.
4. *Norms*, of the width of the rows that they work on.

Gradients of weights and biases that nothing uses are then used as the others of the job are.
Operators that are not named there keep what was drawn, and so do jobs that have none of them.

Shape letters: N nodes.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.sampling.computed_gradients import FOREACH, ParameterGradients
from layerdag.sampling.computed_products import ProductShapes
from layerdag.sampling.job_sizes import MATRICES, NORM_BACKWARD, JobSizes, most_common
from layerdag.schema.costs import COST_NAMES
from layerdag.validation.operators import (
    CHUNKS,
    COPY_IN,
    FUSED,
    NORMS,
    PAIRS,
    PRODUCTS,
    REDUCTIONS,
    SPLIT,
    UPDATES,
)
from layerdag.validation.product_shapes import roots

_MOST_KERNELS = 64
"""Of an optimizer that are given one more gradient: PyTorch's take a few dozen."""


@dataclass(frozen=True, eq=False)
class Computed:
    """What follows from other numbers of a job.

    Attributes:
        numbers: Of all nodes by name, ``COST_NAMES`` among them; NaN for absent.
        edges: Dependencies (source, target) that were added: of gradients that nothing used.
        changed: Number of nodes that have other numbers than were drawn, by kind of operator, and
            of the gradients that were used.
    """

    numbers: Mapping[str, np.ndarray]
    edges: tuple[tuple[int, int], ...]
    changed: Mapping[str, int]


class ComputedNumbers:
    """Computes what follows from other numbers of a job, see the top of the file.

    Args:
        graph: A job with operators, dependencies and drawn numbers.
        steps: How sizes change between the operators at the ends of a dependency in training jobs:
            share of each quotient.
    """

    def __init__(
        self, graph: AttributedGraph, steps: Mapping[tuple[str, str], Mapping[float, float]]
    ) -> None:
        self._job = JobSizes(graph, steps)
        self._products = ProductShapes(self._job)
        self._gradients = ParameterGradients(self._job, self._products)

    def computed(self) -> Computed:
        """Return the numbers of all nodes."""
        job = self._job
        if not any(job.op):
            return Computed({name: job.graph.numbers[name] for name in COST_NAMES}, (), {})
        added = self._use_gradients()
        job.join_equal()
        job.give_sizes()
        self._products.solve()
        job.write_sizes(node for node in job.order if node not in job.gradients)
        self._norms()
        self._gradients.compute()
        written = (job.flops, job.moved, job.sent)
        new_CN = np.array(written, dtype=np.float64)
        new_CN[new_CN == 0] = np.nan
        changed_N = (np.array(written) != np.array(job.drawn)).any(axis=0)
        changed = Counter(self._kind(node) for node in np.flatnonzero(changed_N).tolist())
        if added:
            changed["gradients used"] = len({source for source, _ in added})
        numbers = dict(zip(COST_NAMES, new_CN, strict=True))
        return Computed(numbers, tuple(added), dict(sorted(changed.items())))

    def _use_gradients(self) -> list[tuple[int, int]]:
        """Let gradients of weights and biases that nothing uses be taken as the others of the job.

        Returns:
            The dependencies (gradient, bucket or optimizer kernel).
        """
        layer_N, added = self._job.graph.layer_N, []
        takers = self._takers()
        known = set(zip(*self._job.graph.edge_index_2E.tolist(), strict=True))
        for node, name in enumerate(self._job.op):
            is_gradient = name in ("sum", *MATRICES) and node in self._job.gradients
            if not is_gradient or self._job.children[node]:
                continue
            for kinds in takers[self._job.stage[node]]:
                later = [taker for taker in kinds if layer_N[taker] > layer_N[node]]
                taking = [taker for taker in later if (node, taker) not in known][:_MOST_KERNELS]
                if taking:
                    first = min(taking, key=lambda taker: (layer_N[taker], taker))
                    several = self._job.op[first].startswith(FOREACH)
                    added += [(node, taker) for taker in (taking if several else [first])]
                    break
        for source, target in added:
            self._job.connect(source, target)
        return added

    def _takers(self) -> dict[str, list[list[int]]]:
        found: dict[str, list[list[int]]] = defaultdict(lambda: [[], [], []])
        for node in self._job.order:
            taken = [
                p
                for p in self._gradients.taken(node)
                if p in self._job.gradients or self._job.op[p] in PAIRS
            ]
            if len(taken) < 2:
                continue
            name = self._job.op[node]
            if self._job.collective[node] == "ALL_REDUCE":
                found[self._job.stage[node]][0].append(node)
            elif name == CHUNKS:
                found[self._job.stage[node]][1].append(node)
            elif name.startswith(FOREACH) or name in FUSED:
                found[self._job.stage[node]][2].append(node)
        return found

    def _norms(self) -> None:
        kinds: dict[tuple[str, int], list[int]] = defaultdict(list)
        for node in self._job.order:
            if self._job.op[node] in NORMS and self._job.flops[node]:
                kinds[self._job.op[node], self._job.find(self._job.work(node))].append(node)
        for (name, _), nodes in kinds.items():
            size = self._job.flops[nodes[0]]
            usual = most_common(self._further(node, 2) for node in nodes)
            widths = [self._columns(node) for node in nodes]
            known = [width for width in widths if width]
            width = most_common(known) if known else self._likely_width(name, size, usual)
            for node, own in zip(nodes, widths, strict=True):
                self._write_norm(node, own or width, usual)
                self._write_norm_backward(node, own or width)

    def _further(self, node: int, times: int) -> int:
        return self._job.elements(node) - times * self._job.flops[node]

    def _columns(self, node: int) -> int:
        """Return the columns of the product before a norm, 0 if there is none."""
        for parent in self._job.parents[node]:
            shape = self._products.shape.get(parent)
            if shape is not None and shape[0] * shape[2] == self._job.flops[node]:
                return shape[2]
        return 0

    def _likely_width(self, name: str, size: int, further: int) -> int:
        """Return the width that a norm's bytes tell of, if the job has it elsewhere, else 0."""
        if name != "native_layer_norm":
            return 0
        found = {*roots(2, further, 2 * size)}
        known = [width for width in found if width in self._job.widths]
        if known:
            return max(known, key=lambda width: self._job.widths[width])
        if found:
            return min(found)
        rows = [width for width in self._job.widths if size % width == 0]
        return max(rows, key=lambda width: self._job.widths[width], default=0)

    def _write_norm(self, node: int, width: int, usual: int) -> None:
        size, name = self._job.flops[node], self._job.op[node]
        further = usual
        if width and size % width == 0 and name == "native_layer_norm":
            further = 2 * width + 2 * (size // width)
        elif width and name == "native_batch_norm":
            further = width * min(max(round(usual / width), 1), 6)
            if usual % width == 0 and usual <= 6 * width:
                further = usual
        if further != self._further(node, 2) and 0 < further < 4 * size:
            self._job.moved[node] = (2 * size + further) * self._job.element[node]

    def _write_norm_backward(self, node: int, width: int) -> None:
        """Write the bytes of the backward operator of a layer norm with weight and bias.

        Beside three tensors of the norm's size it reads mean and deviation of each row and weight
        and bias, and writes the gradients of these.
        """
        job, size = self._job, self._job.flops[node]
        plain = width and size % width == 0 and job.op[node] == "native_layer_norm"
        if not plain or self._further(node, 2) != 2 * width + 2 * (size // width):
            return
        for child in job.children[node]:
            if job.op[child] == "native_layer_norm_backward" and job.flops[child] == size:
                further = 4 * width + 2 * (size // width)
                job.moved[child] = (3 * size + further) * job.element[child]

    def _kind(self, node: int) -> str:
        """Return what is said of a node where it is counted."""
        name = self._job.op[node]
        if self._job.communicates(node):
            return "communication"
        if name in PRODUCTS:
            return "products"
        if name in UPDATES or name.startswith(FOREACH):
            return "optimizer"
        if name in NORMS or name in NORM_BACKWARD:
            return "norms"
        if name in REDUCTIONS:
            return "reductions"
        return "shards" if name in (COPY_IN, SPLIT, CHUNKS) else "element-wise"
