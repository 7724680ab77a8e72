"""Text workloads of ASTRA-sim 1.0: one training step, a layer a line.

Line 1 is the parallelism with its parameters, line 2 the number of layers, then for each layer:
name, dependency (unused, -1), forward time, collective, bytes; the same for the input gradient and
the weight gradient; update time; for ``HYBRID_CUSTOMIZED`` the layer's own parallelism. Times
become microseconds, as in Chakra's own converter.

The step that is built: forward layer by layer, each waiting for the collective of the one before;
then backward from the last layer, where the weight gradient's collective runs beside the rest and
is followed by the update. With data parallelism the weight gradient comes first, so that its
collective starts early; else the input gradient, whose collective the layer before waits for.
"""

from dataclasses import dataclass, field, replace

from layerdag.errors import TraceError
from layerdag.traces.build import NodeSpec, build_trace
from layerdag.traces.trace import Attribute, CollectiveType, NodeType, Wire, Workload

PARALLELISMS = (
    "MICRO",
    "DATA",
    "MODEL",
    "HYBRID_DATA_MODEL",
    "HYBRID_MODEL_DATA",
    "HYBRID_CUSTOMIZED",
    "HYBRID_TRANSFORMER",
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD",
)
_COLLECTIVES = {
    "NONE": None,
    "ALLREDUCE": CollectiveType.ALL_REDUCE,
    "ALLGATHER": CollectiveType.ALL_GATHER,
    "REDUCESCATTER": CollectiveType.REDUCE_SCATTER,
    "ALLTOALL": CollectiveType.ALL_TO_ALL,
}
_DATA_FIRST = ("DATA", "MICRO")


@dataclass(frozen=True)
class Phase:
    """One of forward, input gradient and weight gradient of a layer.

    Attributes:
        time_us: Computation, in microseconds.
        collective: What follows, or None.
        size: Bytes of the collective.
    """

    time_us: int
    collective: CollectiveType | None
    size: int


@dataclass(frozen=True)
class TextLayer:
    """One line of the file."""

    name: str
    forward: Phase
    input_gradient: Phase
    weight_gradient: Phase
    update_us: int
    parallelism: str


@dataclass(frozen=True)
class TextWorkload:
    """A parsed file.

    Attributes:
        parallelism: First word.
        layers: All layers.
        model_group: Ranks of a tensor-parallel group, 0 if the file does not say.
        checkpoints: First layers of the stretches that are computed again.
        recomputed_at: Layers before whose backward a stretch is computed again.
    """

    parallelism: str
    layers: tuple[TextLayer, ...]
    model_group: int = 0
    checkpoints: tuple[int, ...] = ()
    recomputed_at: tuple[int, ...] = ()


def parse_text(data: bytes, source: str = "<memory>") -> TextWorkload:
    """Parse a text workload.

    Raises:
        TraceError: If the parallelism, a collective or a number is unknown, or layers are missing;
            names the line.
    """
    lines = [line.split() for line in data.decode("utf-8", "replace").splitlines()]
    lines = [words for words in lines if words]
    if len(lines) < 2 or lines[0][0] not in PARALLELISMS:
        known = ", ".join(PARALLELISMS)
        found = lines[0][0][:40] if lines else "nothing"
        raise TraceError(
            f"{source}: line 1 names the parallelism '{found}'; layerdag reads {known}."
        )
    count = _number(lines[1][0], source, 2)
    if len(lines) != count + 2:
        raise TraceError(
            f"{source}: line 2 announces {count} layers but {len(lines) - 2} follow; the file is "
            "cut off or the number is wrong."
        )
    layers = tuple(
        _layer(words, lines[0][0], source, at) for at, words in enumerate(lines[2:], start=3)
    )
    return _with_parameters(TextWorkload(lines[0][0], layers), lines[0][1:], source)


def _number(word: str, source: str, line: int) -> int:
    """Return a count, time or size; times may have a fraction, which is rounded."""
    try:
        value = round(float(word))
    except (ValueError, OverflowError):
        value = -1
    if not 0 <= value < 2**63:
        raise TraceError(f"{source}: line {line} has '{word[:40]}' where a number is needed.")
    return value


def _layer(words: list[str], parallelism: str, source: str, line: int) -> TextLayer:
    """Return one layer."""
    if len(words) < 12:
        raise TraceError(
            f"{source}: line {line} has {len(words)} columns; a layer has 12: name, dependency, "
            "three times (time, collective, bytes), update time."
        )
    phases = []
    for at in (2, 5, 8):
        if words[at + 1] not in _COLLECTIVES:
            raise TraceError(
                f"{source}: line {line} has the collective '{words[at + 1][:40]}'; known are "
                f"{', '.join(_COLLECTIVES)}."
            )
        time_us, size = (_number(words[i], source, line) for i in (at, at + 2))
        phases.append(Phase(time_us, _COLLECTIVES[words[at + 1]], size))
    own = words[12] if len(words) > 12 else parallelism
    update_us = _number(words[11], source, line)
    return TextLayer(words[0], phases[0], phases[1], phases[2], update_us, own)


