"""The operators of one rank as arrays: names, sizes, dependencies, forward and backward pass."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from layerdag.errors import TraceError
from layerdag.hardware.dtypes import find_dtype
from layerdag.traces.analysis import group_names, program_order
from layerdag.traces.trace import DATA, CollectiveType, NodeType, Trace, dependency_edges


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


NORMS = ("native_layer_norm", "native_batch_norm", "native_group_norm", "_fused_rms_norm",
    "_native_batch_norm_legit", "cudnn_batch_norm")  # fmt: skip
ATTENTION = ("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable")  # fmt: skip
ACTIVATIONS = ("gelu", "silu", "tanh", "sigmoid", "elu", "leaky_relu", "softplus", "hardswish",
    "hardtanh", "hardsigmoid", "mish", "log_sigmoid_forward")  # fmt: skip
SOFTMAXES = ("_softmax", "_log_softmax", "_safe_softmax")
PAIRS: Mapping[str, tuple[str, ...]] = {
    **{f"{name}_backward": (name,) for name in (*NORMS, *ATTENTION)},
    **{f"{name}_backward": (name, f"{name}_") for name in ACTIVATIONS},
    "_softmax_backward_data": ("_softmax", "_safe_softmax"),
    "_log_softmax_backward_data": ("_log_softmax",),
    "threshold_backward": ("relu", "relu_", "threshold", "threshold_"),
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
ARITHMETIC = ("add", "sub", "mul", "div", "add_", "sub_", "mul_", "div_", "neg", "pow", "sqrt",
    "rsqrt", "exp", "cos", "sin", "reciprocal", "masked_fill", "where", "clamp", "abs", "log",
    "square", "relu", "relu_", *ACTIVATIONS, *(f"{name}_" for name in ACTIVATIONS))  # fmt: skip
ELEMENTWISE_BACKWARD = ("threshold_backward", *(f"{name}_backward" for name in ACTIVATIONS))
COPIES = ("clone", "copy_", "_to_copy", "cat", "stack", "slice_backward", "select_backward")
WHOLE = (*ARITHMETIC, *ELEMENTWISE_BACKWARD, *COPIES, *SOFTMAXES,
    *(f"{name}_backward_data" for name in SOFTMAXES))  # fmt: skip
WITH_NORMS = (*WHOLE, *NORMS, *(f"{name}_backward" for name in NORMS))
REDUCTIONS = ("sum", "mean")
PRODUCTS = ("mm", "addmm", "bmm")
# One result of exactly the shape of the only tensor that is no parameter.
SHAPE_KEEPING = ("relu", "relu_", *ACTIVATIONS, *(f"{name}_" for name in ACTIVATIONS), *SOFTMAXES,
    "native_dropout")  # fmt: skip
# What makes numbers of parameters.
PARAMETRIC = (*PRODUCTS, *NORMS, "convolution", "embedding", "_embedding_bag",
    "split_with_sizes_copy")  # fmt: skip
# Kernels that step every parameter once.
STEPPING = ("lerp_", "addcmul_", "addcdiv_", "_foreach_lerp_", "_foreach_addcmul_",
    "_foreach_addcdiv_", "_foreach_sqrt", "_foreach_div_")  # fmt: skip
FUSED: Mapping[str, int] = {"_fused_adamw_": 4, "_fused_adam_": 4, "_fused_adagrad_": 3}
"""Tensors that a fused kernel works on for each parameter."""
UPDATES = (*STEPPING, *FUSED, "_fused_sgd_", "_foreach_add_", "_foreach_sub_", "_foreach_mul_")
IN_PLACE = ("add_", "sub_", "copy_", "mul_")
PARTS = ("select_backward", "slice_backward", "cat", "stack", "index", "index_select",
    "unfold_backward", "constant_pad_nd", "_index_put_impl_", "index_put")  # fmt: skip
"""What views of parts leave in a trace: their backward, or what joins several of them."""
COPY_IN, SPLIT, CHUNKS = "all_gather_copy_in", "split_with_sizes_copy", "chunk_cat"


def operator_of(name: str) -> str:
    """Return the name without namespace and number of the call."""
    name = name.partition("(")[0]
    return name.rpartition("::")[2]


class Operators:
    """The nodes of one trace as arrays.

    Args:
        trace: A trace whose dependencies are sound.
        rank: Its first rank.
        groups: Ranks of each communicator group of the job.
        ranks: Ranks of the job.
    """

    def __init__(
        self, trace: Trace, rank: int, groups: Mapping[str, tuple[int, ...]], ranks: int
    ) -> None:
        self.trace, self.rank = trace, rank
        group_N, _ = group_names(trace)
        sizes = {name: len(members) for name, members in groups.items()}
        self.members_N = np.array([sizes.get(name, ranks) for name in group_N], dtype=np.int64)
        words, self.word_N = np.unique(trace.name_N, return_inverse=True)
        names = ["" if word < 0 else trace.strings[word] for word in words.tolist()]
        self._is_aten = np.array([name.startswith("aten::") for name in names], dtype=bool)
        self.operator_W = np.array([operator_of(name) for name in names], dtype=object)
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
        for column in (
            self.flops_N,
            self.bytes_N,
            self.sent_N,
            self.source_E,
            self.target_E,
            self.members_N,
        ):
            found.update(np.ascontiguousarray(column).tobytes())
        found.update("\0".join(self.trace.names()).encode())
        return found.digest()

    @property
    def computes_loss(self) -> bool:
        """Whether some operator is a loss, or makes a gradient to begin with."""
        words = ("loss", "cross_entropy", "ones", "full", "fill_")
        return any(word in str(name) for name in self.operator_W for word in words)

    @cached_property
    def is_step(self) -> bool:
        """Whether most computations are operators of PyTorch whose costs are known."""
        computes_N = self.trace.type_N == NodeType.COMP
        told_N = self._is_aten[self.word_N] & self.known_N
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
    def _types(self) -> tuple[np.ndarray, np.ndarray]:
        """Bytes of an element of each node, 0 where it is unknown, and whether it is a float."""
        try:
            dtypes = self.trace.dtypes()
        except TraceError:  # of another type than a text: as unknown as one that is absent
            dtypes = [""] * self.num_nodes
        words, index_N = np.unique(np.array(dtypes, dtype=object), return_inverse=True)
        found = [find_dtype(str(word)) for word in words.tolist()]
        size = np.array([0 if one is None else one.bits // 8 for one in found], dtype=np.int64)
        is_float = np.array([one is not None and one.is_float for one in found], dtype=bool)
        return size[index_N], is_float[index_N]

    @property
    def element_N(self) -> np.ndarray:
        """Bytes of an element of each node, 0 where its type is unknown."""
        return self._types[0]

    @property
    def is_float_N(self) -> np.ndarray:
        """Whether each node has a floating-point type."""
        return self._types[1]

    @cached_property
    def one_type_N(self) -> np.ndarray:
        """Whether each node is of the widest floating-point type of its trace.

        Operators of narrower types may be given wider tensors, which are converted on the way.
        """
        return self.is_float_N & (self.element_N == self.element_N[self.is_float_N].max(initial=0))

    @cached_property
    def made_N(self) -> np.ndarray:
        """Elements of the one result of each node, -1 where they are not known."""
        made_N = np.where(self.among(WITH_NORMS) & self.known_N, self.flops_N, -1)
        size_N = np.maximum(self.element_N, 1)
        left_N = self.bytes_N // size_N - self.flops_N
        reduced_N = self.among(REDUCTIONS) & self.known_N & (self.element_N > 0)
        reduced_N &= (left_N > 0) & (left_N <= self.flops_N)
        return np.where(reduced_N, left_N, made_N)

    @cached_property
    def in_place_N(self) -> np.ndarray:
        """Whether each node writes into its first input, as its name says."""
        return np.array([str(name).endswith("_") for name in self.operator_W])[self.word_N]

    @cached_property
    def backward_N(self) -> np.ndarray:
        """Whether each node is an operator of a backward pass by its name."""
        has = np.array(["_backward" in str(name) for name in self.operator_W], dtype=bool)
        return has[self.word_N]

    @cached_property
    def part_sizes(self) -> np.ndarray:
        """Sizes of results of which operators see parts, ascending.

        The gradient of a part is as large as the whole; what was joined is seen in parts by the
        backward pass.
        """
        return np.unique(self.flops_N[self.among(PARTS) & self.known_N])

    @cached_property
    def has_gradient_N(self) -> np.ndarray:
        """Whether a gradient may flow through each node: numbers that follow from parameters.

        Of others, positions and masks above all, the backward pass shows no parts.
        """
        starts = np.flatnonzero(self.among(PARAMETRIC))
        return self.is_float_N & self._reached(starts, self.source_E, self.target_E)

    def fits(self, rows: np.ndarray, made: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Return which results may be tensors of wanted numbers of elements.

        Args:
            rows: The nodes that made them.
            made: Elements of each.
            wanted: Elements that are to be theirs or, where operators may see parts, fewer.
        """
        in_parts = np.isin(made, self.part_sizes) | ~self.has_gradient_N[rows]
        return (made == wanted) | ((in_parts | (not self.trains)) & (made > wanted))

    @cached_property
    def updates_N(self) -> np.ndarray:
        """Whether each node steps parameters.

        That is an optimizer's kernel, or an addition in place that nothing waits for.
        """
        last_N = self.among(("add_", "sub_")) & (self.children_N == 0)
        return self.among(UPDATES) | last_N

    @property
    def trains(self) -> bool:
        """Whether the rank has a backward pass."""
        return bool(self.backward_N.any())

    def among(self, names: Iterable[str]) -> np.ndarray:
        """Return which nodes are one of these operators."""
        wanted = frozenset(names)
        has = np.array([name in wanted for name in self.operator_W], dtype=bool)
        return has[self.word_N]

    @cached_property
    def forward_N(self) -> np.ndarray:
        """Whether each node is of the forward pass.

        That is what a loss is made of or, on a rank without a loss, what does not follow from a
        backward operator. What the backward pass computes anew, or for its own ends, is neither.
        """
        if self.roots_N.any():
            return self._reached(np.flatnonzero(self.roots_N), self.target_E, self.source_E)
        return ~self._reached(np.flatnonzero(self.backward_N), self.source_E, self.target_E)

    def _reached(self, starts: np.ndarray, from_E: np.ndarray, to_E: np.ndarray) -> np.ndarray:
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
    def updating_N(self) -> np.ndarray:
        """Whether parameters are stepped by what follows from each node."""
        return self._reached(np.flatnonzero(self.updates_N), self.target_E, self.source_E)

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
        for name, tensors in FUSED.items():
            if self.among((name,)).any():
                return int(self.flops_N[self.among((name,))].sum()) // tensors
        for name in ("_foreach_addcdiv_", "_foreach_lerp_", "addcdiv_"):
            if self.among((name,)).any():
                return int(self.flops_N[self.among((name,)) & self.known_N].sum())
        added_N = self.among(("_foreach_add_",)) & self.known_N
        if added_N.any():
            return int(self.flops_N[added_N].max())
        # Plain gradient descent adds what was averaged.
        reduces = np.flatnonzero(self.is_collective(CollectiveType.ALL_REDUCE))
        added_N = self.among(("add_",)) & self.known_N & (self.children_N == 0)
        added_N &= self._reached(reduces, self.source_E, self.target_E)
        return int(self.flops_N[added_N].sum())

    def name(self, row: int | np.int64) -> str:
        """Return the operator of a row."""
        return str(self.operator_W[self.word_N[row]])

    def kind_N(self, names: Sequence[str]) -> np.ndarray:
        """Return the place of each node's operator in ``names``, -1 where it is none of them."""
        place = {name: at for at, name in enumerate(names)}
        return np.array([place.get(str(name), -1) for name in self.operator_W])[self.word_N]

    def cases(
        self, rows: np.ndarray, holds_K: np.ndarray, found: Callable[[int], str]
    ) -> Cases | None:
        """Return cases of this rank; None if there are none."""
        if not len(rows):
            return None
        return Cases(np.full(len(rows), self.rank), rows, holds_K, found)
