"""Rules of whole training steps: what no program of PyTorch breaks, whatever its model.

A job may be sound for every reader of traces, and still be no program: its backward pass is of
another model than its forward pass, its optimizer updates other parameters than those that have
gradients, its matrix products multiply matrices that no shapes have. Each rule here says to which
jobs it applies, looks at *cases* (nodes, pairs, messages), and tells the nodes of those that break
it. Needed are names of ATen operators, data dependencies, FLOPs, bytes and sizes of messages, as
`layerdag.traces.pytorch` and `layerdag capture` count them: two operations for a multiply-add, one
for each element of the largest tensor of every other operator, bytes of all tensors read and
written (``traces/pytorch/operators.py``).

Views are no nodes of traces. So a node may work on a part of what its parent made, or on several
copies of it; where that is possible, a rule asks for divisibility and not for equality.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isqrt

import numpy as np

from layerdag.graph.topology import pointers
from layerdag.traces.analysis import gather_communication, group_names, program_order
from layerdag.traces.chakra.files import START_BYTES
from layerdag.traces.pytorch.operators import scalar_type
from layerdag.traces.trace import (
    DATA,
    CollectiveType,
    NodeType,
    Trace,
    Workload,
    communicates,
    dependency_edges,
)
from layerdag.validation.rules import Finding, Rule, Severity, rule_table

_NO_PROGRAM = "No step of PyTorch does this; look how the trace was made, or sample another one."


def _rule(name: str, what: str) -> Rule:
    return Rule(name, Severity.WARNING, what, _NO_PROGRAM, "Sample again, or keep it knowingly.")


WHOLE_PROGRAM_RULES = rule_table(
    _rule(
        "norm-widths",
        "A norm has another width than the product before it, or than others on its stream.",
    ),
    _rule(
        "product-shapes",
        "A matrix product whose operations and bytes fit no shapes, or not those of its inputs.",
    ),
    _rule(
        "optimizer-gradients",
        "An optimizer kernel works on more or fewer elements than the gradients it takes.",
    ),
    _rule(
        "optimizer-kernels",
        "The kernels of an optimizer step work on different numbers of elements.",
    ),
    _rule(
        "averaged-parameters",
        "Replicas average more or fewer gradients in all than the optimizer has parameters.",
    ),
    _rule(
        "sent-as-made",
        "A collective or a message moves more or fewer elements than the operator before it made.",
    ),
    _rule(
        "messages-return",
        "A pipeline stage gets back other gradient messages than it sent activations.",
    ),
    _rule("stages-update", "A rank has gradients of weights and never updates its parameters."),
    _rule(
        "shards-gathered",
        "A sharded parameter is gathered without its copy in, its split, or its reduce-scatter.",
    ),
    _rule(
        "shard-sizes",
        "Gathered, split or scattered parameters have other sizes than were copied in.",
    ),
    _rule(
        "backward-per-forward",
        "There are more or fewer backward operators of a kind than forward ones.",
    ),
    _rule("backward-after-forward", "A backward operator has no forward operator before it."),
    _rule("backward-order", "The backward pass visits norms or attention in another order."),
    _rule("pair-sizes", "A backward operator works on other sizes than its forward operator."),
    _rule(
        "elementwise-sizes",
        "An element-wise operator works on a number of elements that its input does not have.",
    ),
    _rule("bias-gradients", "The gradient of a bias is used by nothing."),
    _rule("training-updates", "A training step does not update any parameter."),
    _rule("training-loss", "A training step has no loss to start its backward pass from."),
    _rule("product-speed", "A matrix product is faster than its device can be."),
)
"""The rules by id; all of them are warnings."""


@dataclass(frozen=True, eq=False)
class Cases:
    """What a rule looked at.

    Attributes:
        rank_K: Rank of each of K cases.
        row_K: Row of its node in the trace of the rank.
        holds_K: Whether it keeps the rule.
        found: Says what a case has, by its number.
    """

    rank_K: np.ndarray
    row_K: np.ndarray
    holds_K: np.ndarray
    found: Callable[[int], str]


@dataclass(frozen=True)
class Verdict:
    """What one rule says of a job to which it applies.

    Attributes:
        rule: The rule.
        cases: Number of cases that it looked at.
        nodes: (rank, node id) of each case that breaks it.
        found: What the first of these has, "" if there is none.
    """

    rule: Rule
    cases: int
    nodes: tuple[tuple[int, int], ...]
    found: str = ""

    @property
    def holds(self) -> bool:
        """Whether no case breaks the rule."""
        return not self.nodes


_NORMS = ("native_layer_norm", "native_batch_norm", "native_group_norm", "_fused_rms_norm",
    "_native_batch_norm_legit", "cudnn_batch_norm")  # fmt: skip
_ATTENTION = ("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable")  # fmt: skip
_ACTIVATIONS = ("gelu", "silu", "tanh", "sigmoid", "elu", "leaky_relu", "softplus", "hardswish",
    "hardtanh", "hardsigmoid", "mish", "log_sigmoid_forward")  # fmt: skip
_SOFTMAXES = ("_softmax", "_log_softmax")
_PAIRS: Mapping[str, tuple[str, ...]] = {
    **{f"{name}_backward": (name,) for name in (*_NORMS, *_ATTENTION, *_ACTIVATIONS)},
    **{f"{name}_backward_data": (name,) for name in _SOFTMAXES},
    "threshold_backward": ("relu", "relu_", "threshold", "threshold_", "clamp_min"),
    "convolution_backward": ("convolution",),
    "embedding_dense_backward": ("embedding",),
    "_embedding_bag_backward": ("_embedding_bag",),
    "nll_loss_backward": ("nll_loss_forward",),
    "nll_loss2d_backward": ("nll_loss2d_forward",),
    "mse_loss_backward": ("mse_loss",),
    "native_dropout_backward": ("native_dropout",),
    "max_pool2d_with_indices_backward": ("max_pool2d_with_indices",),
    "avg_pool2d_backward": ("avg_pool2d",),
    "_adaptive_avg_pool2d_backward": ("_adaptive_avg_pool2d",),
}
"""Backward operators, and forward operators of which each of them is the backward one."""

# Operators with one result, of as many elements as they are charged operations for.
_ARITHMETIC = ("add", "sub", "mul", "div", "add_", "sub_", "mul_", "div_", "neg", "pow", "sqrt", "rsqrt",
    "exp", "cos", "sin", "reciprocal", "masked_fill", "where", "clamp", "abs", "log", "square",
    "relu", "relu_", *_ACTIVATIONS)  # fmt: skip
_ELEMENTWISE_BACKWARD = ("threshold_backward", *(f"{name}_backward" for name in _ACTIVATIONS))
_COPIES = ("clone", "copy_", "_to_copy", "cat", "stack", "slice_backward", "select_backward")
_WHOLE = (*_ARITHMETIC, *_ELEMENTWISE_BACKWARD, *_COPIES, *_SOFTMAXES,
    *(f"{name}_backward_data" for name in _SOFTMAXES))  # fmt: skip
_WITH_NORMS = (*_WHOLE, *_NORMS, *(f"{name}_backward" for name in _NORMS))
_REDUCTIONS = ("sum", "mean")
_PRODUCTS = ("mm", "addmm", "bmm")
# One result of exactly the shape of the only tensor that is no parameter.
_SHAPE_KEEPING = ("relu", "relu_", *_ACTIVATIONS, *_SOFTMAXES, *_NORMS, "native_dropout")
# Kernels that step every parameter once.
_STEPPING = ("lerp_", "addcmul_", "addcdiv_", "_foreach_lerp_", "_foreach_addcmul_",
    "_foreach_addcdiv_", "_foreach_sqrt", "_foreach_div_")  # fmt: skip
_FUSED: Mapping[str, int] = {"_fused_adamw_": 4, "_fused_adam_": 4, "_fused_adagrad_": 3}
"""Tensors that a fused kernel works on for each parameter."""
_UPDATES = (*_STEPPING, *_FUSED, "_fused_sgd_", "_foreach_add_", "_foreach_sub_", "_foreach_mul_")
_IN_PLACE = ("add_", "sub_", "copy_", "mul_")
_PARTS = ("select_backward", "slice_backward", "cat", "stack", "index", "index_select", "unfold_backward",
    "as_strided_scatter", "constant_pad_nd", "_index_put_impl_", "index_put")  # fmt: skip
"""What views of parts leave in a trace: their backward, or what joins several of them."""
_COPY_IN, _SPLIT, _CHUNKS = "all_gather_copy_in", "split_with_sizes_copy", "chunk_cat"
# No device does more in a second: 8 processors of 128 cores with two 512-bit units each at 4 GHz,
# and one accelerator with 4-bit matrix units (20 PFLOP/s, NVIDIA Blackwell Ultra).
_FASTEST = {"cpu": 2.6e14, "": 4e16}


def _operator(name: str) -> str:
    """Return the name without namespace and number of the call."""
    name = name.partition("(")[0]
    return name.rpartition("::")[2]


class Operators:
    """The nodes of one trace as arrays.

    Args:
        trace: A trace whose dependencies are sound.
        rank: Its first rank.
    """

    def __init__(self, trace: Trace, rank: int, groups: Mapping[str, tuple[int, ...]], ranks: int) -> None:
        self.trace, self.rank = trace, rank
        names, _ = group_names(trace)
        sizes = {name: len(members) for name, members in groups.items()}
        self.members_N = np.array([sizes.get(name, ranks) for name in names], dtype=np.int64)
        words, self._word_N = np.unique(trace.name_N, return_inverse=True)
        names = ["" if word < 0 else trace.strings[word] for word in words.tolist()]
        self._is_aten = np.array([name.startswith("aten::") for name in names], dtype=bool)
        self._operator = np.array([_operator(name) for name in names], dtype=object)
        self.flops_N, flops_known_N = trace.integers("num_ops")
        self.bytes_N, bytes_known_N = trace.integers("tensor_size")
        self.sent_N, self.sends_N = trace.integers("comm_size")
        self.known_N = flops_known_N & bytes_known_N & (trace.type_N == NodeType.COMP)
        self.known_N &= self.flops_N > 0
        edges, kind_E = dependency_edges(trace)
        self.source_E, self.target_E = edges[:, kind_E == DATA]
        self.children_N = np.bincount(edges[0], minlength=trace.num_nodes)

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.trace.num_nodes

    @cached_property
    def fingerprint(self) -> bytes:
        """A hash of all that the rules look at, but times."""
        found = hashlib.blake2b(digest_size=16)
        for column in (self.flops_N, self.bytes_N, self.sent_N, self.source_E, self.target_E, self.members_N):
            found.update(np.ascontiguousarray(column).tobytes())
        found.update("\0".join(self.trace.names()).encode())
        return found.digest()

    @property
    def computes_loss(self) -> bool:
        """Whether some operator is a loss."""
        return any("loss" in name or "cross_entropy" in name for name in map(str, self._operator))

    @cached_property
    def is_step(self) -> bool:
        """Whether most computations are operators of PyTorch whose costs are known."""
        computes_N = self.trace.type_N == NodeType.COMP
        told_N = self._is_aten[self._word_N] & self.known_N
        return bool(told_N.sum() * 2 > computes_N.sum())

    @cached_property
    def order(self) -> np.ndarray:
        """Rows in the order in which the rank issues them."""
        return program_order(self.trace)

    @cached_property
    def place_N(self) -> np.ndarray:
        """Place of each row in that order."""
        place_N = np.empty(self.num_nodes, dtype=np.int64)
        place_N[self.order] = np.arange(self.num_nodes)
        return place_N

    @cached_property
    def element_N(self) -> np.ndarray:
        """Bytes of an element of each node, 0 where its type is unknown."""
        words, index_N = np.unique(np.array(self.trace.dtypes(), dtype=object), return_inverse=True)
        found = [scalar_type(str(word)) for word in words.tolist()]
        size = np.array([0 if one is None else one.bits // 8 for one in found], dtype=np.int64)
        return size[index_N]

    @cached_property
    def made_N(self) -> np.ndarray:
        """Elements of the one result of each node, -1 where they are not known."""
        made_N = np.where(self.among(_WITH_NORMS) & self.known_N, self.flops_N, -1)
        size_N = np.maximum(self.element_N, 1)
        left_N = self.bytes_N // size_N - self.flops_N
        reduced_N = self.among(_REDUCTIONS) & self.known_N & (self.element_N > 0)
        reduced_N &= (left_N > 0) & (left_N <= self.flops_N)
        return np.where(reduced_N, left_N, made_N)

    @cached_property
    def in_place_N(self) -> np.ndarray:
        """Whether each node writes into its first input, as its name says."""
        return np.array([str(name).endswith("_") for name in self._operator])[self._word_N]

    @cached_property
    def backward_N(self) -> np.ndarray:
        """Whether each node is an operator of a backward pass by its name."""
        has = np.array(["_backward" in str(name) for name in self._operator], dtype=bool)
        return has[self._word_N]

    @cached_property
    def products(self) -> "Products":
        """Its matrix products and their shapes."""
        return products_of(self)

    @cached_property
    def takes_parts(self) -> bool:
        """Whether an operator may see a part of a result: autograd names that in the backward."""
        return not self.trains or bool(self.among(_PARTS).any())

    @cached_property
    def updates_N(self) -> np.ndarray:
        """Whether each node steps parameters: an optimizer's kernel, or an addition in place that
        nothing waits for.
        """
        last_N = self.among(("add_", "sub_")) & (self.children_N == 0)
        return self.among(_UPDATES) | last_N

    @property
    def trains(self) -> bool:
        """Whether the rank has a backward pass."""
        return bool(self.backward_N.any())

    def among(self, names: Iterable[str]) -> np.ndarray:
        """Return which nodes are one of these operators."""
        wanted = frozenset(names)
        has = np.array([name in wanted for name in self._operator], dtype=bool)
        return has[self._word_N]

    @cached_property
    def forward_N(self) -> np.ndarray:
        """Whether each node is of the forward pass: what a loss is made of or, on a rank without a
        loss, what does not follow from a backward operator.

        What the backward pass computes anew, or for its own ends, is neither.
        """
        if self.roots_N.any():
            return self._reached(np.flatnonzero(self.roots_N), self.target_E, self.source_E)
        return ~self._reached(np.flatnonzero(self.backward_N), self.source_E, self.target_E)

    def _reached(self, starts: np.ndarray, from_E: np.ndarray, to_E: np.ndarray) -> np.ndarray:
        """Return which nodes can be reached along edges, the starts included."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import breadth_first_order

        size = self.num_nodes + 1
        ends = (
            np.concatenate([from_E, np.full(starts.size, size - 1)]),
            np.concatenate([to_E, starts]),
        )
        graph = coo_array((np.ones(ends[0].size, dtype=np.int8), ends), shape=(size, size)).tocsr()
        found = np.zeros(size, dtype=bool)
        found[breadth_first_order(graph, size - 1, return_predecessors=False)] = True
        return found[:-1]

    @cached_property
    def roots_N(self) -> np.ndarray:
        """Whether each node is the gradient of a loss with respect to itself."""
        return self.among(("ones_like",)) & (self.flops_N == 1)

    def is_collective(self, kind: CollectiveType) -> np.ndarray:
        """Return which nodes are collectives of a type."""
        value_N, stated_N = self.trace.integers("comm_type")
        return (self.trace.type_N == NodeType.COMM_COLL) & stated_N & (value_N == kind)

    @cached_property
    def num_parameters(self) -> int:
        """Parameters that the optimizer of the rank steps, 0 where it cannot be told."""
        for name, tensors in _FUSED.items():
            if self.among((name,)).any():
                return int(self.flops_N[self.among((name,))].sum()) // tensors
        for name in ("_foreach_addcdiv_", "_foreach_lerp_", "addcdiv_"):
            if self.among((name,)).any():
                return int(self.flops_N[self.among((name,)) & self.known_N].sum())
        added_N = self.among(("_foreach_add_",)) & self.known_N
        if added_N.any():
            return int(self.flops_N[added_N].max())
        reduces_N = self.is_collective(CollectiveType.ALL_REDUCE)
        last = self.place_N[reduces_N].max(initial=-1)
        added_N = self.among(("add_",)) & self.known_N & (self.children_N == 0)
        return int(self.flops_N[added_N & (self.place_N > last)].sum())

    def name(self, row: int) -> str:
        """Return the operator of a row."""
        return str(self._operator[self._word_N[row]])

    def kind_N(self, names: Sequence[str]) -> np.ndarray:
        """Return the place of each node's operator in ``names``, -1 where it is none of them."""
        place = {name: at for at, name in enumerate(names)}
        return np.array([place.get(str(name), -1) for name in self._operator])[self._word_N]

    def cases(
        self, rows: np.ndarray, holds_K: np.ndarray, found: Callable[[int], str]
    ) -> Cases | None:
        """Return cases of this rank; None if there are none."""
        if not len(rows):
            return None
        return Cases(np.full(len(rows), self.rank), rows, holds_K, found)