def _with_parameters(text: TextWorkload, words: list[str], source: str) -> TextWorkload:
    """Return the workload with the parameters of line 1."""
    at = 0
    while at < len(words):
        key = words[at].rstrip(":")
        count = 1 if key == "model_parallel_NPU_group" else 0
        if key in ("checkpoints", "checkpoint_initiates") and at + 1 < len(words):
            at += 1
            count = _number(words[at], source, 1)
        values = tuple(_number(word, source, 1) for word in words[at + 1 : at + 1 + count])
        if count == 0 or len(values) != count:
            raise TraceError(f"{source}: line 1 has '{key[:40]}' without its numbers.")
        if key == "model_parallel_NPU_group":
            text = replace(text, model_group=values[0])
        elif key == "checkpoints":
            text = replace(text, checkpoints=values)
        else:
            text = replace(text, recomputed_at=values)
        at += 1 + count
    return text


def text_to_workload(text: TextWorkload, num_ranks: int, source: str = "<memory>") -> Workload:
    """Return the traces of one training step on ``num_ranks`` ranks.

    With ``model_parallel_NPU_group: k``, forward and input-gradient collectives stay inside groups
    of k neighbouring ranks, and weight-gradient collectives join equal places of these groups.
    Without it, every collective is one of all ranks.

    Raises:
        TraceError: If ``num_ranks`` is not a multiple of the group size.
    """
    size = text.model_group
    if num_ranks < 1 or (size and num_ranks % size):
        raise TraceError(
            f"{source}: {num_ranks} ranks cannot be split into groups of {size}; choose a multiple."
        )
    if not size or size == num_ranks:
        trace = build_trace(_step(text, "", ""), source=source)
        return Workload((trace,) * num_ranks, {}, source)
    model = [tuple(range(at, at + size)) for at in range(0, num_ranks, size)]
    data = [tuple(range(at, num_ranks, size)) for at in range(size)]
    groups = {str(at + 1): ranks for at, ranks in enumerate([*model, *data])}
    traces = tuple(
        build_trace(
            _step(text, str(rank // size + 1), str(len(model) + rank % size + 1)), source=source
        )
        for rank in range(num_ranks)
    )
    return Workload(traces, groups, source)


@dataclass
class _Step:
    """The nodes of a step so far; ``ready`` are the ids that the next computation waits for."""

    model_group: str
    data_group: str
    nodes: list[NodeSpec] = field(default_factory=list)
    ready: tuple[int, ...] = ()

    def compute(self, name: str, time_us: int, after: tuple[int, ...]) -> tuple[int, ...]:
        """Add a computation and return its id."""
        cpu = Attribute("is_cpu_op", Wire.BOOL, False)
        return self._add(NodeSpec(0, name, NodeType.COMP, after, (), 0, time_us, (cpu,)))

    def communicate(
        self, name: str, phase: Phase, group: str, after: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Add the collective of a phase, if it has one, and return what to wait for."""
        if phase.collective is None or phase.size == 0:
            return after
        attributes = [
            Attribute("is_cpu_op", Wire.BOOL, False),
            Attribute("comm_type", Wire.INT64, int(phase.collective)),
            Attribute("comm_size", Wire.INT64, phase.size),
        ]
        if group:
            attributes.append(Attribute("pg_name", Wire.STRING, group))
        kind = NodeType.COMM_COLL
        return self._add(NodeSpec(0, name, kind, after, attributes=tuple(attributes)))

    def _add(self, node: NodeSpec) -> tuple[int, ...]:
        """Append a node under the next id."""
        self.nodes.append(replace(node, id=len(self.nodes)))
        return (len(self.nodes) - 1,)


def _step(text: TextWorkload, model_group: str, data_group: str) -> list[NodeSpec]:
    """Return the nodes of one training step."""
    step = _Step(model_group, data_group)
    for layer in text.layers:
        _forward(step, layer, "forward")
    for at in range(len(text.layers) - 1, -1, -1):
        if at in text.recomputed_at:
            first = max((c for c in text.checkpoints if c <= at), default=at)
            for layer in text.layers[first : at + 1]:
                _forward(step, layer, "recompute")
        _backward(step, text.layers[at], is_first=at == 0)
    return step.nodes


def _forward(step: _Step, layer: TextLayer, label: str) -> None:
    """Add the forward part of a layer."""
    phase = layer.forward
    done = step.compute(f"{layer.name}.{label}", phase.time_us, step.ready)
    step.ready = step.communicate(f"{layer.name}.{label}_comm", phase, step.model_group, done)


def _backward(step: _Step, layer: TextLayer, is_first: bool) -> None:
    """Add gradients, their collectives and the update of a layer."""
    weight, data = layer.weight_gradient, layer.input_gradient
    if layer.parallelism in _DATA_FIRST:
        computed = step.compute(f"{layer.name}.weight_grad", weight.time_us, step.ready)
        _update(step, layer, computed)
        step.ready = computed
        if not is_first:
            done = step.compute(f"{layer.name}.input_grad", data.time_us, computed)
            name = f"{layer.name}.input_grad_comm"
            step.ready = step.communicate(name, data, step.model_group, done)
        return
    computed = step.ready
    if not is_first:
        computed = step.compute(f"{layer.name}.input_grad", data.time_us, step.ready)
        name = f"{layer.name}.input_grad_comm"
        step.ready = step.communicate(name, data, step.model_group, computed)
    computed = step.compute(f"{layer.name}.weight_grad", weight.time_us, computed)
    _update(step, layer, computed)


def _update(step: _Step, layer: TextLayer, after: tuple[int, ...]) -> None:
    """Add the weight gradient's collective and the update of the weights."""
    name = f"{layer.name}.weight_grad_comm"
    reduced = step.communicate(name, layer.weight_gradient, step.data_group, after)
    if layer.update_us:
        step.compute(f"{layer.name}.update", layer.update_us, reduced)
