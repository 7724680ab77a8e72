"""What the operators of one rank keep in every training step: a function for each rule.

The rules stand in ``whole_program.py``; each function returns the cases that it looked at, or None
where its rule does not apply.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from layerdag.errors import TraceError
from layerdag.hardware.collectives import CollectiveType
from layerdag.hardware.operators import (
    ACTIVATIONS,
    ARITHMETIC,
    ATTENTION,
    BACKWARD_OF,
    ELEMENTWISE_BACKWARD,
    FUSED,
    NORMS,
    PRODUCTS,
    SHAPE_KEEPING,
    STEPPING,
    SUMS,
    UPDATES,
    WHOLE,
)
from layerdag.traces.trace import NodeType, communicates
from layerdag.validation.operators import CHUNKS, COPY_IN, IN_PLACE, SPLIT, Operators, RuleOutcomes
from layerdag.validation.product_shapes import products_of, roots

# Operations a second that no device does: two processors of 128 cores with matrix units of 2,048
# operations a cycle (AMX, bfloat16) at 4 GHz; twice an accelerator's 20e15 with 4 bits (Blackwell).
_FASTEST_PROCESSOR, _FASTEST_DEVICE = 2.1e15, 4e16

# --- forward and backward ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Kind:
    """The operators of one kind, rows in program order.

    Attributes:
        backward: Name of the backward operator.
        forward_K: Forward operators that a loss follows from.
        all_K: Those, and the others of their names. Data that goes through communication or code
            of others may leave no dependency, and what is computed anew in the backward pass is
            not the loss's.
        backward_K: Backward operators.
    """

    backward: str
    forward_K: np.ndarray
    all_K: np.ndarray
    backward_K: np.ndarray


def _kinds(ops: Operators) -> Iterator[Kind]:
    place = {name: at for at, names in enumerate(BACKWARD_OF.values()) for name in names}
    kind_N = np.array([place.get(str(name), -1) for name in ops.operator_W])[ops.word_N]
    backward_N = ops.kind_N(tuple(BACKWARD_OF))
    rows = ops.order[(kind_N >= 0)[ops.order]]
    back = ops.order[(backward_N >= 0)[ops.order]]
    for at, backward in enumerate(BACKWARD_OF):
        all_K, backward_K = rows[kind_N[rows] == at], back[backward_N[back] == at]
        if all_K.size or backward_K.size:
            yield Kind(backward, all_K[ops.forward_N[all_K]], all_K, backward_K)


def backward_per_forward(ops: Operators) -> RuleOutcomes | None:
    """In a training step every kind has as many backward operators as forward ones."""
    if not ops.trains:
        return None
    rows, holds, told = [], [], []
    # Functions with a backward pass of their own do without some.
    kinds = [kind for kind in _kinds(ops) if kind.backward_K.size or kind.backward not in _OPTIONAL]
    # What precedes all trained parameters has no gradient, and so no backward operator.
    trained = [
        ops.place_N[kind.forward_K[-kind.backward_K.size :]].min()
        for kind in kinds
        if kind.forward_K.size and kind.backward_K.size
    ]
    first_trained = min(trained, default=0)
    for kind in kinds:
        ahead, back = kind.forward_K.size, kind.backward_K.size
        missing = kind.forward_K[: max(ahead - back, 0)]
        frozen = bool((ops.place_N[missing] < first_trained).all())
        rows.append((kind.all_K if ahead > back or not back else kind.backward_K)[-1])
        holds.append(back <= kind.all_K.size and (ahead <= back or frozen))
        told.append(f"there are {back} {kind.backward} to {kind.all_K.size} forward")
    return ops.cases(np.array(rows, dtype=np.int64), np.array(holds, dtype=bool), told.__getitem__)


def backward_after_forward(ops: Operators) -> RuleOutcomes | None:
    """Up to each backward operator there are at least as many forward ones of its kind."""
    parts = []
    for kind in _kinds(ops):
        before_K = np.searchsorted(ops.place_N[kind.all_K], ops.place_N[kind.backward_K])
        parts.append((kind.backward_K, before_K > np.arange(kind.backward_K.size)))
    said = "has no forward operator before it that is its own"
    return ops.joined_cases(parts, lambda row: f"{ops.name(row)} {said}")


def backward_order(ops: Operators) -> RuleOutcomes | None:
    """Norms and attention come back in reverse order, within each pass of a micro-batch."""
    kinds = (*NORMS, *ATTENTION)
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
    norms = (*NORMS, *(f"{name}_backward" for name in NORMS))
    return np.where(ops.is_any_of(norms)[rows], ops.flops_N[rows], 0)


_OPTIONAL = frozenset(f"{name}_backward" for name in (*ACTIVATIONS, "threshold"))
"""Backward operators that functions with a backward pass of their own do without."""
_UNEQUAL = ("convolution_backward", "embedding_dense_backward", "_embedding_bag_backward",
    *(f"{name}_backward" for name in ATTENTION))  # fmt: skip
"""Backward operators whose operations are not those of the forward operator."""


def pair_sizes(ops: Operators) -> RuleOutcomes | None:
    """Forward and backward operators of a kind work on the same sizes."""
    parts = []
    for kind in _kinds(ops):
        sets = (kind.forward_K, kind.all_K)
        alike = [one for one in sets if one.size and one.size == kind.backward_K.size]
        if kind.backward in _UNEQUAL or not alike:
            continue
        forward_K = alike[0][np.argsort(ops.flops_N[alike[0]], kind="stable")]
        backward_K = kind.backward_K[np.argsort(ops.flops_N[kind.backward_K], kind="stable")]
        parts.append((backward_K, ops.flops_N[forward_K] == ops.flops_N[backward_K]))
    said = "elements, and no forward operator that is left does"
    return ops.joined_cases(
        parts, lambda row: f"{ops.name(row)} works on {ops.flops_N[row]:,} {said}"
    )


# --- sizes along edges ---------------------------------------------------------------------------


def elementwise_sizes(ops: Operators) -> RuleOutcomes | None:
    """Along edges into element-wise operators sizes are equal, or one is repeated or cut."""
    # Parameters and statistics go into norms, too.
    keeps_N = ops.is_any_of(SHAPE_KEEPING) & ops.known_N
    joins_N = ops.is_any_of((*NORMS, *ARITHMETIC, *ELEMENTWISE_BACKWARD)) & ops.known_N
    made_E, wanted_E = ops.output_elements_N[ops.source_E], ops.flops_N[ops.target_E]
    looked_E = (made_E > 0) & (keeps_N | joins_N)[ops.target_E]
    # The gradients of a norm are those of its input and of its parameters.
    several_N = ops.is_any_of([f"{name}_backward" for name in NORMS])
    looked_E &= ~several_N[ops.source_E] | ops.is_any_of(ELEMENTWISE_BACKWARD)[ops.target_E]
    # A flat buffer is seen in parts by what works in place on them.
    flat_E = ops.is_any_of(("copy_", "cat"))[ops.source_E] & ops.in_place_N[ops.target_E]
    looked = np.flatnonzero(looked_E & ~flat_E)
    made_E, wanted_E, target_E = made_E[looked], wanted_E[looked], ops.target_E[looked]
    fits_E = ops.fits(ops.source_E[looked], made_E, wanted_E)
    repeated_E = ~keeps_N[target_E] & (wanted_E % np.maximum(made_E, 1) == 0)
    return ops.cases(
        target_E,
        fits_E | repeated_E,
        lambda case: (
            f"{ops.name(target_E[case])} works on {wanted_E[case]:,} elements, and "
            f"its input has {made_E[case]:,}"
        ),
    )


def norm_widths(ops: Operators) -> RuleOutcomes | None:
    """Norms of a kind on one stream of activations, of as many elements, have equal parameters."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    kind_N = ops.kind_N(NORMS)
    stream_N = (ops.is_any_of((*ARITHMETIC, "native_dropout")) | (kind_N >= 0)) & ops.known_N
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
        lambda case: (
            f"{ops.name(rows[case])} on {ops.flops_N[rows[case]]:,} elements moves "
            f"{ops.bytes_N[rows[case]]:,} bytes, of other parameters than before or after it"
        ),
    )


