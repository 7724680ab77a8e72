"""Text workloads of ASTRA-sim 1.0: one training step, one line per layer.

Line 1 is the parallelism with its parameters, line 2 the number of layers, then for each layer:
name, dependency (unused, -1), forward time, collective, bytes; the same for the input gradient and
the weight gradient; update time; for ``HYBRID_CUSTOMIZED`` the layer's own parallelism. Times
become microseconds, as in Chakra's own converter. Line 1 of ``HYBRID_DLRM`` brings the number of
the last layer of the bottom network, alone or behind ``DLRM_LAST_BOTTOM_LAYER:``. SimAI's AICB
writes further keys into line 1 (``_SIMAI``); its layers are those of one stage, which is the whole
model where ``pp`` is 1; other jobs are refused.

The step runs forward layer by layer, each waiting for the collective of the one before; then
backward from the last layer, where the weight gradient's collective runs beside the rest and is
followed by the update. With data parallelism the weight gradient comes first, so that its
collective starts early; else the input gradient, whose collective the layer before waits for.

DLRM: the all-to-all of the embeddings (layer 0) runs beside the bottom network, and the top
network waits for both; backward, that of their gradients starts when the top network is done and
runs beside the bottom network. Inference is the forward part alone.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from layerdag.errors import TraceError
from layerdag.hardware.collectives import COLLECTIVES, CollectiveType
from layerdag.runtime.notes import Note, NoteCollector, NoteKind
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.trace import Attribute, NodeType, Wire, Workload

DLRM = ("HYBRID_DLRM", "HYBRID_DLRM_ENHANCED")
PARALLELISMS: tuple[str, ...] = (
    *("MICRO", "DATA", "MODEL", "HYBRID_DATA_MODEL", "HYBRID_MODEL_DATA", "HYBRID_CUSTOMIZED"),
    *("HYBRID_TRANSFORMER", "HYBRID_TRANSFORMER_FWD_IN_BCKWD", *DLRM, "DISTRIBUTED_INFERENCE"),
)
_COLLECTIVES = {
    "NONE": None,
    **{row.kernel.upper(): row.type for row in COLLECTIVES if row.measured},
}


@dataclass(frozen=True)
class TrainingPhase:
    """Computation of a layer in one direction, and the collective of ``size`` bytes behind it."""

    time_us: int
    collective: CollectiveType | None
    size: int


@dataclass(frozen=True)
class TextLayer:
    """One line of the file."""

    name: str
    forward: TrainingPhase
    input_gradient: TrainingPhase
    weight_gradient: TrainingPhase
    update_us: int
    parallelism: str


@dataclass(frozen=True)
class TextWorkload:
    """A parsed file.

    Attributes:
        model_group: Ranks of a tensor-parallel group, 0 if the file does not say.
        checkpoints: First layers of the stretches that are computed again.
        recomputed_at: Layers before whose backward a stretch is computed again.
        last_bottom: Last layer of the bottom network of DLRM, -1 for other workloads.
        all_ranks: Ranks of the job, 0 if the file does not say.
        notes: What of line 1 has no meaning here.
    """

    parallelism: str
    layers: tuple[TextLayer, ...]
    model_group: int = 0
    checkpoints: tuple[int, ...] = ()
    recomputed_at: tuple[int, ...] = ()
    last_bottom: int = -1
    all_ranks: int = 0
    notes: tuple[Note, ...] = ()


def parse_text(data: bytes, source: str = "<memory>") -> TextWorkload:
    """Parse a text workload.

    Raises:
        TraceError: If the parallelism, a collective or a number is unknown, or layers are missing;
            names the line.
    """
    lines = [line.split() for line in data.decode("utf-8", "replace").splitlines()]
    lines = [fields for fields in lines if fields]
    if len(lines) < 2 or lines[0][0] not in PARALLELISMS:
        known = ", ".join(PARALLELISMS)
        found = lines[0][0][:40] if lines else "nothing"
        raise TraceError(
            f"{source}: line 1 names the parallelism '{found}'; layerdag reads {known}."
        )
    count = _count(lines[1][0], source, 2)
    if len(lines) != count + 2:
        raise TraceError(
            f"{source}: line 2 announces {count} layers but {len(lines) - 2} follow; the file is "
            "cut off or the number is wrong."
        )
    layers = tuple(
        _layer(fields, lines[0][0], source, at) for at, fields in enumerate(lines[2:], start=3)
    )
    parallelism, *fields = lines[0]
    if parallelism not in DLRM:
        return TextWorkload(parallelism, layers, **_parameters(fields, source))
    fields = fields[1:] if fields[:1] == ["DLRM_LAST_BOTTOM_LAYER:"] else fields
    if len(fields) != 1:
        raise TraceError(
            f"{source}: line 1 does not say which layer is the last one of the bottom network; "
            f"write '{parallelism} DLRM_LAST_BOTTOM_LAYER: <number>'."
        )
    last = _number(fields[0], source, 1)
    if last >= len(layers) - 1:
        raise TraceError(
            f"{source}: line 1 ends the bottom network at layer {last}, but the last of all layers "
            f"is {len(layers) - 1} and belongs to the top network; correct the number."
        )
    return TextWorkload(parallelism, layers, last_bottom=last)


def _number(word: str, source: str, line: int) -> int:
    """Return a count, time or size; times may have a fraction, which is rounded."""
    try:
        value = round(float(word))
    except (ValueError, OverflowError):
        value = -1
    if not 0 <= value < 2**63:
        raise TraceError(f"{source}: line {line} has '{word[:40]}' where a number is needed.")
    return value


def _count(word: str, source: str, line: int) -> int:
    value = _number(word, source, line)
    if float(word) != value:
        raise TraceError(f"{source}: line {line} has '{word[:40]}' where a whole number is needed.")
    return value


def _layer(fields: list[str], parallelism: str, source: str, line: int) -> TextLayer:
    if len(fields) < 12:
        raise TraceError(
            f"{source}: line {line} has {len(fields)} columns; a layer has 12: name, dependency, "
            "three times (time, collective, bytes), update time."
        )
    own = fields[12] if len(fields) > 12 else parallelism
    if len(fields) > 13 or own not in PARALLELISMS:
        raise TraceError(
            f"{source}: line {line} has '{' '.join(fields[12:])[:40]}' behind its 12 columns; of "
            "HYBRID_CUSTOMIZED a parallelism may stand there, else nothing."
        )
    phases = []
    for at in (2, 5, 8):
        if fields[at + 1] not in _COLLECTIVES:
            raise TraceError(
                f"{source}: line {line} has the collective '{fields[at + 1][:40]}'; known are "
                f"{', '.join(_COLLECTIVES)}."
            )
        time_us, size = _number(fields[at], source, line), _count(fields[at + 2], source, line)
        phases.append(TrainingPhase(time_us, _COLLECTIVES[fields[at + 1]], size))
    update_us = _number(fields[11], source, line)
    return TextLayer(fields[0], phases[0], phases[1], phases[2], update_us, own)


_LISTS = {"checkpoints": "checkpoints", "checkpoint_initiates": "recomputed_at"}
_SIMAI = ("ep", "pp", "vpp", "ga", "pp_comm")
_KEYS = ("model_parallel_NPU_group", *_LISTS, "all_gpus", *_SIMAI)


def _parameters(fields: list[str], source: str) -> dict[str, Any]:
    """Return the parameters of line 1 as entries of the workload.

    A key of SimAI that makes another job of the layers is refused, one without effect noted.
    """
    notes = NoteCollector(source)
    found: dict[str, Any] = {}
    at = 0
    while at < len(fields):
        key = fields[at].rstrip(":")
        if key not in _KEYS:
            raise TraceError(
                f"{source}: line 1 has the key '{key[:40]}', which layerdag does not know; known "
                f"are {', '.join(_KEYS)}."
            )
        if at + 1 == len(fields):
            raise TraceError(f"{source}: line 1 has '{key}' without its number.")
        value = _number(fields[at + 1], source, 1)
        at += 2
        if key in _LISTS:
            layers = tuple(_number(word, source, 1) for word in fields[at : at + value])
            if len(layers) != value:
                raise TraceError(
                    f"{source}: line 1 has '{key}' of {value} layers, but names {len(layers)}."
                )
            found[_LISTS[key]] = layers
            at += value
        elif key == "model_parallel_NPU_group":
            found["model_group"] = value
        elif key == "all_gpus":
            found["all_ranks"] = value
        elif key in ("ep", "pp") and value > 1:
            what = "expert groups" if key == "ep" else "stages of a pipeline"
            raise TraceError(
                f"{source}: line 1 has SimAI's key '{key}' of {value}; the layers are of one rank "
                f"of a job with {what}, which this text does not describe. Give a workload with "
                f"{key} 1."
            )
        elif key == "ga" and value > 1:
            effect = "accumulation of gradients is not repeated; the layers are run once"
            notes.add(NoteKind.KEY, f"ga: {value}", effect, where="line 1")
    return {**found, "notes": notes.notes}


def text_to_workload(text: TextWorkload, num_ranks: int, source: str = "<memory>") -> Workload:
    """Return the traces of one training step on ``num_ranks`` ranks.

    With ``model_parallel_NPU_group: k``, forward and input-gradient collectives stay inside groups
    of k neighboring ranks, and weight-gradient collectives join equal places of these groups.
    Without it, every collective is one of all ranks.

    Raises:
        TraceError: If ``num_ranks`` is not a multiple of the group size.
    """
    size, notes = text.model_group, NoteCollector(source)
    notes.extend(text.notes)
    if text.all_ranks not in (0, num_ranks):
        effect = f"the file is of so many ranks; traces are made for {num_ranks}"
        notes.add(NoteKind.NUMBER, f"all_gpus: {text.all_ranks}", effect, where="line 1")
    if num_ranks < 1 or (size and num_ranks % size):
        raise TraceError(
            f"{source}: {num_ranks} ranks cannot be split into groups of {size}; choose a multiple."
        )
    if not size or size == num_ranks:
        trace = build_trace(_step(text, "", ""), source=source)
        return Workload((trace,) * num_ranks, {}, source, notes.notes)
    model = [tuple(range(at, at + size)) for at in range(0, num_ranks, size)]
    data = [tuple(range(at, num_ranks, size)) for at in range(size)]
    groups = {str(at + 1): ranks for at, ranks in enumerate([*model, *data])}
    traces = tuple(
        build_trace(
            _step(text, str(rank // size + 1), str(len(model) + rank % size + 1)), source=source
        )
        for rank in range(num_ranks)
    )
    return Workload(traces, groups, source, notes.notes)


_ON_DEVICE = Attribute("is_cpu_op", Wire.BOOL, False)


@dataclass
class _Step:
    """The nodes of a step so far; ``ready`` are the ids that the next computation waits for."""

    model_group: str
    data_group: str
    nodes: list[NodeSpec] = field(default_factory=list)
    ready: tuple[int, ...] = ()

    def compute(self, name: str, time_us: int, after: tuple[int, ...]) -> tuple[int, ...]:
        """Add a computation and return its id."""
        return self._add(NodeSpec(0, name, NodeType.COMP, after, (), 0, time_us, (_ON_DEVICE,)))

    def communicate(
        self, name: str, phase: TrainingPhase, group: str, after: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Add the collective of a phase, if it has one, and return what to wait for."""
        if phase.collective is None or phase.size == 0:
            return after
        attributes = [
            _ON_DEVICE,
            Attribute("comm_type", Wire.INT64, int(phase.collective)),
            Attribute("comm_size", Wire.INT64, phase.size),
        ]
        if group:
            attributes.append(Attribute("pg_name", Wire.STRING, group))
        kind = NodeType.COMM_COLL
        return self._add(NodeSpec(0, name, kind, after, attributes=tuple(attributes)))

    def _add(self, node: NodeSpec) -> tuple[int, ...]:
        self.nodes.append(replace(node, id=len(self.nodes)))
        return (len(self.nodes) - 1,)


