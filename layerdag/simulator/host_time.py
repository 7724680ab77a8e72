"""Time of the host, which launches what the device runs: a step lasts as long as the longer one.

Three treatments. ``model``: a node on the processor before each node of the device, one after the
other, whose time is that of an eager operator and its calls. ``measured``: the calls of an imported
profile keep their times, and the gaps between them become part of the call that follows.
``none``: calls take no time, as under ``torch.compile`` with graphs.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from layerdag.errors import ConfigError, UsageError
from layerdag.traces.analysis import summarize_trace
from layerdag.traces.trace import AttributeTable, NodeType, Ragged, Trace, Wire, Workload

HOST_CALLS = "host_calls"
"""Attribute of imported nodes: operators and autograd functions that the host entered for it."""
_USUAL_CALLS = 10
"""Calls of an operator whose trace states none (an average of 73 traces of training)."""
HOST_CHOICES = ("model", "measured", "none")


@final
@dataclass(frozen=True)
class HostCosts:
    """Time that eager PyTorch spends on the host.

    The defaults were fitted to 44 steps that one H100 with a server processor left waiting.

    Attributes:
        operator_ns: For each operator that starts device work, its launches included.
        call_ns: For each operator or autograd function that is entered, views and wrappers too.
    """

    operator_ns: float = 4725.0
    call_ns: float = 2530.0

    def __post_init__(self) -> None:
        if not (self.operator_ns >= 0 and self.call_ns >= 0):
            raise ConfigError(
                f"host costs are {self.operator_ns} and {self.call_ns} ns; they must not be "
                "negative."
            )


def knows_calls(workload: Workload) -> bool:
    """Return whether the traces say what the host did, as imported host traces do."""
    return any(trace.integers(HOST_CALLS)[1].any() for trace in workload.traces)


def with_host(
    workload: Workload, how: str, makespan_s: Callable[[Workload], float]
) -> tuple[Workload, float | None]:
    """Return the workload with the host's time as ``--host`` asks for it, and its scale if found.

    ``how`` is "model", "measured", "measured:X", "measured:step=SECONDS", "none", or "" for what
    the traces hold; ``makespan_s`` simulates a workload.

    Raises:
        UsageError: If ``how`` is none of these.
        ConfigError: If the traces do not have what it needs.
    """
    word, _, rest = how.partition(":")
    if not word:
        return workload, None
    if word not in HOST_CHOICES or (rest and word != "measured"):
        raise UsageError(f"--host is '{how}'; write {', '.join(HOST_CHOICES)}.")
    if word == "model":
        return with_host_model(workload), None
    try:
        number = float(rest.removeprefix("step=")) if rest else 1.0
    except ValueError:
        raise UsageError(
            f"--host is '{how}'; write measured:0.5 or measured:step=0.0123."
        ) from None
    if word == "none" or not rest.startswith("step="):
        return with_measured_host(workload, 0.0 if word == "none" else number), None
    scale = host_scale(makespan_s, workload, number)
    return with_measured_host(workload, scale), scale


def with_host_model(workload: Workload, costs: HostCosts | None = None) -> Workload:
    """Return the workload with a node of the host before each node of the device.

    Its nodes must all be the device's; order of ids is the order of launches.

    Raises:
        ConfigError: If it has nodes on the processor, as an imported profile does.
    """
    costs = costs or HostCosts()
    return _changed(workload, lambda trace: _launched(trace, costs))


def with_measured_host(workload: Workload, scale: float = 1.0) -> Workload:
    """Return the workload whose calls of the host take their measured time and gap times ``scale``.

    It is below 1 where the profiler itself made calls and gaps longer.

    Raises:
        ConfigError: If no node on the processor states when it started.
    """
    if not 0 <= scale < float("inf"):
        raise ConfigError(f"the scale of the host's time is {scale}; it must not be negative.")
    return _changed(workload, lambda trace: _with_gaps(trace, scale))


def replayed_step_us(workload: Workload) -> int | None:
    """Return how long the longest rank's step of an imported profile lasts, in microseconds.

    That is its longest path with the gaps between the calls of the host; None where no node on the
    processor states when it started.
    """
    traces = {id(trace): trace for trace in workload.traces}.values()
    told = [trace for trace in traces if (_on_cpu(trace) & trace.integers("start_ns")[1]).any()]
    steps = [summarize_trace(_with_gaps(trace, 1.0)).critical_path_us for trace in told]
    return max(steps, default=None)


MAX_SCALE = 1024.0
"""Largest scale of the host's time that is tried."""


def host_scale(makespan_s: Callable[[Workload], float], workload: Workload, step_s: float) -> float:
    """Return the scale of the host's time with which a step lasts as long as without profiler.

    It is above 1 where the step is longer than the replay of the profile.

    ``step_s`` was measured without the profiler; ``makespan_s`` simulates a workload.

    Raises:
        ConfigError: If ``step_s`` is not positive, or no scale makes the step so long.
    """
    if not 0 < step_s < float("inf"):
        raise ConfigError(f"the measured step is {step_s} s; give a positive number of seconds.")
    low, high = 0.0, 1.0
    while (reached := makespan_s(with_measured_host(workload, high))) < step_s:
        if high >= MAX_SCALE:
            raise ConfigError(
                f"the measured step is {step_s:g} s, but with {high:g} times the host's time the "
                f"replay lasts {reached:g} s; check the step and its unit, which is seconds."
            )
        low, high = high, 2 * high
    for _ in range(12):
        middle = (low + high) / 2
        if makespan_s(with_measured_host(workload, middle)) > step_s:
            high = middle
        else:
            low = middle
    return (low + high) / 2


