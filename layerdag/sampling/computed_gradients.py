"""What is done with the gradients of parameters in a sampled job: buckets, shards, optimizers.

Sizes follow from the gradients in topological order: a bucket and a shard hold what goes into them,
what is copied out of a bucket has the sizes of what went in, and an optimizer steps as many
parameters as there are gradients.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property

from layerdag.codec.folding import ALL, ALL_RANKS, NONE
from layerdag.sampling.computed_products import ProductShapes
from layerdag.sampling.job_sizes import (
    MATRICES,
    NORM_BACKWARD,
    SAME,
    WHOLES,
    JobSizes,
    far,
    most_common,
)
from layerdag.validation.operators import (
    CHUNKS,
    COPY_IN,
    FUSED,
    NORMS,
    PAIRS,
    REDUCTIONS,
    SPLIT,
    UPDATES,
)
from layerdag.validation.product_shapes import roots

FOREACH = "_foreach_"
_CHAIN = tuple(f"{FOREACH}{kind}" for kind in ("lerp_", "addcmul_", "addcdiv_", "sqrt", "div_"))
_AFTER_PARTS = ("sqrt", "div_", "add_", "addcdiv_")
"""What an optimizer does with a parameter after the kernels that take parts of a bucket."""
_COUNTERS = 16
"""Kernels on so many times fewer elements than others count steps."""
_NEAR = 0.25
"""Logarithm of the quotient of two numbers of parameters that are taken for one, drawn twice."""
_FILLED = 1.3
"""How many times what goes into a shard it may have, since it is filled up to equal parts."""


class ParameterGradients:
    """Computes what is done with the gradients of a job's parameters.

    Args:
        job: Its sizes.
        products: Shapes of its products.
    """

    def __init__(self, job: JobSizes, products: ProductShapes) -> None:
        self._job, self._products = job, products

    def compute(self) -> None:
        """Compute sizes of what is done with the gradients of parameters."""
        for node in self._job.order:
            if node in self._job.gradients:
                self._compute(node)
        self._shared_parts()
        for node in self._job.order:
            if node in self._job.gradients and self._job.op[node] in _AFTER_PARTS:
                self._gradient_work(node)
        self._shards()
        self._leading_work()
        self._optimizers()

    def _compute(self, node: int) -> None:
        name, kind = self._job.op[node], self._job.collective[node]
        if name == "sum":
            self._bias_gradient(node)
        elif name in ("cat", CHUNKS):
            total = self._total(node)
            # Shards of parameters that do not divide evenly are filled up.
            if total and not (name == CHUNKS and total <= self._job.flops[node] <= _FILLED * total):
                self._job.write_work(node, total)
        elif kind == "ALL_REDUCE":
            self._job.write_sent(node, self._total(node) or self._job.drawn_work(node))
            self._empty_bucket(node)
        elif kind == "REDUCE_SCATTER":
            chunks = [
                self._job.flops[p] for p in self._job.parents[node] if self._job.op[p] == CHUNKS
            ]
            wanted = self._job.drawn_work(node)
            size = min(chunks, key=lambda chunk: (far(chunk, wanted), chunk), default=wanted)
            self._job.write_sent(node, size)
            for parent in self._job.parents[node]:
                if self._job.op[parent] == CHUNKS:
                    self._job.write_work(parent, size)
            self._copy_shard(node)
        elif name in SAME and not any(self._job.communicates(p) for p in self._job.parents[node]):
            self._gradient_work(node)

    def _bias_gradient(self, node: int) -> None:
        parents = self._job.parents[node]
        size = self._job.size_of(self._job.result(parents[0])) if len(parents) == 1 else 0
        several = {"bmm", *(PAIRS.keys() - SAME)}
        if not size or self._job.op[parents[0]] in several:
            return
        rows = [
            self._products.shape[other][1]
            for other in self._job.children[parents[0]]
            if other in self._products.shape
            and len(found := self._products.inputs(other)) == 2
            and math.prod(s for _, s in found)
            == math.prod(self._products.shape[other]) * self._products.shape[other][1]
        ]
        made = self._job.made(node)
        wide = {size // m for m in rows if size % m == 0}
        if wide and made not in wide:
            made = min(wide, key=lambda w: far(w, made))
        self._job.write_reduction(node, size, made)

    def _gradient_work(self, node: int) -> None:
        parents = [
            p
            for p in self._job.parents[node]
            if p in self._job.gradients or self._job.op[p] in PAIRS
        ]
        if not self._flat.isdisjoint(parents):  # which is seen in parts
            parents = [p for p in parents if self._job.op[p] in REDUCTIONS]
        stepped = [p for p in parents if self._job.op[p] in ("lerp_", "addcmul_")]
        sizes = [self._gradient(parent, node) for parent in stepped or parents]
        if max(sizes, default=0) > 1:
            self._job.write_work(node, max(sizes))

    def _gradient(self, node: int, child: int) -> int:
        """Return the elements of a gradient that a node hands to a child, 0 if unknown."""
        name = self._job.op[node]
        if name in MATRICES:
            shape = self._products.shape.get(node)
            return shape[0] * shape[2] if shape else 0
        if name in REDUCTIONS:
            return self._job.made(node)
        if name in NORM_BACKWARD:
            width = self._norm_width(node)
            if self._job.op[child] == CHUNKS:  # of its weight and its bias
                return 2 * width
            return width if self._job.op[child] in SAME else 0
        if name == "embedding_dense_backward":
            return self._embedding(node)
        if name in SAME or name in WHOLES or name == CHUNKS:
            return self._job.flops[node]
        reduced = self._job.collective[node] == "ALL_REDUCE"
        return self._job.sent[node] // self._job.element[node] if reduced else 0

    def _embedding(self, node: int) -> int:
        """Return the elements of the table that a gradient is of.

        It is charged for the larger one of table and gradient, and reads places of 8 bytes.
        """
        size, left = self._job.flops[node], self._job.elements(node) - self._job.flops[node]
        taken = max(
            (self._job.size_of(self._job.result(p)) for p in self._job.parents[node]), default=0
        )
        if taken != size:
            return size
        for width, _ in self._job.widths.most_common():
            places = 8 // self._job.element[node] * (size // width)
            if size % width == 0 and left > places and (left - places) % width == 0:
                return left - places
        return 0

    def _norm_width(self, node: int) -> int:
        """Return the elements of a norm's weight, 0 if unknown."""
        drawn = {
            self._job.flops[child]
            for child in self._job.children[node]
            if self._job.op[child] in SAME and self._job.flops[child] * 4 <= self._job.flops[node]
        }
        forward = [p for p in self._job.parents[node] if self._job.op[p] in NORMS]
        for parent in forward:
            widths = list(self._widths_of_norm(parent))
            for known in (drawn, self._job.widths):
                for width in widths:
                    if width in known:
                        return width
        return min(drawn) if len(drawn) == 1 else 0

    def _widths_of_norm(self, node: int) -> Iterator[int]:
        size = self._job.flops[node]
        further = self._job.elements(node) - 2 * size
        yield from roots(2, further, 2 * size)
        yield from roots(1, further, 2 * size)

    def _total(self, node: int) -> int:
        """Return the elements of all gradients that go into a node, 0 if one is unknown."""
        sizes = [self._gradient(parent, node) for parent in self.taken(node)]
        return sum(sizes) if all(sizes) else 0

    def taken(self, node: int) -> list[int]:
        """Return the nodes whose gradients a bucket or optimizer kernel takes."""
        return [
            parent
            for parent in self._job.parents[node]
            if not self._job.order_only(parent, node) and self._job.op[parent] not in UPDATES
        ]

    @cached_property
    def _flat(self) -> frozenset[int]:
        found: set[int] = set()
        for node in self._job.order:
            copied = self._job.op[node] in ("copy_", "div_")
            seen = copied and not found.isdisjoint(self._job.parents[node])
            if seen or self._job.communicates(node) or self._job.op[node] == "cat":
                found.add(node)
        return frozenset(found)

    def _shared_parts(self) -> None:
        for node in self._job.order:
            if node not in self._flat:
                continue
            kernels: dict[str, list[int]] = defaultdict(list)
            for child in self._job.children[node]:
                if self._job.op[child] in ("lerp_", "addcmul_"):
                    kernels[self._job.op[child]].append(child)
            one, other = kernels["lerp_"], kernels["addcmul_"]
            if len(one) == len(other):
                for first, second in zip(one, other, strict=True):
                    self._job.write_work(second, self._job.flops[first])

    def _empty_bucket(self, node: int) -> None:
        parents = [p for p in self._job.parents[node] if not self._job.order_only(p, node)]
        into = [self._gradient(parent, node) for parent in parents]
        out = [
            c
            for c in self._job.children[node]
            if self._job.op[c] == "copy_" and c in self._job.gradients
        ]
        if len(out) == 1:
            into = [sum(into)]
        if all(into) and len(out) == len(into):
            ranked = sorted(out, key=lambda n: (self._job.drawn[0][n], n))
            for child, size in zip(ranked, sorted(into), strict=True):
                self._job.write_work(child, size)

    def _leading_work(self) -> None:
        for node in self._job.order:
            children = self._job.children[node]
            if (
                self._job.op[node] not in ("mul_", "detach_")
                or not children
                or self._job.parents[node]
            ):
                continue
            stepped = [c for c in children if c in self._job.gradients and self._job.op[c] in SAME]
            if stepped and len(stepped) == len(children) and self._job.flops[node] > 1:
                self._job.write_work(node, self._job.flops[stepped[0]])

    def _shards(self) -> None:
        scattered = [
            self._job.sent[node] // self._job.element[node]
            for node, kind in enumerate(self._job.collective)
            if kind == "REDUCE_SCATTER"
        ]
        for gather in self._job.order:
            copies = [p for p in self._job.parents[gather] if self._job.op[p] == COPY_IN]
            if self._job.collective[gather] != "ALL_GATHER" or not copies:
                continue
            members = self._members(gather)
            drawn = self._job.flops[copies[0]]
            size = min(scattered, key=lambda s: (far(s, drawn), s), default=0)
            if not size or far(size, drawn) > 1 or size % members:
                size = -(-drawn // members) * members
            self._job.write_sent(gather, size // members)
            splits = [c for c in self._job.children[gather] if self._job.op[c] == SPLIT]
            for node in (*copies, *splits):
                self._job.write_work(node, size)

    def _copy_shard(self, scatter: int) -> None:
        for child in self._job.children[scatter]:
            if self._job.op[child] == "copy_":
                sent = self._job.sent[scatter] // self._job.element[scatter]
                self._job.write_work(child, sent // self._members(scatter))

    def _members(self, node: int) -> int:
        asked = str(self._job.graph.conditions.get("world_size"))
        ranks = int(asked) if asked.isdecimal() else 1
        group = self._job.graph.categories["group"][node]
        shape = re.search(r"[0-9]+$", group)
        if shape:
            return max(1, min(int(shape[0]), ranks))
        stages = len(set(self._job.stage) - {ALL, NONE})
        return ranks if group == ALL_RANKS else max(1, ranks // max(stages, 1))

    def _optimizers(self) -> None:
        stages: dict[str, list[int]] = defaultdict(list)
        for node, name in enumerate(self._job.op):
            if name.startswith(FOREACH) or name in FUSED:
                stages[self._job.stage[node]].append(node)
        for stage, nodes in stages.items():
            chain = [node for node in nodes if self._job.op[node] in (*_CHAIN, *FUSED)] or nodes
            most = most_common(self._per_parameter(node) for node in chain)
            kernels = [
                node
                for node in nodes
                if self._per_parameter(node) * _COUNTERS > most
                or any(self._job.op[child] in _CHAIN for child in self._job.children[node])
            ]
            parameters = self._parameters(stage, kernels) if kernels else 0
            for node in kernels:
                self._write_parameters(node, parameters)

    def _per_parameter(self, node: int) -> int:
        return self._job.flops[node] // FUSED.get(self._job.op[node], 1)

    def _parameters(self, stage: str, kernels: Sequence[int]) -> int:
        taking = [n for n in kernels if self._job.op[n] in (*FUSED, "_foreach_lerp_")]
        known = [self._total(node) for node in taking]
        reduced = [
            self._job.sent[n] // self._job.element[n]
            for n in self._job.gradients
            if self._job.collective[n] == "ALL_REDUCE" and self._job.stage[n] == stage
        ]
        drawn = most_common(self._per_parameter(node) for node in kernels)
        if reduced:
            passes = max(1, round(sum(reduced) / max(drawn, 1)))
            return sum(reduced) // passes if sum(reduced) % passes == 0 else sum(reduced)
        told = [total for total in known if total]
        exact = [total for total, node in zip(known, taking, strict=True) if self._tells(node)]
        near = exact or [total for total in told if far(total, drawn) < _NEAR]
        return most_common(near) if near else drawn

    def _tells(self, node: int) -> bool:
        names = [self._job.op[parent] for parent in self.taken(node)]
        whole = (*SAME, *REDUCTIONS, *WHOLES)
        return bool(names) and not any(
            name in ("_foreach_mul_", "mul_") or name not in whole or name in PAIRS
            for name in names
        )

    def _write_parameters(self, node: int, parameters: int) -> None:
        job, before = self._job, self._job.flops[node]
        if not before or self._per_parameter(node) == parameters:
            return
        times, left = divmod(job.elements(node), before)
        job.flops[node] = parameters * FUSED.get(job.op[node], 1)
        counters = left if left * _COUNTERS < before else 0
        job.moved[node] = (max(times, 1) * job.flops[node] + counters) * job.element[node]
