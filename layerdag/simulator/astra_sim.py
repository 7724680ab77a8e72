"""ASTRA-sim itself: a run of the user's own binary, and its report of local memory.

The output of its analytical binary is checked to be complete. ASTRA-sim ends with exit code 0 when
ranks are stuck, and builds without its teardown fix end with another one after a sane run
(docs/reference/simulator.md), so the exit code does not count. A run counts when every rank printed
its "finished" line once and every node of every rank was reported done.

Local memory is reported as by ``track-local-mem``: its peak, and files for Perfetto. A tensor is
held from the issue of the node that writes it, from tick 0 where it is read before, to the end of
its last reader; one that nobody reads is held to the end. Tensors of 0 bytes do not count. This
differs from ``analysis.local_memory``, where what was there before the run (weights) is held for
the whole run.
"""

import json
import re
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.errors import ConfigError, SimulationError, UsageError
from layerdag.runtime.files import write_text
from layerdag.runtime.reading import read_whole
from layerdag.simulator.analysis import tensor_lists
from layerdag.simulator.config import RunOptions
from layerdag.simulator.run import SimulationResult, write_node_rows
from layerdag.traces.chakra.workload import rank_files
from layerdag.traces.trace import NodeType, Trace, Workload

_FINISHED = re.compile(r"sys\[(\d+)\] finished, (\d+) cycles, exposed communication (-?\d+) cycles")
_NODE = re.compile(r"\b(issue|callback),\s*sys->id=(\d+),\s*tick=(\d+),\s*node->id=(\d+)\b")
_CAUSE = re.compile(
    r"critical|error|fatal|assert|what\(\)|removed before call|terminate|unsupported|expected",
    re.IGNORECASE,
)
"""Words of the lines in which ASTRA-sim says why it stops; the last line is often "Exiting"."""
_LAST_WORDS = 200


@dataclass(frozen=True)
class AstraRequest:
    """What the binary is asked to run, by the paths of its files.

    Attributes:
        binary: ``AstraSim_Analytical_Congestion_Unaware`` or ``..._Aware``.
        prefix: The workload's files, ``prefix.<rank>.et`` or ``.et.gz``.
        system: "trace-enabled" is switched on in a copy.
        memory: None for no remote memory.
        options: Queues, injection scale and rendezvous; the congestion model is the binary's own.
        timeout_s: Seconds after which the run is given up: some inputs make the binary spin.
        logging: ASTRA-sim's logging configuration, None for its default.
        log_folder: Where its log files are copied, None for nowhere.
    """

    binary: str
    prefix: str
    system: str
    network: str
    memory: str | None
    options: RunOptions
    timeout_s: float
    logging: str | None = None
    log_folder: str | None = None


@dataclass(frozen=True)
class AstraOutcome:
    """A complete run of the binary; all times in ns (1 cycle = 1 ns).

    ``ticks`` are (issue, finish) of each (rank, node id).
    """

    finish_ns: tuple[int, ...]
    exposed_comm_ns: tuple[int, ...]
    ticks: dict[tuple[int, int], tuple[int, int]]

    def summary(self) -> dict[str, object]:
        """Return the outcome under the keys of ``SimulationResult.summary``."""
        return {
            "backend": "astra-sim",
            "makespan": max(self.finish_ns),
            "finish": {str(rank): time for rank, time in enumerate(self.finish_ns)},
            "exposed_comm": {str(rank): time for rank, time in enumerate(self.exposed_comm_ns)},
            "ranks": len(self.finish_ns),
            "nodes": len(self.ticks),
            "unit": "ns",
        }