def _step(text: TextWorkload, model_group: str, data_group: str) -> list[NodeSpec]:
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
        step.ready = _weight_gradient(step, layer, step.ready)
        if at == 0:
            break
        phase = layer.input_gradient
        done = step.compute(f"{layer.name}.input_grad", phase.time_us, step.ready)
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
    """Add the gradients; that of the input is not needed in the first layer."""
    weight_first = layer.parallelism in ("DATA", "MICRO")
    computed = step.ready
    if weight_first:
        computed = step.ready = _weight_gradient(step, layer, computed)
    if not is_first:
        data, name = layer.input_gradient, f"{layer.name}.input_grad"
        computed = step.compute(name, data.time_us, computed)
        step.ready = step.communicate(f"{name}_comm", data, step.model_group, computed)
    if not weight_first:
        _weight_gradient(step, layer, computed)


def _weight_gradient(step: _Step, layer: TextLayer, after: tuple[int, ...]) -> tuple[int, ...]:
    """Add the gradient of the weights and their update, and return its computation."""
    phase, name = layer.weight_gradient, f"{layer.name}.weight_grad"
    computed = step.compute(name, phase.time_us, after)
    reduced = step.communicate(f"{name}_comm", phase, step.data_group, computed)
    if layer.update_us:
        step.compute(f"{layer.name}.update", layer.update_us, reduced)
    return computed
