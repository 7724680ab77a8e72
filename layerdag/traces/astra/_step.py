"""The step that a text workload of ASTRA-sim 1.0 describes, as one trace per rank.

Forward layer by layer, each waiting for the collective of the one before; then backward from the
last layer, where the weight gradient's collective runs beside the rest and is followed by the
update. With data parallelism the weight gradient comes first, so that its collective starts early;
else the input gradient, whose collective the layer before waits for.

DLRM: the all-to-all of the embeddings (layer 0) runs beside the bottom network, and the top
network waits for both; backward, that of their gradients starts when the top network is done and
runs beside the bottom network. Inference is the forward part alone.
"""

from dataclasses import dataclass, field, replace

from layerdag.errors import TraceError
from layerdag.traces import Attribute, NodeType, Wire, Workload
from layerdag.traces.astra._text import DLRM, Phase, TextLayer, TextWorkload
from layerdag.traces.chakra import NodeSpec, build_trace

_DATA_FIRST = ("DATA", "MICRO")


def text_to_workload(text: TextWorkload, num_ranks: int, source: str = "<memory>") -> Workload:
    """Return the traces of one training step on ``num_ranks`` ranks.

    With ``model_parallel_NPU_group: k``, forward and input-gradient collectives stay inside groups
    of k neighboring ranks, and weight-gradient collectives join equal places of these groups.
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
    """Return the nodes of one training step, or of one inference."""
    step = _Step(model_group, data_group)
    if text.parallelism in DLRM:
        return _recommendation(step, text)
    for layer in text.layers:
        _forward(step, layer, "forward")
    if text.parallelism == "DISTRIBUTED_INFERENCE":
        return step.nodes
    for at in range(len(text.layers) - 1, -1, -1):
        if at in text.recomputed_at:
            first = max((c for c in text.checkpoints if c <= at), default=at)
            for layer in text.layers[first : at + 1]:
                _forward(step, layer, "recompute")
        _backward(step, text.layers[at], is_first=at == 0)
    return step.nodes


def _recommendation(step: _Step, text: TextWorkload) -> list[NodeSpec]:
    """Return the nodes of one step of DLRM, whose layer 0 holds the embeddings."""
    looked_up: tuple[int, ...] = ()
    for at, layer in enumerate(text.layers):
        before = _forward(step, layer, "forward")
        if at == 0:
            looked_up, step.ready = step.ready, before
        if at == text.last_bottom:
            step.ready = tuple(sorted({*step.ready, *looked_up}))
    for at in range(len(text.layers) - 1, -1, -1):
        layer = text.layers[at]
        computed = step.compute(
            f"{layer.name}.weight_grad", layer.weight_gradient.time_us, step.ready
        )
        step.ready = computed
        _update(step, layer, computed)
        if at == 0:
            break
        phase = layer.input_gradient
        done = step.compute(f"{layer.name}.input_grad", phase.time_us, computed)
        step.ready = step.communicate(f"{layer.name}.input_grad_comm", phase, "", done)
        if at == text.last_bottom + 1:
            first = text.layers[0]
            step.communicate(f"{first.name}.input_grad_comm", first.input_gradient, "", step.ready)
    return step.nodes


def _forward(step: _Step, layer: TextLayer, label: str) -> tuple[int, ...]:
    """Add the forward part of a layer and return its computation; what follows waits for all."""
    phase = layer.forward
    done = step.compute(f"{layer.name}.{label}", phase.time_us, step.ready)
    step.ready = step.communicate(f"{layer.name}.{label}_comm", phase, step.model_group, done)
    return done


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
