"""Text workloads of ASTRA-sim 1.0: one training step, one line per layer.

Line 1 is the parallelism with its parameters, line 2 the number of layers, then for each layer:
name, dependency (unused, -1), forward time, collective, bytes; the same for the input gradient and
the weight gradient; update time; for ``HYBRID_CUSTOMIZED`` the layer's own parallelism. Times
become microseconds, as in Chakra's own converter.

Line 1 of ``HYBRID_DLRM`` brings the number of the last layer of the bottom network, alone or behind
``DLRM_LAST_BOTTOM_LAYER:``. `astra_step` says what step is built.
"""

from dataclasses import dataclass, replace

from layerdag.errors import TraceError
from layerdag.traces import CollectiveType

PARALLELISMS: tuple[str, ...] = (
    "MICRO",
    "DATA",
    "MODEL",
    "HYBRID_DATA_MODEL",
    "HYBRID_MODEL_DATA",
    "HYBRID_CUSTOMIZED",
    "HYBRID_TRANSFORMER",
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD",
    "HYBRID_DLRM",
    "HYBRID_DLRM_ENHANCED",
    "DISTRIBUTED_INFERENCE",
)
_COLLECTIVES = {
    "NONE": None,
    "ALLREDUCE": CollectiveType.ALL_REDUCE,
    "ALLGATHER": CollectiveType.ALL_GATHER,
    "REDUCESCATTER": CollectiveType.REDUCE_SCATTER,
    "ALLTOALL": CollectiveType.ALL_TO_ALL,
}
DLRM = ("HYBRID_DLRM", "HYBRID_DLRM_ENHANCED")


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
        last_bottom: Last layer of the bottom network of DLRM, -1 for other workloads.
    """

    parallelism: str
    layers: tuple[TextLayer, ...]
    model_group: int = 0
    checkpoints: tuple[int, ...] = ()
    recomputed_at: tuple[int, ...] = ()
    last_bottom: int = -1


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
    count = _number(lines[1][0], source, 2)
    if len(lines) != count + 2:
        raise TraceError(
            f"{source}: line 2 announces {count} layers but {len(lines) - 2} follow; the file is "
            "cut off or the number is wrong."
        )
    layers = tuple(
        _layer(fields, lines[0][0], source, at) for at, fields in enumerate(lines[2:], start=3)
    )
    text = TextWorkload(lines[0][0], layers)
    if text.parallelism in DLRM:
        return _with_bottom(text, lines[0][1:], source)
    return _with_parameters(text, lines[0][1:], source)


def _with_bottom(text: TextWorkload, fields: list[str], source: str) -> TextWorkload:
    """Return a DLRM workload with the last layer of its bottom network."""
    fields = fields[1:] if fields[:1] == ["DLRM_LAST_BOTTOM_LAYER:"] else fields
    if len(fields) != 1:
        raise TraceError(
            f"{source}: line 1 does not say which layer is the last one of the bottom network; "
            f"write '{text.parallelism} DLRM_LAST_BOTTOM_LAYER: <number>'."
        )
    last = _number(fields[0], source, 1)
    if last >= len(text.layers) - 1:
        raise TraceError(
            f"{source}: line 1 ends the bottom network at layer {last}, but the last of all layers "
            f"is {len(text.layers) - 1} and belongs to the top network; correct the number."
        )
    return replace(text, last_bottom=last)


def _number(word: str, source: str, line: int) -> int:
    """Return a count, time or size; times may have a fraction, which is rounded."""
    try:
        value = round(float(word))
    except (ValueError, OverflowError):
        value = -1
    if not 0 <= value < 2**63:
        raise TraceError(f"{source}: line {line} has '{word[:40]}' where a number is needed.")
    return value


def _layer(fields: list[str], parallelism: str, source: str, line: int) -> TextLayer:
    """Return one layer."""
    if len(fields) < 12:
        raise TraceError(
            f"{source}: line {line} has {len(fields)} columns; a layer has 12: name, dependency, "
            "three times (time, collective, bytes), update time."
        )
    phases = []
    for at in (2, 5, 8):
        if fields[at + 1] not in _COLLECTIVES:
            raise TraceError(
                f"{source}: line {line} has the collective '{fields[at + 1][:40]}'; known are "
                f"{', '.join(_COLLECTIVES)}."
            )
        time_us, size = (_number(fields[i], source, line) for i in (at, at + 2))
        phases.append(Phase(time_us, _COLLECTIVES[fields[at + 1]], size))
    own = fields[12] if len(fields) > 12 else parallelism
    update_us = _number(fields[11], source, line)
    return TextLayer(fields[0], phases[0], phases[1], phases[2], update_us, own)


def _with_parameters(text: TextWorkload, fields: list[str], source: str) -> TextWorkload:
    """Return the workload with the parameters of line 1."""
    at = 0
    while at < len(fields):
        key = fields[at].rstrip(":")
        count = 1 if key == "model_parallel_NPU_group" else 0
        if key in ("checkpoints", "checkpoint_initiates") and at + 1 < len(fields):
            at += 1
            count = _number(fields[at], source, 1)
        values = tuple(_number(word, source, 1) for word in fields[at + 1 : at + 1 + count])
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