def _changed(workload: Workload, change: Callable[[Trace], Trace]) -> Workload:
    """Return the workload with each trace changed; traces that ranks share stay shared."""
    found: dict[int, Trace] = {}
    for trace in workload.traces:
        if id(trace) not in found:
            found[id(trace)] = change(trace)
    return replace(workload, traces=tuple(found[id(trace)] for trace in workload.traces))


def _on_cpu(trace: Trace) -> np.ndarray:
    return trace.integers("is_cpu_op")[0] != 0


def _launched(trace: Trace, costs: HostCosts) -> Trace:
    if _on_cpu(trace).any():
        raise ConfigError(
            f"{trace.source}: has calls of the host already; write --host measured, or convert the "
            "host trace without its profile."
        )
    works = trace.type_N != NodeType.METADATA
    order = np.flatnonzero(works)[np.argsort(trace.id_N[works], kind="stable")]
    if not len(order):
        return trace
    calls = trace.integers(HOST_CALLS, _USUAL_CALLS)[0][order]
    time_ns = np.rint(costs.operator_ns + costs.call_ns * calls).astype(np.int64)
    launch_ids = np.uint64(int(trace.id_N.max()) + 1) + np.arange(len(order), dtype=np.uint64)
    launch_of_N = dict(zip(order.tolist(), launch_ids.tolist(), strict=True))
    ctrl = [trace.ctrl_deps.of(row).tolist() for row in range(trace.num_nodes)]
    for row, launch in launch_of_N.items():
        ctrl[row].append(launch)
    ctrl += [[], *([before] for before in launch_ids[:-1].tolist())]
    data, table = trace.data_deps, trace.attributes
    words = ("launch", "is_cpu_op", "duration_ns")
    strings = (*trace.strings, *(word for word in words if word not in trace.strings))
    name, cpu, duration = (strings.index(word) for word in words)
    ends = table.ptr_N1[-1] + 2 * np.arange(1, len(order) + 1)
    word_A = np.stack([np.ones_like(time_ns), time_ns], axis=1)
    return replace(
        trace,
        id_N=_appended(trace.id_N, launch_ids),
        name_N=_extended(trace.name_N, len(order), name),
        type_N=_extended(trace.type_N, len(order), int(NodeType.COMP)),
        start_us_N=_extended(trace.start_us_N, len(order), 0),
        duration_us_N=_appended(trace.duration_us_N, (time_ns + 500) // 1000),
        data_deps=Ragged(_extended(data.ptr_N1, len(order), int(data.ptr_N1[-1])), data.values),
        ctrl_deps=_ragged(ctrl),
        io_N6=_appended(trace.io_N6, np.full((len(order), 6), -1)),
        attributes=AttributeTable(
            _appended(table.ptr_N1, ends),
            _appended(table.name_A, np.tile([cpu, duration], len(order))),
            _appended(table.wire_A, np.tile([int(Wire.BOOL), int(Wire.INT64)], len(order))),
            _appended(table.word_A, word_A.ravel().view(np.uint64)),
            _extended(table.doc_A, 2 * len(order), -1),
            table.blobs,
        ),
        strings=strings,
    )


def _appended(column: np.ndarray, more: np.ndarray) -> np.ndarray:
    return np.concatenate([column, more.astype(column.dtype)])


def _extended(column: np.ndarray, count: int, value: int) -> np.ndarray:
    return np.concatenate([column, np.full(count, value, column.dtype)])


def _ragged(lists: list[list[int]]) -> Ragged:
    ends = np.cumsum([0, *(len(each) for each in lists)])
    return Ragged(ends, np.array([dep for each in lists for dep in each], dtype=np.uint64))


def _with_gaps(trace: Trace, scale: float) -> Trace:
    start_N, started_N = trace.integers("start_ns")
    duration_N = trace.integers("duration_ns")[0]
    calls = np.flatnonzero(_on_cpu(trace) & started_N)
    if not len(calls):
        raise ConfigError(
            f"{trace.source}: no call of the host tells when it started; convert a profile with "
            "device activities, or write --host model."
        )
    calls = calls[np.argsort(start_N[calls], kind="stable")]
    new_ns = duration_N.copy()
    ctrl = [trace.ctrl_deps.of(row).tolist() for row in range(trace.num_nodes)]
    last, last_end = -1, 0
    for row in calls.tolist():
        gap = int(start_N[row]) - last_end
        if last >= 0 and gap >= 0:
            before = int(trace.id_N[last])
            if before not in ctrl[row]:
                ctrl[row].append(before)
            new_ns[row] += gap
        new_ns[row] = round(scale * int(new_ns[row]))
        end = int(start_N[row] + duration_N[row])
        if end >= last_end:
            last, last_end = row, end
    duration_us = trace.duration_us_N.copy()
    duration_us[calls] = (new_ns[calls] + 500) // 1000
    table = trace.attributes
    node_A = np.repeat(np.arange(trace.num_nodes), np.diff(table.ptr_N1))
    named_A = table.name_A == trace.strings.index("duration_ns")
    at = np.flatnonzero(named_A & np.isin(node_A, calls))
    word_A = table.word_A.copy()
    word_A[at] = new_ns[node_A[at]].astype(np.int64).view(np.uint64)
    return replace(
        trace,
        ctrl_deps=_ragged(ctrl),
        duration_us_N=duration_us,
        attributes=replace(table, word_A=word_A),
    )