# --- sizes of products ---------------------------------------------------------------------------


Shape = tuple[int, int, int]
"""Rows, inner size and columns of a matrix product: (M, K) times (K, N)."""


def shapes_of(name: str, operations: int, elements: int) -> set[Shape]:
    """Return the shapes of ``mm`` or ``addmm`` with so many operations and elements in all.

    ``addmm`` adds a vector of N elements or a matrix of (M, N).
    """
    if operations <= 0 or operations % 2:
        return set()
    product = operations // 2
    least = np.arange(1, _cube_root(product) + 1)
    found: set[Shape] = set()
    # One of the three sizes is at most the cube root of their product.
    for one in least[product % least == 0].tolist():
        found.update(_shapes_with(name, one, product // one, elements))
    return found


def _shapes_with(name: str, one: int, rest: int, elements: int) -> Iterator[Shape]:
    """Yield the shapes that have a size ``one``, where ``rest`` is the product of the others."""
    left = elements - rest
    if name == "mm":
        for x in _roots(one, left, one * rest):
            yield one, x, rest // x
            yield x, one, rest // x
            yield x, rest // x, one
        return
    for x in _roots(one, left - one, one * rest):
        yield x, rest // x, one
        yield rest // x, x, one
    for x in _roots(one + 1, left, one * rest):
        yield one, rest // x, x
        yield rest // x, one, x
    for x in _roots(2 * one, left, one * rest):
        yield x, rest // x, one
        yield one, rest // x, x
    for x in _roots(one, left - rest, one * rest):
        yield x, one, rest // x
        yield rest // x, one, x


def _roots(square: int, linear: int, constant: int) -> Iterator[int]:
    """Yield whole x > 0 with ``square x^2 - linear x + constant = 0``; they divide the constant."""
    below = linear * linear - 4 * square * constant
    if linear <= 0 or below < 0:
        return
    root = isqrt(below)
    if root * root != below:
        return
    for twice in {linear - root, linear + root}:
        if twice > 0 and twice % (2 * square) == 0:
            yield twice // (2 * square)


def _cube_root(number: int) -> int:
    """Return the largest whole number whose cube is at most ``number``."""
    root = round(number ** (1 / 3))
    return root if root**3 <= number else root - 1


@dataclass(frozen=True, eq=False)
class Products:
    """The matrix products of a rank whose costs are known, and their possible shapes.

    Attributes:
        row_P: Row of each of P products.
        first_P1: Possible shapes of product p are rows ``first_P1[p]:first_P1[p + 1]``.
        shape_S3: (M, K, N) of each possible shape.
    """

    row_P: np.ndarray
    first_P1: np.ndarray
    shape_S3: np.ndarray


def products_of(ops: Operators) -> Products:
    """Return the products with two matrices; those that a trace had to enlarge are left out."""
    size_N = np.maximum(ops.element_N, 1)
    whole_N = ops.known_N & (ops.element_N > 0) & (ops.bytes_N % size_N == 0)
    # What opens a rank of a sampled job is made large enough to take some time.
    enlarged_N = (ops.bytes_N == START_BYTES) & (np.bincount(ops.target_E, minlength=ops.num_nodes) == 0)
    rows = np.flatnonzero(ops.among(("mm", "addmm")) & whole_N & ~enlarged_N)
    costs_P3 = np.stack(
        [ops.kind_N(("mm", "addmm"))[rows], ops.flops_N[rows], (ops.bytes_N // size_N)[rows]], axis=1
    )
    costs_U3, unique_P = np.unique(costs_P3, axis=0, return_inverse=True)
    shapes = [
        sorted(shapes_of(("mm", "addmm")[kind], operations, elements))
        for kind, operations, elements in costs_U3.tolist()
    ]
    each = [shapes[at] for at in unique_P.ravel().tolist()]
    flat = [shape for found in each for shape in found]
    return Products(
        rows,
        pointers(np.array([len(found) for found in each], dtype=np.int64)),
        np.array(flat, dtype=np.int64).reshape(-1, 3),
    )


def _product_shapes(ops: Operators) -> Cases | None:
    """Every product has shapes, of which one fits the sizes of all that goes into it."""
    products = ops.products
    place_N = np.full(ops.num_nodes, -1)
    place_N[products.row_P] = np.arange(products.row_P.size)
    made_E = ops.made_N[ops.source_E]
    used = np.flatnonzero((place_N[ops.target_E] >= 0) & (made_E > 0))
    into_E, made_E = place_N[ops.target_E[used]], made_E[used]
    count_P = np.diff(products.first_P1)
    # Each input beside each possible shape of its product.
    pair = np.repeat(np.arange(used.size), count_P[into_E])
    shape = products.first_P1[into_E[pair]] + _counted(count_P[into_E])
    height, inner, columns = products.shape_S3[shape].T
    size = made_E[pair]
    adds = ops.kind_N(("mm", "addmm"))[products.row_P][into_E[pair]] == 1
    parts = ops.takes_parts
    fits = _is(size, height * inner, parts) | _is(size, inner * columns, parts)
    fits |= adds & ((size == columns) | _is(size, height * columns, parts))
    misfits_S = np.bincount(shape[~fits], minlength=len(products.shape_S3))
    holds_P = np.zeros(products.row_P.size, dtype=bool)
    owner_S = np.repeat(np.arange(products.row_P.size), count_P)
    holds_P[owner_S[misfits_S == 0]] = True

    def found(case: int) -> str:
        row = [*products.row_P, *rows][case]
        has = f"{ops.name(row)} has {ops.flops_N[row]:,} operations and {ops.bytes_N[row]:,} bytes"
        shapeless = case < count_P.size and not count_P[case]
        return f"{has}, which no shapes have" if shapeless else f"{has}, which its inputs do not fit"

    rows, fits = _batched_products(ops)
    return ops.cases(
        np.concatenate([products.row_P, rows]), np.concatenate([holds_P, fits]), found
    )


def _batched_products(ops: Operators) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of batched products whose two inputs are known, and whether sizes fit these.

    With (B, M, K) and (B, K, N) the three sizes BMK, BKN and BMN multiply to B (BMKN)^2.
    """
    size_N = np.maximum(ops.element_N, 1)
    batched_N = ops.among(("bmm",)) & ops.known_N & (ops.element_N > 0) & (ops.flops_N % 2 == 0)
    made_E = ops.made_N[ops.source_E]
    into_E = batched_N[ops.target_E] & (made_E > 0)
    size = ops.num_nodes
    inputs_N = np.bincount(ops.target_E[into_E], minlength=size)
    every_N = np.bincount(ops.target_E, minlength=size)
    rows = np.flatnonzero(batched_N & (inputs_N == 2) & (every_N == 2))
    holds = []
    first = np.searchsorted(ops.target_E, rows)
    for row, at in zip(rows.tolist(), first.tolist(), strict=True):
        one, other = made_E[at : at + 2].tolist()
        third = int(ops.bytes_N[row] // size_N[row]) - one - other
        half = int(ops.flops_N[row]) // 2
        holds.append(third > 0 and one * other * third % (half * half) == 0)
    return rows, np.array(holds, dtype=bool)


def _counted(count: np.ndarray) -> np.ndarray:
    """Return 0, 1, ... up to each count, end to end."""
    ends = np.cumsum(count)
    return np.arange(int(ends[-1]) if ends.size else 0) - np.repeat(ends - count, count)


def _is(size: np.ndarray, wanted: np.ndarray, parts: bool) -> np.ndarray:
    """Return whether sizes are the wanted ones or, where ``parts`` are taken, multiples of them."""
    if not parts:
        return size == wanted
    return (size >= wanted) & (size % np.maximum(wanted, 1) == 0)


# --- forward and backward ------------------------------------------------------------------------


def _kinds(ops: Operators) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield (backward operator, rows of its forward operators, its rows), in program order."""
    place = {name: at for at, (_, names) in enumerate(_PAIRS.items()) for name in names}
    forward_N = np.array([place.get(str(name), -1) for name in ops._operator])[ops._word_N]
    forward_N = np.where(ops.forward_N, forward_N, -1)
    backward_N = ops.kind_N(tuple(_PAIRS))
    for at, backward in enumerate(_PAIRS):
        forward_K = ops.order[forward_N[ops.order] == at]
        backward_K = ops.order[backward_N[ops.order] == at]
        if forward_K.size or backward_K.size:
            yield backward, forward_K, backward_K


def _backward_per_forward(ops: Operators) -> Cases | None:
    """In a training step every kind has as many backward operators as forward ones."""
    if not ops.trains:
        return None
    rows, holds, told = [], [], []
    for backward, forward_K, backward_K in _kinds(ops):
        rows.append((forward_K if forward_K.size > backward_K.size else backward_K)[-1])
        holds.append(forward_K.size == backward_K.size)
        told.append(f"there are {backward_K.size} {backward} to {forward_K.size} forward")
    return ops.cases(np.array(rows, dtype=np.int64), np.array(holds, dtype=bool), told.__getitem__)


def _backward_after_forward(ops: Operators) -> Cases | None:
    """Up to each backward operator there are at least as many forward ones of its kind."""
    rows, holds = [], []
    for _, forward_K, backward_K in _kinds(ops):
        before_K = np.searchsorted(np.sort(ops.place_N[forward_K]), ops.place_N[backward_K])
        rows.append(backward_K)
        holds.append(before_K > np.arange(backward_K.size))
    if not rows:
        return None
    row_K = np.concatenate(rows)
    return ops.cases(
        row_K,
        np.concatenate(holds),
        lambda case: f"{ops.name(row_K[case])} has no forward operator before it that is its own",
    )


def _backward_order(ops: Operators) -> Cases | None:
    """Norms and attention come back in reverse order, within each pass of a micro-batch."""
    kinds = (*_NORMS, *_ATTENTION)
    forward_N, backward_N = ops.kind_N(kinds), ops.kind_N([f"{name}_backward" for name in kinds])
    forward_N = np.where(ops.forward_N, forward_N, -1)
    forward_K = ops.order[forward_N[ops.order] >= 0]
    backward_K = ops.order[backward_N[ops.order] >= 0]
    count = forward_K.size
    if count < 2 or count != backward_K.size:
        return None
    went_K2 = np.stack([forward_N[forward_K], _sizes(ops, forward_K)], axis=1)
    came_K2 = np.stack([backward_N[backward_K], _sizes(ops, backward_K)], axis=1)
    best_K = np.zeros(count, dtype=bool)
    for passes in np.flatnonzero(count % np.arange(1, count // 2 + 1) == 0) + 1:
        reverse_K2 = went_K2.reshape(passes, -1, 2)[:, ::-1].reshape(-1, 2)
        same_K = (reverse_K2 == came_K2).all(axis=1)
        if same_K.sum() > best_K.sum():
            best_K = same_K
    return ops.cases(
        backward_K, best_K, lambda case: f"{ops.name(backward_K[case])} is out of order"
    )


def _sizes(ops: Operators, rows: np.ndarray) -> np.ndarray:
    """Return the elements of norms; those of attention are not charged by elements."""
    norms = (*_NORMS, *(f"{name}_backward" for name in _NORMS))
    return np.where(ops.among(norms)[rows], ops.flops_N[rows], 0)


_UNEQUAL = ("convolution_backward", "embedding_dense_backward", "_embedding_bag_backward",
    *(f"{name}_backward" for name in _ATTENTION))  # fmt: skip
"""Backward operators whose operations are not those of the forward operator."""


def _pair_sizes(ops: Operators) -> Cases | None:
    """Forward and backward operators of a kind work on the same sizes."""
    rows, holds = [], []
    for backward, forward_K, backward_K in _kinds(ops):
        if backward in _UNEQUAL or forward_K.size != backward_K.size or not forward_K.size:
            continue
        forward_K = forward_K[np.argsort(ops.flops_N[forward_K], kind="stable")]
        backward_K = backward_K[np.argsort(ops.flops_N[backward_K], kind="stable")]
        rows.append(backward_K)
        holds.append(ops.flops_N[forward_K] == ops.flops_N[backward_K])
    if not rows:
        return None
    row_K = np.concatenate(rows)
    return ops.cases(
        row_K,
        np.concatenate(holds),
        lambda case: f"{ops.name(row_K[case])} works on {ops.flops_N[row_K[case]]:,} elements, and "
        "no forward operator that is left does",
    )


# --- sizes along edges ---------------------------------------------------------------------------


def _elementwise_sizes(ops: Operators) -> Cases | None:
    """Along edges into element-wise operators sizes are equal, or one is repeated or cut."""
    # Parameters and statistics go into norms, too.
    keeps_N = ops.among(set(_SHAPE_KEEPING) - set(_NORMS)) & ops.known_N
    joins_N = ops.among((*_NORMS, *_ARITHMETIC, *_ELEMENTWISE_BACKWARD)) & ops.known_N
    made_E, wanted_E = ops.made_N[ops.source_E], ops.flops_N[ops.target_E]
    looked_E = (made_E > 0) & (keeps_N | joins_N)[ops.target_E]
    # The gradients of a norm are those of its input and of its parameters.
    several_N = ops.among([f"{name}_backward" for name in _NORMS])
    looked_E &= ~several_N[ops.source_E] | ops.among(_ELEMENTWISE_BACKWARD)[ops.target_E]
    # A flat buffer is seen in parts by what works in place on them.
    flat_E = ops.among(("copy_", "cat"))[ops.source_E] & ops.in_place_N[ops.target_E]
    looked = np.flatnonzero(looked_E & ~flat_E)
    made_E, wanted_E, target_E = made_E[looked], wanted_E[looked], ops.target_E[looked]
    fits_E = _is(made_E, wanted_E, ops.takes_parts)
    repeated_E = ~keeps_N[target_E] & (wanted_E % np.maximum(made_E, 1) == 0)
    return ops.cases(
        target_E,
        fits_E | repeated_E,
        lambda case: f"{ops.name(target_E[case])} works on {wanted_E[case]:,} elements, and "
        f"its input has {made_E[case]:,}",
    )


def _norm_widths(ops: Operators) -> Cases | None:
    """Norms of a kind on one stream of activations, of as many elements, have equal parameters."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    kind_N = ops.kind_N(_NORMS)
    stream_N = (ops.among((*_ARITHMETIC, "native_dropout")) | (kind_N >= 0)) & ops.known_N
    same_E = stream_N[ops.source_E] & stream_N[ops.target_E]
    same_E &= ops.flops_N[ops.source_E] == ops.flops_N[ops.target_E]
    ends = ops.source_E[same_E], ops.target_E[same_E]
    size = ops.num_nodes
    graph = coo_array((np.ones(ends[0].size, dtype=np.int8), ends), shape=(size, size))
    _, part_N = connected_components(graph, directed=False)
    rows = np.flatnonzero((kind_N >= 0) & ops.known_N & (ops.element_N > 0))
    key_K3 = np.stack([part_N[rows], kind_N[rows], ops.flops_N[rows]], axis=1)
    _, group_K, count = np.unique(key_K3, axis=0, return_inverse=True, return_counts=True)
    several_K = count[group_K.ravel()] > 1
    holds_K = ops.bytes_N[rows] == _most_common(group_K.ravel(), ops.bytes_N[rows])
    after_K, fits_K = _norms_after_products(ops, rows)
    looked_K = several_K | after_K
    rows, good_K = rows[looked_K], (holds_K & (fits_K | ~after_K))[looked_K]
    return ops.cases(
        rows,
        good_K,
        lambda case: f"{ops.name(rows[case])} on {ops.flops_N[rows[case]]:,} elements moves "
        f"{ops.bytes_N[rows[case]]:,} bytes, of other parameters than before or after it",
    )


def _norms_after_products(ops: Operators, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which norms follow a product of known shape, and whether its columns are their width.

    Beside its input and output, a layer norm on (R, W) reads and writes weight and bias (W each)
    and mean and deviation (R each); a batch norm reads and writes up to six vectors of W.
    """
    products = ops.products
    place_N = np.full(ops.num_nodes, -1)
    place_N[products.row_P] = np.arange(products.row_P.size)
    before_N = np.full(ops.num_nodes, -1)
    from_E = place_N[ops.source_E] >= 0
    before_N[ops.target_E[from_E]] = place_N[ops.source_E[from_E]]
    kind_N = ops.kind_N(("native_layer_norm", "native_batch_norm"))
    after_K, fits_K = np.zeros(rows.size, dtype=bool), np.zeros(rows.size, dtype=bool)
    known: dict[tuple[int, ...], bool] = {}
    for at, row in enumerate(rows.tolist()):
        product, kind = int(before_N[row]), int(kind_N[row])
        if product < 0 or kind < 0:
            continue
        size = int(ops.flops_N[row])
        further = int(ops.bytes_N[row] // ops.element_N[row]) - 2 * size
        found = products.shape_S3[products.first_P1[product] : products.first_P1[product + 1]]
        columns = found[found[:, 0] * found[:, 2] == size, 2]
        if not columns.size:
            continue
        key = (kind, size, further, *columns.tolist())
        if key not in known:
            known[key] = any(_has_width(kind, size, further, width) for width in columns.tolist())
        after_K[at], fits_K[at] = True, known[key]
    return after_K, fits_K


def _has_width(kind: int, size: int, further: int, columns: int) -> bool:
    """Return whether a norm with so many elements beside its input may be of a product's columns.

    Norms of heads are of a part of the columns.
    """
    if kind == 1:
        return further % columns == 0 and further <= 6 * columns
    widths = {
        *_roots(2, further, 2 * size),  # weight and bias
        *_roots(1, further, 2 * size),  # weight alone
        *((2 * size // further,) if further > 0 and 2 * size % further == 0 else ()),  # neither
    }
    return any(size % width == 0 and columns % width == 0 for width in widths)


def _most_common(group_K: np.ndarray, value_K: np.ndarray) -> np.ndarray:
    """Return the most frequent value of the group of each of K."""
    pair, index_K, count = np.unique(
        np.stack([group_K, value_K], axis=1), axis=0, return_inverse=True, return_counts=True
    )
    order = np.lexsort((pair[:, 1], -count, pair[:, 0]))
    groups, first = np.unique(pair[order, 0], return_index=True)
    usual = pair[order[first], 1]
    return usual[np.searchsorted(groups, group_K)]


# --- optimizer -----------------------------------------------------------------------------------


def _optimizer_gradients(ops: Operators) -> Cases | None:
    """An optimizer kernel takes as many gradient elements as it has parameters."""
    parameters_N = np.where(ops.among(_STEPPING), ops.flops_N, 0)
    for name, tensors in _FUSED.items():
        parameters_N = np.where(ops.among((name,)), ops.flops_N // tensors, parameters_N)
    takes_N = ops.among(("_foreach_lerp_", *_FUSED)) & ops.known_N
    gradient_N = np.where(ops.among((*_WHOLE, *_REDUCTIONS)), ops.made_N, -1)
    reduced_N = ops.trace.type_N == NodeType.COMM_COLL
    size_N = np.maximum(ops.element_N, 1)
    gradient_N = np.where(reduced_N & ops.is_collective(CollectiveType.ALL_REDUCE), ops.sent_N // size_N, gradient_N)
    own_N = ops.among(_UPDATES)
    # Clipped gradients come by way of the kernel that clips them, some of them or all.
    clipped_E = ops.among(("_foreach_mul_", "mul_"))[ops.source_E]
    takes_N &= np.bincount(ops.target_E[clipped_E], minlength=ops.num_nodes) == 0
    into_E = takes_N[ops.target_E] & ~own_N[ops.source_E]
    source_E, target_E = ops.source_E[into_E], ops.target_E[into_E]
    unknown_N = np.bincount(target_E[gradient_N[source_E] < 0], minlength=ops.num_nodes)
    total_N = np.bincount(target_E, weights=np.maximum(gradient_N[source_E], 0), minlength=ops.num_nodes)
    rows = np.flatnonzero(takes_N & (unknown_N == 0) & (total_N > 0))
    # Shards of parameters that do not divide evenly are filled up to equal sizes.
    filled = ops.is_collective(CollectiveType.REDUCE_SCATTER).any()
    enough_K = parameters_N[rows] <= total_N[rows] if filled else False
    return ops.cases(
        rows,
        (parameters_N[rows] == total_N[rows]) | enough_K,
        lambda case: f"{ops.name(rows[case])} updates {parameters_N[rows[case]]:,} parameters with "
        f"{int(total_N[rows[case]]):,} gradients",
    )


def _optimizer_kernels(ops: Operators) -> Cases | None:
    """Every kind of kernel that steps parameters works on the same sizes."""
    kinds = ("lerp_", "addcmul_", "addcdiv_")
    rows, holds = [], []
    for prefix in ("", "_foreach_"):
        names = [f"{prefix}{kind}" for kind in kinds]
        kind_N = np.where(ops.known_N, ops.kind_N(names), -1)
        present = [at for at in range(len(names)) if (kind_N == at).any()]
        if len(present) < 2:
            continue
        found = np.flatnonzero(kind_N >= 0)
        sets = [np.unique(ops.flops_N[kind_N == at]) for at in present]
        known = [np.isin(ops.flops_N[found], values) for values in sets]
        rows.append(found)
        holds.append(np.all(known, axis=0))
    chain_N = ops.among([f"_foreach_{kind}" for kind in (*kinds, "sqrt", "div_")]) & ops.known_N
    into_E = chain_N[ops.target_E] & ops.among(
        [f"_foreach_{kind}" for kind in (*kinds, "sqrt", "div_", "add_", "mul_")]
    )[ops.source_E] & ops.known_N[ops.source_E]
    rows.append(ops.target_E[into_E])
    holds.append(ops.flops_N[ops.source_E[into_E]] == ops.flops_N[ops.target_E[into_E]])
    row_K = np.concatenate(rows)
    return ops.cases(
        row_K,
        np.concatenate(holds),
        lambda case: f"{ops.name(row_K[case])} works on {ops.flops_N[row_K[case]]:,} elements, and "
        "another kernel of the step on other ones",
    )


def _bias_gradients(ops: Operators) -> Cases | None:
    """Every sum in the backward pass of a step that updates parameters is used."""
    if not (ops.trains and ops.updates_N.any()):
        return None
    start = ops.place_N[ops.backward_N].min()
    rows = np.flatnonzero(ops.among(("sum",)) & (ops.place_N > start))
    return ops.cases(
        rows, ops.children_N[rows] > 0, lambda case: "sum in the backward pass is used by nothing"
    )


def _product_speed(ops: Operators) -> Cases | None:
    """No product is faster than its device."""
    nanoseconds_N, timed_N = ops.trace.integers("duration_ns")
    nanoseconds_N = np.where(timed_N, nanoseconds_N, ops.trace.duration_us_N.astype(np.int64) * 1000)
    on_cpu = any("cpu" in text for text in ops.trace.texts("device")[0][:1])
    limit = _FASTEST["cpu" if on_cpu else ""]
    rows = np.flatnonzero(ops.among(_PRODUCTS) & ops.known_N & (nanoseconds_N > 0))
    rate_K = ops.flops_N[rows] / np.maximum(nanoseconds_N[rows], 1) * 1e9
    return ops.cases(
        rows, rate_K <= limit, lambda case: f"{ops.name(rows[case])} does {rate_K[case]:.3g} operations a second"
    )


# --- communication of one rank -------------------------------------------------------------------


def _sent_as_made(ops: Operators) -> Cases | None:
    """What the operators before a collective or send made is what it moves."""
    kind_N = ops.trace.type_N
    sends_N = (kind_N == NodeType.COMM_SEND) | (
        (kind_N == NodeType.COMM_COLL) & ~ops.is_collective(CollectiveType.ALL_GATHER)
    )
    sends_N &= ops.sends_N & (ops.element_N > 0)
    whole_N = np.where(ops.among((*_WHOLE, *_NORMS, _CHUNKS)) & ops.known_N, ops.flops_N, -1)
    into_E = sends_N[ops.target_E] & ~communicates(kind_N)[ops.source_E]
    source_E, target_E = ops.source_E[into_E], ops.target_E[into_E]
    size = ops.num_nodes
    unknown_N = np.bincount(target_E[whole_N[source_E] < 0], minlength=size)
    total_N = np.bincount(target_E, weights=np.maximum(whole_N[source_E], 0), minlength=size)
    count_N = np.bincount(target_E, minlength=size)
    sent_N = ops.sent_N // np.maximum(ops.element_N, 1)
    equal_N = np.bincount(target_E[whole_N[source_E] == sent_N[target_E]], minlength=size)
    rows = np.flatnonzero(sends_N & (unknown_N == 0) & (count_N > 0))
    return ops.cases(
        rows,
        (total_N[rows] == sent_N[rows]) | (equal_N[rows] > 0),
        lambda case: f"{ops.name(rows[case])} moves {sent_N[rows[case]]:,} elements, and the "
        f"operators before it made {int(total_N[rows[case]]):,}",
    )


def _shards_gathered(ops: Operators) -> Cases | None:
    """Copies in are gathered, gathers are split, and gradients are scattered."""
    if not ops.among((_COPY_IN,)).any():
        return None
    gathers_N = ops.is_collective(CollectiveType.ALL_GATHER)
    scatters_N = ops.is_collective(CollectiveType.REDUCE_SCATTER)
    size = ops.num_nodes

    def children(of_N: np.ndarray, which_N: np.ndarray) -> np.ndarray:
        pairs_E = which_N[ops.target_E] & of_N[ops.source_E]
        return np.bincount(ops.source_E[pairs_E], minlength=size)

    def parents(of_N: np.ndarray, which_N: np.ndarray) -> np.ndarray:
        pairs_E = of_N[ops.target_E] & which_N[ops.source_E]
        return np.bincount(ops.target_E[pairs_E], minlength=size)

    copies_N, splits_N, chunks_N = (ops.among((name,)) for name in (_COPY_IN, _SPLIT, _CHUNKS))
    sharded_N = gathers_N & (parents(gathers_N, copies_N) > 0)
    parts = (
        (copies_N, children(copies_N, gathers_N) == 1),
        (sharded_N, children(sharded_N, splits_N) == 1),
        (splits_N, parents(splits_N, gathers_N) == 1),
        (chunks_N, children(chunks_N, scatters_N) == 1),
    )
    rows = np.concatenate([np.flatnonzero(of_N) for of_N, _ in parts])
    holds = np.concatenate([good_N[of_N] for of_N, good_N in parts])
    if ops.trains:
        gathered, scattered = int(sharded_N.sum()), int(scatters_N.sum())
        losses = max(1, int(ops.roots_N.sum()))
        rows = np.append(rows, np.flatnonzero(copies_N)[:1])
        holds = np.append(holds, scattered <= gathered <= 2 * losses * scattered)
    return ops.cases(
        rows,
        holds,
        lambda case: f"{ops.name(rows[case])} is no part of a chain of copy in, gather and split, "
        "or of gradients that are scattered",
    )


def _shard_sizes(ops: Operators) -> Cases | None:
    """What is gathered and scattered has the size of what was copied in."""
    if not ops.among((_COPY_IN, _CHUNKS)).any():
        return None
    size_N = np.maximum(ops.element_N, 1)
    moved_N = np.where(ops.sends_N, ops.sent_N // size_N, ops.flops_N)
    gathers_N = ops.is_collective(CollectiveType.ALL_GATHER)
    moved_N = np.where(gathers_N, moved_N * ops.members_N, moved_N)
    first_N = ops.among((_COPY_IN, _CHUNKS)) | gathers_N
    last_N = gathers_N | ops.is_collective(CollectiveType.REDUCE_SCATTER) | ops.among((_SPLIT,))
    chain_E = first_N[ops.source_E] & last_N[ops.target_E]
    source_E, target_E = ops.source_E[chain_E], ops.target_E[chain_E]
    return ops.cases(
        target_E,
        moved_N[source_E] == moved_N[target_E],
        lambda case: f"{ops.name(target_E[case])} is of {moved_N[target_E[case]]:,} elements in "
        f"all, and {ops.name(source_E[case])} before it of {moved_N[source_E[case]]:,}",
    )


def _averaged_parameters(ops: Operators) -> Cases | None:
    """Replicas average each gradient once a pass: as many elements as there are parameters."""
    reduces_N = ops.is_collective(CollectiveType.ALL_REDUCE)
    others_N = communicates(ops.trace.type_N) & ~reduces_N
    others_N &= ~ops.is_collective(CollectiveType.BROADCAST)
    parameters = ops.num_parameters
    if not reduces_N.any() or others_N.any() or not parameters or not ops.trains:
        return None
    # Tensor parallelism reduces activations, which further operators of the model take.
    after_E = reduces_N[ops.source_E]
    plain_N = ops.among((*_UPDATES, *_IN_PLACE, "div_", "lerp_", "_foreach_norm", "linalg_vector_norm",
        "mul", "cat", "view", "detach_"))  # fmt: skip
    if not (plain_N | reduces_N)[ops.target_E[after_E]].all():
        return None
    rows = np.flatnonzero(reduces_N)
    total = int((ops.sent_N[rows] // np.maximum(ops.element_N[rows], 1)).sum())
    return ops.cases(
        rows[:1],
        np.array([total > 0 and total % parameters == 0]),
        lambda case: f"{total:,} gradients are averaged in all, of {parameters:,} parameters",
    )


# --- the ranks together --------------------------------------------------------------------------


def _training_updates(workload: Workload, ranks: Sequence[Operators]) -> Cases | None:
    """A step with a backward pass updates something."""
    trains = [ops for ops in ranks if ops.trains]
    if not trains:
        return None
    updates = any(ops.updates_N.any() for ops in trains)
    return _one_case(trains[0], updates, "the step has a backward pass and no optimizer")


def _training_loss(workload: Workload, ranks: Sequence[Operators]) -> Cases | None:
    """A step with a backward pass has a loss."""
    trains = [ops for ops in ranks if ops.trains]
    if not trains:
        return None
    losses = any(ops.roots_N.any() or ops.computes_loss for ops in ranks)
    return _one_case(trains[0], losses, "the step has a backward pass and no loss")


def _one_case(ops: Operators, holds: bool, found: str) -> Cases | None:
    """Return one case, at the first backward operator of a rank."""
    rows = ops.order[ops.backward_N[ops.order]][:1]
    return ops.cases(rows, np.array([holds]), lambda case: f"{found}; here {ops.name(rows[0])}")


def _stages_update(workload: Workload, ranks: Sequence[Operators]) -> Cases | None:
    """Where one rank of a job with several programs updates parameters, all that train do."""
    trains = [ops for ops in ranks if ops.trains]
    updates = np.array([bool(ops.updates_N.any()) for ops in trains])
    if len(ranks) < 2 or not updates.any():
        return None
    rows = np.array([ops.order[ops.backward_N[ops.order]][0] for ops in trains])
    return Cases(
        np.array([ops.rank for ops in trains]),
        rows,
        updates,
        lambda case: f"rank {trains[case].rank} has a backward pass and no optimizer",
    )


def _messages_return(workload: Workload, ranks: Sequence[Operators]) -> Cases | None:
    """Between two stages as many messages of the same sizes go back as went forth."""
    if not any(ops.trains for ops in ranks):
        return None
    events = gather_communication(workload)
    sends = np.flatnonzero(events.type_K == NodeType.COMM_SEND)
    if not sends.size:
        return None
    ends_S2 = np.stack([events.source_K[sends], events.target_K[sends]], axis=1)
    sizes = events.size_K[sends]
    order = np.lexsort((sizes, ends_S2[:, 1], ends_S2[:, 0]))
    ways_W2, first = np.unique(ends_S2[order], axis=0, return_index=True)
    parts = np.split(sizes[order], first[1:])
    sent = {
        (int(source), int(target)): part
        for (source, target), part in zip(ways_W2, parts, strict=True)
    }
    row_of = {tuple(ends): at for ends, at in zip(ends_S2[::-1].tolist(), sends[::-1], strict=True)}
    rounds = _rounds({way for way in sent if way[::-1] not in sent})
    pairs = sorted({min(way, way[::-1]) for way in sent if way not in rounds})
    if not pairs:
        return None
    none = np.zeros(0, dtype=np.int64)
    at = [row_of[pair if pair in sent else pair[::-1]] for pair in pairs]
    holds = [
        np.array_equal(sent.get(pair, none), sent.get(pair[::-1], none)) for pair in pairs
    ]

    def found(case: int) -> str:
        forth, back = (len(sent.get(way, none)) for way in (pairs[case], pairs[case][::-1]))
        few = f"{forth} messages go from rank {pairs[case][0]} to {pairs[case][1]} and {back} back"
        return few if forth != back else f"{few}, of other sizes"

    return Cases(events.rank_K[at], events.row_K[at], np.array(holds), found)


def _rounds(ways: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return those of the ways that lie on rings, as context parallelism sends in."""
    while True:
        sources, targets = {way[0] for way in ways}, {way[1] for way in ways}
        kept = {way for way in ways if way[0] in targets and way[1] in sources}
        if kept == ways:
            return ways
        ways = kept


_OF_RANKS: Mapping[str, Callable[[Operators], Cases | None]] = {
    "norm-widths": _norm_widths,
    "product-shapes": _product_shapes,
    "optimizer-gradients": _optimizer_gradients,
    "optimizer-kernels": _optimizer_kernels,
    "averaged-parameters": _averaged_parameters,
    "sent-as-made": _sent_as_made,
    "shards-gathered": _shards_gathered,
    "shard-sizes": _shard_sizes,
    "backward-per-forward": _backward_per_forward,
    "backward-after-forward": _backward_after_forward,
    "backward-order": _backward_order,
    "pair-sizes": _pair_sizes,
    "elementwise-sizes": _elementwise_sizes,
    "bias-gradients": _bias_gradients,
    "product-speed": _product_speed,
}
_OF_JOBS: Mapping[str, Callable[[Workload, Sequence[Operators]], Cases | None]] = {
    "messages-return": _messages_return,
    "stages-update": _stages_update,
    "training-updates": _training_updates,
    "training-loss": _training_loss,
}


def judge_program(workload: Workload) -> dict[str, Verdict]:
    """Return what each rule that applies to a job says of it, by the rule's id.

    Ranks with the same operators, sizes and dependencies are looked at once. Nothing applies to a
    job of which most operators are not PyTorch's, or have no costs.

    Args:
        workload: A job that `check_workload` finds no error in.

    Raises:
        TraceError: If dependencies or attributes are faulty.
    """
    ranks = list(_distinct(workload))
    if not ranks or not all(ops.is_step for ops in ranks):
        return {}
    found: dict[str, Verdict] = {}
    for name, rule in WHOLE_PROGRAM_RULES.items():
        if name in _OF_JOBS:
            parts = [_OF_JOBS[name](workload, ranks)]
        else:
            parts = [_OF_RANKS[name](ops) for ops in ranks]
        known = [part for part in parts if part is not None]
        if known:
            found[name] = _verdict(workload, rule, known)
    return found


def _distinct(workload: Workload) -> Iterator[Operators]:
    """Yield the operators of the first rank of each program."""
    seen_traces: set[int] = set()
    seen: set[bytes] = set()
    kept: list[Trace] = []
    for rank, trace in enumerate(workload.traces):
        if id(trace) in seen_traces:
            continue
        kept.append(trace)  # an id is that of one object as long as the object lives
        seen_traces.add(id(trace))
        ops = Operators(trace, rank, workload.groups, workload.num_ranks)
        if ops.fingerprint not in seen:
            seen.add(ops.fingerprint)
            yield ops


def _verdict(workload: Workload, rule: Rule, parts: Sequence[Cases]) -> Verdict:
    """Join what a rule says of several ranks."""
    nodes: list[tuple[int, int]] = []
    said = ""
    for part in parts:
        for case in np.flatnonzero(~part.holds_K).tolist():
            rank = int(part.rank_K[case])
            said = said or part.found(case)
            nodes.append((rank, int(workload.traces[rank].id_N[part.row_K[case]])))
    return Verdict(rule, sum(part.row_K.size for part in parts), tuple(nodes), said)


def check_program(workload: Workload) -> list[Finding]:
    """Return where a job is no training step of PyTorch, a finding for each broken rule.

    Args:
        workload: A job that `check_workload` finds no error in.

    Raises:
        TraceError: If dependencies or attributes are faulty.
    """
    findings = []
    for verdict in judge_program(workload).values():
        if verdict.holds:
            continue
        rank, node = verdict.nodes[0]
        where = workload.traces[rank].source
        where = f"{where} (rank {rank})" if workload.num_ranks > 1 else where
        count = len(set(verdict.nodes))
        findings.append(Finding(verdict.rule, where, node, verdict.found, count))
    return findings