def _norms_after_products(ops: Operators, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which norms follow a product of known shape, and whether its columns are their width.

    Beside its input and output, a layer norm on (R, W) reads and writes weight and bias (W each)
    and mean and deviation (R each); a batch norm reads and writes up to six vectors of W.
    """
    products = products_of(ops)
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
        *roots(2, further, 2 * size),  # weight and bias
        *roots(1, further, 2 * size),  # weight alone
        *((2 * size // further,) if further > 0 and 2 * size % further == 0 else ()),  # neither
    }
    return any(size % width == 0 and columns % width == 0 for width in widths)


def _most_common(group_K: np.ndarray, value_K: np.ndarray) -> np.ndarray:
    pair, count = np.unique(np.stack([group_K, value_K], axis=1), axis=0, return_counts=True)
    order = np.lexsort((pair[:, 1], -count, pair[:, 0]))
    groups, first = np.unique(pair[order, 0], return_index=True)
    usual = pair[order[first], 1]
    return usual[np.searchsorted(groups, group_K)]


# --- optimizer -----------------------------------------------------------------------------------


def optimizer_gradients(ops: Operators) -> RuleOutcomes | None:
    """An optimizer kernel takes as many gradient elements as it has parameters."""
    parameters_N = np.where(ops.is_any_of(STEPPING), ops.flops_N, 0)
    for name, tensors in FUSED.items():
        parameters_N = np.where(ops.is_any_of((name,)), ops.flops_N // tensors, parameters_N)
    takes_N = ops.is_any_of(("_foreach_lerp_", *FUSED)) & ops.known_N
    gradient_N = np.where(ops.is_any_of((*WHOLE, *SUMS)), ops.output_elements_N, -1)
    reduced_N = ops.trace.type_N == NodeType.COMM_COLL
    size_N = np.maximum(ops.element_N, 1)
    gradient_N = np.where(
        reduced_N & ops.is_collective(CollectiveType.ALL_REDUCE), ops.sent_N // size_N, gradient_N
    )
    # The gradient of a joined parameter is cut into those of its parts.
    cut_N = ops.is_any_of(SUMS) & np.isin(gradient_N, ops.part_sizes)
    gradient_N = np.where(cut_N, -1, gradient_N)
    own_N = ops.is_any_of(UPDATES)
    # Clipped gradients come by way of the kernel that clips them, some of them or all.
    clipped_E = ops.is_any_of(("_foreach_mul_", "mul_"))[ops.source_E]
    takes_N &= np.bincount(ops.target_E[clipped_E], minlength=ops.num_nodes) == 0
    into_E = takes_N[ops.target_E] & ~own_N[ops.source_E]
    source_E, target_E = ops.source_E[into_E], ops.target_E[into_E]
    unknown_N = np.bincount(target_E[gradient_N[source_E] < 0], minlength=ops.num_nodes)
    total_N = np.bincount(
        target_E, weights=np.maximum(gradient_N[source_E], 0), minlength=ops.num_nodes
    )
    rows = np.flatnonzero(takes_N & (unknown_N == 0) & (total_N > 0))
    # Shards of parameters that do not divide evenly are filled up to equal sizes.
    filled = ops.is_collective(CollectiveType.REDUCE_SCATTER).any()
    enough_K = parameters_N[rows] <= total_N[rows] if filled else False
    return ops.cases(
        rows,
        (parameters_N[rows] == total_N[rows]) | enough_K,
        lambda case: (
            f"{ops.name(rows[case])} updates {parameters_N[rows[case]]:,} parameters with "
            f"{int(total_N[rows[case]]):,} gradients"
        ),
    )


def optimizer_kernels(ops: Operators) -> RuleOutcomes | None:
    """Every kind of kernel that steps parameters works on the same sizes."""
    kinds = ("lerp_", "addcmul_", "addcdiv_")
    parts = []
    for prefix in ("", "_foreach_"):
        kind_N = np.where(ops.known_N, ops.kind_N([f"{prefix}{kind}" for kind in kinds]), -1)
        present = [at for at in range(len(kinds)) if (kind_N == at).any()]
        if len(present) < 2:
            continue
        found = np.flatnonzero(kind_N >= 0)
        sets = [np.unique(ops.flops_N[kind_N == at]) for at in present]
        known = [np.isin(ops.flops_N[found], values) for values in sets]
        parts.append((found, np.all(known, axis=0)))
    chain_N = ops.is_any_of([f"_foreach_{kind}" for kind in (*kinds, "sqrt", "div_")]) & ops.known_N
    links = (*kinds, "sqrt", "div_", "add_", "mul_")
    into_N = ops.is_any_of([f"_foreach_{kind}" for kind in links]) & ops.known_N
    into_E = chain_N[ops.target_E] & into_N[ops.source_E]
    source_E, target_E = ops.source_E[into_E], ops.target_E[into_E]
    parts.append((target_E, ops.flops_N[source_E] == ops.flops_N[target_E]))
    said = "elements, and another kernel of the step on other ones"
    return ops.joined_cases(
        parts, lambda row: f"{ops.name(row)} works on {ops.flops_N[row]:,} {said}"
    )


def bias_gradients(ops: Operators) -> RuleOutcomes | None:
    """Every sum in the backward pass of a step that updates parameters is used."""
    if not (ops.trains and ops.updates_N.any()):
        return None
    start = ops.place_N[ops.backward_N].min()
    rows = np.flatnonzero(ops.is_any_of(("sum",)) & (ops.place_N > start))
    return ops.cases(
        rows, ops.children_N[rows] > 0, lambda case: "sum in the backward pass is used by nothing"
    )


def product_speed(ops: Operators) -> RuleOutcomes | None:
    """No product is faster than its device."""
    try:
        nanoseconds_N, timed_N = ops.trace.integers("duration_ns")
        devices = set(ops.trace.texts("device")[0])
    except TraceError:  # neither a whole number nor a word: nothing to measure by
        return None
    microseconds_N = ops.trace.duration_us_N.astype(np.int64)
    nanoseconds_N = np.where(timed_N, nanoseconds_N, microseconds_N * 1000)
    on_processor = all(device.startswith("cpu") for device in devices)
    limit = _FASTEST_PROCESSOR if on_processor else _FASTEST_DEVICE
    rows = np.flatnonzero(ops.is_any_of(PRODUCTS) & ops.known_N & (nanoseconds_N > 0))
    rate_K = ops.flops_N[rows] / np.maximum(nanoseconds_N[rows], 1) * 1e9
    return ops.cases(
        rows,
        rate_K <= limit,
        lambda case: f"{ops.name(rows[case])} does {rate_K[case]:.3g} operations a second",
    )


# --- communication of one rank -------------------------------------------------------------------


def sent_as_made(ops: Operators) -> RuleOutcomes | None:
    """What the operators before a collective or send made is what it moves."""
    kind_N = ops.trace.type_N
    sends_N = (kind_N == NodeType.COMM_SEND) | (
        (kind_N == NodeType.COMM_COLL) & ~ops.is_collective(CollectiveType.ALL_GATHER)
    )
    sends_N &= ops.sends_N & (ops.element_N > 0)
    whole_N = np.where(ops.is_any_of((*WHOLE, *NORMS, CHUNKS)) & ops.known_N, ops.flops_N, -1)
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
        lambda case: (
            f"{ops.name(rows[case])} moves {sent_N[rows[case]]:,} elements, and the "
            f"operators before it made {int(total_N[rows[case]]):,}"
        ),
    )


def shards_gathered(ops: Operators) -> RuleOutcomes | None:
    """Copies in are gathered, gathers are split, and gradients are scattered."""
    if not ops.is_any_of((COPY_IN,)).any():
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

    copies_N, splits_N, chunks_N = (ops.is_any_of((name,)) for name in (COPY_IN, SPLIT, CHUNKS))
    sharded_N = gathers_N & (parents(gathers_N, copies_N) > 0)
    chains = (
        (copies_N, children(copies_N, gathers_N) == 1),
        (sharded_N, children(sharded_N, splits_N) == 1),
        (splits_N, parents(splits_N, gathers_N) == 1),
        (chunks_N, children(chunks_N, scatters_N) == 1),
    )
    parts = [(np.flatnonzero(of_N), good_N[of_N]) for of_N, good_N in chains]
    if ops.trains:
        gathered, scattered = int(sharded_N.sum()), int(scatters_N.sum())
        # A backward pass begins with a loss, or in a pipeline with gradients that arrive.
        arrived = int((ops.trace.type_N == NodeType.COMM_RECV).sum())
        passes = max(1, int(ops.roots_N.sum()), arrived)
        enough = np.array([scattered <= gathered <= 2 * passes * scattered])
        parts.append((np.flatnonzero(copies_N)[:1], enough))
    said = "chain of copy in, gather and split, or of gradients that are scattered"
    return ops.joined_cases(parts, lambda row: f"{ops.name(row)} is no part of a {said}")


def shard_sizes(ops: Operators) -> RuleOutcomes | None:
    """What is gathered and scattered has the size of what was copied in."""
    if not ops.is_any_of((COPY_IN, CHUNKS)).any():
        return None
    size_N = np.maximum(ops.element_N, 1)
    moved_N = np.where(ops.sends_N, ops.sent_N // size_N, ops.flops_N)
    gathers_N = ops.is_collective(CollectiveType.ALL_GATHER)
    moved_N = np.where(gathers_N, moved_N * ops.members_N, moved_N)
    first_N = ops.is_any_of((COPY_IN, CHUNKS)) | gathers_N
    last_N = gathers_N | ops.is_collective(CollectiveType.REDUCE_SCATTER) | ops.is_any_of((SPLIT,))
    chain_E = first_N[ops.source_E] & last_N[ops.target_E]
    source_E, target_E = ops.source_E[chain_E], ops.target_E[chain_E]
    return ops.cases(
        target_E,
        moved_N[source_E] == moved_N[target_E],
        lambda case: (
            f"{ops.name(target_E[case])} is of {moved_N[target_E[case]]:,} elements in "
            f"all, and {ops.name(source_E[case])} before it of {moved_N[source_E[case]]:,}"
        ),
    )


def averaged_parameters(ops: Operators) -> RuleOutcomes | None:
    """Replicas average each gradient once a pass: as many elements as there are parameters."""
    reduces_N = ops.is_collective(CollectiveType.ALL_REDUCE)
    others_N = communicates(ops.trace.type_N) & ~reduces_N
    others_N &= ~ops.is_collective(CollectiveType.BROADCAST)
    parameters = ops.num_parameters
    if not reduces_N.any() or others_N.any() or not parameters or not ops.trains:
        return None
    # Tensor parallelism reduces activations, which further operators of the model take.
    after_E = reduces_N[ops.source_E]
    plain_N = ops.is_any_of((*UPDATES, *IN_PLACE, "div_", "lerp_", "_foreach_norm", "detach_",
        "linalg_vector_norm", "mul", "cat"))  # fmt: skip
    if not (plain_N | reduces_N)[ops.target_E[after_E]].all():
        return None
    rows = np.flatnonzero(reduces_N)
    sizes = ops.sent_N[rows] // np.maximum(ops.element_N[rows], 1)
    # A program may average its loss, too, and a dependency may be lost to a buffer.
    total, stepped = int(sizes.sum()), int(sizes[ops.updating_N[rows]].sum())
    holds = any(count > 0 and count % parameters == 0 for count in (total, stepped))
    return ops.cases(
        rows[:1],
        np.array([holds]),
        lambda case: f"{total:,} gradients are averaged in all, of {parameters:,} parameters",
    )