def run_binary(workload: Workload, request: AstraRequest) -> AstraOutcome:
    """Run the binary on the files of ``workload`` and return its outcome, if it is complete.

    Args:
        workload: What ``request.prefix`` holds, with the groups to use; defines what must complete.
        request: Binary and files.

    Raises:
        UsageError: If the binary cannot be started.
        ConfigError: If ``system.json`` cannot be read.
        SimulationError: If the job has one rank, the binary does not end in time, or its run is
            incomplete; names the first rank or node that is missing.
    """
    if workload.num_ranks == 1:
        raise SimulationError(
            f"{request.prefix}: is a job of one rank; ASTRA-sim's network needs two or more. Leave "
            "--backend out: layerdag's own simulator runs it."
        )
    with tempfile.TemporaryDirectory(prefix="layerdag-astra-") as name:
        folder = Path(name)
        command = _command(workload, request, folder)
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, timeout=request.timeout_s, check=False
            )
        except OSError as error:
            raise UsageError(
                f"{request.binary}: cannot be run ({error.strerror}); give the path of "
                "ASTRA-sim's executable to --binary."
            ) from None
        except subprocess.TimeoutExpired:
            raise SimulationError(
                f"{request.binary}: did not end within {request.timeout_s:g} s; ASTRA-sim spins on "
                "some inputs, see what our own backend says, or raise --timeout."
            ) from None
        printed = _text(done.stdout) + "\n" + _text(done.stderr)
        logs = [_text(path.read_bytes()) for path in sorted(folder.rglob("*.log"))]
        if request.log_folder:
            target = Path(request.log_folder)
            try:
                target.mkdir(parents=True, exist_ok=True)
                for path in sorted(folder.rglob("*.log")):
                    shutil.copyfile(path, target / path.name)
            except OSError as error:
                raise UsageError(
                    f"{target}: logs cannot be written there ({error.strerror})."
                ) from None
    try:
        return parse_outcome("\n".join([printed, *logs]), workload)
    except SimulationError as error:
        lines = printed.strip().splitlines() or ["nothing"]
        cause = next((line for line in reversed(lines) if _CAUSE.search(line)), lines[-1])
        last = (line.strip()[:_LAST_WORDS] for line in dict.fromkeys([cause, lines[-1]]))
        raise SimulationError(
            f"{request.binary}: {error} Its exit code was {done.returncode}, "
            f"the last it printed: {' ... '.join(last)}"
        ) from None


def parse_outcome(printed: str, workload: Workload) -> AstraOutcome:
    """Return the outcome in ASTRA-sim's output if the run is complete.

    Args:
        printed: Console output and log files, in any order; lines may occur twice.
        workload: What must have completed.

    Raises:
        SimulationError: If a rank has no "finished" line or two that differ, or a node was not
            issued and done; names rank and node.
    """
    finished: dict[int, tuple[int, int]] = {}
    for rank, finish, exposed in _FINISHED.findall(printed):
        entry = (int(finish), int(exposed))
        if finished.setdefault(int(rank), entry) != entry:
            raise SimulationError(f"rank {rank} finished twice, with different results.")
    ranks = range(workload.num_ranks)
    missing = [rank for rank in ranks if rank not in finished]
    if missing:
        raise SimulationError(
            f"rank {missing[0]} printed no 'finished' line ({len(missing)} of {len(ranks)} ranks "
            "did not): the run is incomplete."
        )
    if len(finished) > len(ranks):
        raise SimulationError(
            f"rank {max(finished)} finished, but the workload has {len(ranks)} ranks."
        )
    return AstraOutcome(
        finish_ns=tuple(finished[rank][0] for rank in ranks),
        exposed_comm_ns=tuple(finished[rank][1] for rank in ranks),
        ticks=_ticks(printed, workload),
    )


def _ticks(printed: str, workload: Workload) -> dict[tuple[int, int], tuple[int, int]]:
    seen: dict[str, dict[tuple[int, int], int]] = {"issue": {}, "callback": {}}
    for what, rank, tick, node in _NODE.findall(printed):
        seen[what][int(rank), int(node)] = int(tick)
    wanted = [
        (rank, node)
        for rank, trace in enumerate(workload.traces)
        for node in sorted(trace.id_N.tolist())
    ]
    missing = [key for key in wanted if key not in seen["callback"] or key not in seen["issue"]]
    if missing:
        rank, node = missing[0]
        raise SimulationError(
            f"node {node} of rank {rank} is not reported done ({len(missing)} of {len(wanted)} "
            "nodes are not): the run is incomplete, or its log was cut."
        )
    return {key: (seen["issue"][key], seen["callback"][key]) for key in wanted}


def write_ticks(outcome: AstraOutcome, workload: Workload, path: str | Path) -> None:
    """Write the ticks of every node, as ``write_nodes`` does."""
    write_node_rows(
        (
            (rank, node, kind, *outcome.ticks[rank, node], NodeType(kind).name, name)
            for rank, trace in enumerate(workload.traces)
            for node, kind, name in sorted(
                zip(trace.id_N.tolist(), trace.type_N.tolist(), trace.names(), strict=True)
            )
        ),
        path,
    )


