"""Shapes of the matrix products of a sampled job.

A product keeps the shape (M, K, N) that it was drawn with where that fits its inputs and result.
Else it gets the nearest one of those that do fit, of sizes that other products of the job use: its
table of sizes. A batched product keeps or gets sizes B M K, B K N and B M N.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache

import numpy as np

from layerdag.sampling.job_sizes import MATRICES, JobSizes, far
from layerdag.validation.operators import PARAMETRIC, PARTS
from layerdag.validation.product_shapes import Shape

_UNLISTED = 0.3
"""What a size that no other product of the job has costs a shape, in logarithms."""
_LARGEST = 1 << 40
"""Of numbers whose divisors are looked for; of larger ones those in the table of sizes count."""


class ProductShapes:
    """The shapes of a job's products.

    Args:
        job: Its sizes.

    Attributes:
        shape: (M, K, N) by node.
    """

    def __init__(self, job: JobSizes) -> None:
        self._job = job
        self.shape: dict[int, Shape] = {}
        self._forward: set[tuple[int, ...]] = set()

    def solve(self) -> None:
        """Give every product a shape."""
        for node in self._job.order:
            if self._job.op[node] in MATRICES:
                shape = self._kept_shape(node)
                if shape is not None:
                    self._use(node, shape)
        for node in self._job.order:
            if self._job.op[node] in MATRICES:
                self._solve(node)
            elif self._job.op[node] == "bmm":
                self._solve_batched(node)

    def _use(self, node: int, shape: Shape) -> None:
        """Note the sizes of a shape in the job's table."""
        rows, inner, columns = shape
        if node not in self._job.backward:
            self._forward.add(tuple(sorted(shape)))
        if not self._is_weight_gradient(node):
            self._job.rows[rows] += 1
            self._job.widths[inner] += 1
            self._job.widths[columns] += 1
        else:
            self._job.rows[inner] += 1
            self._job.widths[rows] += 1
            self._job.widths[columns] += 1

    def _is_weight_gradient(self, node: int) -> bool:
        return node in self._job.gradients or len(self.inputs(node)) > 1

    def inputs(self, node: int) -> list[tuple[int, int]]:
        """Return the inputs of a product whose size is known, and their sizes."""
        return [
            (parent, size)
            for parent in self._job.parents[node]
            if self._job.is_activation(parent)
            and (size := self._job.size_of(self._job.result(parent)))
        ]

    def _kept_shape(self, node: int) -> Shape | None:
        """Return the drawn shape that fits all inputs and the result, None if there is none."""
        inputs, result = self.inputs(node), self._job.size_of(self._job.result(node))
        taken = {self._job.drawn_work(child) for child in self._job.children[node]} | {result}
        ranked = []
        for shape in self._job.drawn_shapes(node):
            m, k, n = shape
            if not self._takes(node, shape):
                continue
            fixed = result and node not in self._job.gradients
            if fixed and not self._fits(node, m * n, result):
                continue
            found = sorted(size for _, size in inputs)
            whole = (m * k in found) if len(found) < 2 else found == sorted((m * k, k * n))
            rows = self._job.rows[k if self._is_weight_gradient(node) else m]
            ranked.append((whole + 1.5 * (m * n in taken) + (rows > 0), rows, whole, shape))
        return max(ranked)[3] if ranked else None

    def _takes(self, node: int, shape: Shape) -> bool:
        """Return whether all inputs of a product may be matrices of a shape."""
        m, k, n = shape
        adds = self._job.op[node] == "addmm"
        places = (m * k, k * n, m * n) if adds else (m * k, k * n)
        return all(
            (adds and size == n) or any(self._fits(parent, size, wanted) for wanted in places)
            for parent, size in self.inputs(node)
        )

    def _fits(self, parent: int, has: int, wanted: int) -> bool:
        if has == wanted:
            return True
        seen = has in self._part_sizes[self._job.stage[parent]]
        in_parts = seen or not self._has_gradient[parent] or not self._trains
        return in_parts and has > wanted

    @cached_property
    def _part_sizes(self) -> Mapping[str, frozenset[int]]:
        found: dict[str, set[int]] = defaultdict(set)
        for node, name in enumerate(self._job.op):
            if name in PARTS and node not in self._job.gradients:
                size = self._job.size_of(self._job.work(node)) or self._job.flops[node]
                found[self._job.stage[node]].add(size)
        return defaultdict(frozenset, {stage: frozenset(sizes) for stage, sizes in found.items()})

    @cached_property
    def _has_gradient(self) -> list[bool]:
        found = [name in PARAMETRIC for name in self._job.op]
        for node in self._job.order:
            found[node] = found[node] or any(found[p] for p in self._job.parents[node])
        return [one and is_float for one, is_float in zip(found, self._job.is_float, strict=True)]

    @cached_property
    def _trains(self) -> bool:
        return any("_backward" in name for name in self._job.op)

    def _solve(self, node: int) -> None:
        """Let a product keep its shape, or give it the best one that fits."""
        shape = self._kept_shape(node)
        if shape is None or not self._mirrors(node, shape):
            found = list(self._candidates(node))
            if shape is not None:  # where the forward pass has none like it, it stays
                found = [one for one in found if self._mirrors(node, one)]
            if found:
                shape = min(found, key=lambda one: (self._price(node, one), one))
                self._write_product(node, shape)
                self._use(node, shape)
        if shape is None:
            return
        self.shape[node] = shape
        leader = self._job.find(self._job.result(node))
        if node in self._job.gradients or leader not in self._job.value:
            self._job.value[leader] = shape[0] * shape[2]

    def _mirrors(self, node: int, shape: Shape) -> bool:
        """Return whether a product of the backward pass has the sizes of one of the forward pass.

        Each product has two in the backward pass, of the same three sizes.
        """
        mirrored = node in self._job.backward and self._job.op[node] == "mm" and self._forward
        return not mirrored or tuple(sorted(shape)) in self._forward

    def _write_product(self, node: int, shape: Shape) -> None:
        """Write operations and bytes of a shape."""
        m, k, n = shape
        self._job.flops[node] = 2 * m * k * n
        self._job.moved[node] = self._product_elements(node, shape) * self._job.element[node]

    def _product_elements(self, node: int, shape: Shape) -> int:
        m, k, n = shape
        return m * k + k * n + m * n + (n if self._job.op[node] == "addmm" else 0)

    def _price(self, node: int, shape: Shape) -> float:
        """Return how far a shape is from what was drawn, and from the table of sizes."""
        m, k, n = shape
        drawn, elements = max(self._job.drawn[0][node], 1), max(self._job.elements(node), 1)
        price = abs(math.log(2 * m * k * n / drawn))
        price += abs(math.log(self._product_elements(node, shape) / elements)) / 2
        rows, widths = (k, (m, n)) if self._is_weight_gradient(node) else (m, (k, n))
        price += _UNLISTED * (rows not in self._job.rows)
        price += _UNLISTED * sum(width not in self._job.widths for width in widths)
        price += _UNLISTED * (not self._mirrors(node, shape))
        taken = [self._job.drawn_work(child) for child in self._job.children[node]]
        price += _UNLISTED * (node in self._job.gradients and m * n not in taken)
        return price

    def _candidates(self, node: int) -> Iterator[Shape]:
        """Yield shapes that fit the sizes of inputs and result."""
        sizes = [size for _, size in self.inputs(node)]
        result = self._job.size_of(self._job.result(node)) if node not in self._job.gradients else 0
        half = self._job.drawn[0][node] // 2
        if len(sizes) > 2 or not half:
            return
        if len(sizes) == 2:
            one, other = sizes
            for inner in self._divisors(math.gcd(one, other), one * other // half):
                yield one // inner, inner, other // inner
                yield other // inner, inner, one // inner
        elif sizes and result:
            for rows in self._divisors(math.gcd(sizes[0], result), sizes[0] * result // half):
                yield rows, sizes[0] // rows, result // rows
        elif sizes or result:
            yield from self._half_known(node, sizes[0] if sizes else result, bool(sizes))
        elif not self._job.drawn_shapes(node):
            yield from self._listed_shapes()

    def _half_known(self, node: int, known: int, is_input: bool) -> Iterator[Shape]:
        """Yield shapes of which one input or the result is known."""
        drawn = {size for shape in self._job.drawn_shapes(node) for size in shape}
        others = {*self._job.widths, *drawn, max(self._job.drawn[0][node] // 2 // known, 1)}
        for rows in self._divisors(known, 0):
            for other in others:
                if node in self._job.gradients:
                    yield other, rows, known // rows
                elif is_input:
                    yield rows, known // rows, other
                else:
                    yield rows, other, known // rows

    def _listed_shapes(self) -> Iterator[Shape]:
        """Yield shapes of sizes that the job uses, for a product of which nothing else is known."""
        for m, _ in self._job.rows.most_common(6):
            for k, _ in self._job.widths.most_common(12):
                for n, _ in self._job.widths.most_common(12):
                    yield m, k, n

    def _divisors(self, number: int, wanted: int) -> set[int]:
        found = {size for size in (*self._job.rows, *self._job.widths) if number % size == 0}
        every = _divisors_of(number)
        if wanted > 0:
            found.update(sorted(every, key=lambda d: far(d, wanted))[:3])
        elif not found:
            found.update(every)
        return found

    def _solve_batched(self, node: int) -> None:
        """Let a batched product keep its numbers, or give it those of a shape that fits."""
        inputs = self.inputs(node)
        leader = self._job.find(self._job.result(node))
        result = self._job.size_of(self._job.result(node))
        third = self._job.elements(node) - sum(size for _, size in inputs)
        if len(inputs) != 2 or any(s in self._part_sizes[self._job.stage[p]] for p, s in inputs):
            return
        (_, one), (_, other) = inputs
        half = self._job.flops[node] // 2
        good = third > 0 and half > 0 and one * other * third % (half * half) == 0
        if good and result in (0, third):
            self._job.value.setdefault(leader, third)
            return
        sizes = {result} if result else {third, one, other, *self._sizes_of_job}
        drawn = self._job.drawn[0][node]
        found = [
            (far(2 * each, drawn) + far(made, third), each, made)
            for made in sizes
            if made > 0
            for each in _batched(one, other, made)
        ]
        if found:
            _, half, made = min(found)
            self._job.flops[node] = 2 * half
            self._job.moved[node] = (one + other + made) * self._job.element[node]
            self._job.value.setdefault(leader, made)

    @cached_property
    def _sizes_of_job(self) -> frozenset[int]:
        return frozenset(size for size, _ in Counter(self._job.value.values()).most_common(24))


@lru_cache(maxsize=1 << 12)
def _divisors_of(number: int) -> tuple[int, ...]:
    if number > _LARGEST:
        return ()
    small = np.arange(1, math.isqrt(number) + 1)
    low = small[number % small == 0].tolist()
    return tuple(sorted({*low, *(number // one for one in low)}))


def _batched(one: int, other: int, made: int) -> Iterator[int]:
    for batch in _divisors_of(math.gcd(one, other, made)):
        square = one * other * made
        if square % batch:
            continue
        half = math.isqrt(square // batch)
        if half * half * batch == square and not (half % one or half % other or half % made):
            yield half