def _command(workload: Workload, request: AstraRequest, folder: Path) -> list[str]:
    for rank, path in enumerate(rank_files(request.prefix)):
        target = folder / f"workload.{rank}.et"
        if path.suffix in (".gz", ".xz"):
            target.write_bytes(read_whole(path))
        else:
            target.symlink_to(path.resolve())
    memory = Path(request.memory).resolve() if request.memory else folder / "memory.json"
    if not request.memory:
        write_text(memory, json.dumps({"memory-type": "NO_MEMORY_EXPANSION"}))
    groups = folder / "comm_group.json"
    if workload.groups:
        write_text(groups, json.dumps({name: list(of) for name, of in workload.groups.items()}))
    try:
        values = json.loads(Path(request.system).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{request.system}: cannot be read as JSON ({error}).") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{request.system}: holds no mapping of keys to values; write one.")
    write_text(folder / "system.json", json.dumps({**values, "trace-enabled": 1}))
    flags = {
        "workload": folder / "workload",
        "system": folder / "system.json",
        "network": Path(request.network).resolve(),
        "remote-memory": memory,
        "comm-group": groups if workload.groups else "empty",
    }
    options, logging = request.options, request.logging
    if logging not in (None, "empty"):  # "empty" is the name of none there
        logging = str(Path(logging).resolve())
    return [
        str(Path(request.binary).resolve()),
        *(f"--{name}-configuration={value}" for name, value in flags.items()),
        f"--num-queues-per-dim={options.queues_per_dimension}",
        f"--injection-scale={options.injection_scale}",
        f"--rendezvous-protocol={str(options.rendezvous).lower()}",
        *([] if logging is None else [f"--logging-configuration={logging}"]),
    ]


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


_MIB = 1 << 20
_UNITS = ("B", "KB", "MB", "GB", "TB")
_UNDEFINED = ("UNDEFINED", 2**64 - 1)
_BEFORE_NS = (0, 10)
"""When the reference has a tensor written that is read before any node writes it."""
_LIFETIMES, _USAGE, _HEAP = 1_000_000, 2_000_000, 3_000_000
"""What is added to the number of a rank for the further rows of its timeline."""
_MAX_NAME_LENGTH = 20


@dataclass(frozen=True)
class _Use:
    start: int
    end: int
    node: str
    id: int


@dataclass
class _Tensor:
    name: str
    size: int
    written: _Use
    reads: list[_Use] = field(default_factory=list)


@dataclass(frozen=True)
class RankMemory:
    """Local memory of one rank: tensors as they appear, and bytes held from each tick on."""

    rank: int
    tensors: tuple[_Tensor, ...]
    usage: dict[int, int]

    @property
    def peak(self) -> int:
        """The most bytes that are held at a tick."""
        return max(self.usage.values(), default=0)

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events of the reference's file.

        Tensors are numbered in the order in which they appear; the reference numbers them in the
        order of a hash table.
        """
        for number, tensor in enumerate(self.tensors):
            for use in tensor.reads:
                yield from self._pair(number, tensor, "tensorRead", use)
        for number, tensor in enumerate(self.tensors):
            yield from self._pair(number, tensor, "tensorWrite", tensor.written)
        for number, tensor in enumerate(self.tensors):
            yield self._lifetime(number, tensor, "B", tensor.written.start)
        for number, tensor in enumerate(self.tensors):
            if tensor.reads:
                yield self._lifetime(number, tensor, "E", tensor.reads[-1].end)
        for tick, held in self.usage.items():
            yield {
                "name": "GPU Memory Usage (MB)", "cat": "GPU Memory", "ph": "C", "ts": tick / 1000,
                "pid": self.rank + _USAGE, "args": {"Memory_MB": held / _MIB},
            }  # fmt: skip
        yield from self._heap()

    def _pair(self, number: int, tensor: _Tensor, kind: str, use: _Use) -> Iterator[dict[str, Any]]:
        args = {"size": tensor.size, "node_name": use.node, "node_id": use.id}
        for phase, tick in (("B", use.start), ("E", use.end)):
            yield {
                "name": tensor.name, "cat": kind, "ph": phase, "ts": tick / 1000,
                "pid": self.rank, "tid": number, "args": args,
            }  # fmt: skip

    def _lifetime(self, number: int, tensor: _Tensor, phase: str, tick: int) -> dict[str, Any]:
        return {
            "name": tensor.name, "cat": "tensorLifetime", "ph": phase, "ts": tick / 1000,
            "pid": self.rank + _LIFETIMES, "tid": number, "args": {"size": tensor.size},
        }  # fmt: skip

    def _heap(self) -> Iterator[dict[str, Any]]:
        pid, last = self.rank + _HEAP, max(self.usage, default=0)
        for name, label, more in (
            ("process_name", "Tensor Lifetime Heap", {}),
            ("thread_name", "Longest Lifetime → Shortest Lifetime", {"tid": 0}),
        ):
            yield {"name": name, "ph": "M", "pid": pid, **more, "args": {"name": label}}
        lives = [
            (tensor, (tensor.reads[-1].end if tensor.reads else last) - tensor.written.start)
            for tensor in self.tensors
        ]
        lives.sort(key=lambda life: -life[1])
        spread = (lives[0][1] - lives[-1][1]) if lives else 0
        largest = max((tensor.size for tensor in self.tensors), default=1)
        for tensor, life in lives:
            share = (life - lives[-1][1]) / spread if spread else 0.0
            position, heat = int(share * (len(lives) - 1)), int(tensor.size / largest * 255)
            long = len(tensor.name) > _MAX_NAME_LENGTH
            label = f"{tensor.name[: _MAX_NAME_LENGTH - 3]}..." if long else tensor.name
            yield {
                "name": f"{label} ({f'{tensor.size / _MIB:.6f}'[:5]} MB)", "cat": "tensorHeatmap",
                "ph": "X", "ts": tensor.written.start / 1000, "dur": life / 1000, "pid": pid,
                "tid": position, "cname": f"#{heat:02X}64{255 - heat:02X}",
                "args": {
                    "tensor_name": tensor.name, "size_bytes": tensor.size,
                    "size_mb": tensor.size / _MIB, "lifetime_ns": life, "position": position,
                },
            }  # fmt: skip
        yield {
            "name": "Tensor Lifetime Heatmap", "cat": "tensorHeatmap", "ph": "i", "ts": 0,
            "pid": pid, "s": "p",
            "args": {
                "description": "Tensors arranged by lifetime duration (longest at bottom)",
                "total_tensors": len(lives), "displayed_tensors": len(lives),
            },
        }  # fmt: skip


def reference_memory(result: SimulationResult, rank: int) -> RankMemory:
    """Return the local memory of a rank.

    Raises:
        SimulationError: If a node does not name its tensors, where the reference stops, too.
    """
    trace = result.program.workload.traces[rank]
    inputs, outputs = (_every(trace, name) for name in ("inputs", "outputs"))
    order = np.argsort(trace.id_N, kind="stable")
    issue_N, finish_N = result.ticks(rank)
    names = trace.names()
    tensors: dict[str, _Tensor] = {}
    # The reference writes down what a node uses when it ends.
    for row in np.lexsort((trace.id_N[order], finish_N)).tolist():
        position = int(order[row])
        node = (names[position], int(trace.id_N[position]))
        use = _Use(int(issue_N[row]), int(finish_N[row]), *node)
        for name, size in inputs.get(position, ()):
            if size:
                there = _Tensor(name, size, _Use(*_BEFORE_NS, *_UNDEFINED))
                tensors.setdefault(name, there).reads.append(use)
        for name, size in outputs.get(position, ()):
            if size:
                tensors.setdefault(name, _Tensor(name, size, use))
    change: dict[int, int] = defaultdict(int)
    for tensor in tensors.values():
        change[tensor.written.start] += tensor.size
        if tensor.reads:
            change[tensor.reads[-1].end] -= tensor.size
    held, usage = 0, {}
    for tick in sorted(change):
        held += change[tick]
        usage[tick] = held
    return RankMemory(rank, tuple(tensors.values()), usage)


def _every(trace: Trace, name: str) -> dict[int, list[tuple[str, int]]]:
    found = dict(tensor_lists(trace, name))
    if len(found) < trace.num_nodes:
        missing = next(i for i in range(trace.num_nodes) if i not in found)
        raise SimulationError(
            f"{trace.source}: node {int(trace.id_N[missing])} has no attribute '{name}', which "
            "track-local-mem needs on every node, and without which ASTRA-sim stops; set "
            "track-local-mem to 0."
        )
    return found


def in_units(size: int) -> str:
    """Return a number of bytes as the reference prints it: "144.94 MB", of 2**20 bytes."""
    value, unit = float(size), 0
    while value >= 1024 and unit + 1 < len(_UNITS):
        value, unit = value / 1024, unit + 1
    return f"{value:.2f} {_UNITS[unit]}"


def write_memory(found: RankMemory, prefix: str) -> Path:
    """Write ``PREFIX.<rank>.json``, for Perfetto.

    Raises:
        UsageError: If there is another file.
    """
    path = Path(f"{prefix}.{found.rank}.json")
    if path.exists() and '"traceEvents"' not in path.read_text(errors="replace")[:100]:
        raise UsageError(f"{path}: holds no memory trace and is not replaced; move it away.")
    write_text(path, json.dumps({"traceEvents": list(found.events())}, indent=2))
    return path
