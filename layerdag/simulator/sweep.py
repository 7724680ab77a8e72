"""Simulate many workloads on many clusters, with a journal, tables, and Ray."""

import csv
import hashlib
import importlib
import itertools
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import yaml

from layerdag.errors import ConfigError, LayerdagError, SimulationError, UsageError
from layerdag.runtime.files import atomic_path
from layerdag.runtime.json_shape import (
    from_json,
    parse_json,
    require_finite,
    require_known,
    require_shape,
)
from layerdag.runtime.processes import in_any_order
from layerdag.runtime.reading import read_whole
from layerdag.runtime.settings import MAX_CONFIG_BYTES, did_you_mean, load_yaml
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.collectives import reject_world_description
from layerdag.simulator.compute_choice import model_files
from layerdag.simulator.config import Congestion, GroupCollectives, RunOptions
from layerdag.simulator.run import simulate
from layerdag.traces.chakra.workload import rank_files, read_workload
from layerdag.traces.trace import Workload
from layerdag.version import __version__

R = TypeVar("R")

MAX_JOURNAL_BYTES = 1 << 28
"""A journal beyond this size is not read."""


class Journal(Generic[R]):
    """A file of outcomes; each is written as soon as it is known.

    What failed is no outcome: it may have failed for want of memory, and is tried again.

    Args:
        path: Made with its folder when the first row comes.
        kind: Frozen dataclass of a row. Its first field distinguishes a journal from other files;
            its field ``key`` is a hash of all that determines the row.
    """

    def __init__(self, path: str | Path, kind: type[R]) -> None:
        self._path, self._kind = Path(path), cast(type[Any], kind)
        self._begun = False

    def read(self) -> dict[str, R]:
        """Return finished rows by their key.

        Lines that are no outcome are left out, such as a last one that was cut off.

        Raises:
            UsageError: If the file holds something else.
        """
        if not self._path.is_file():
            return {}
        data = read_whole(self._path, MAX_JOURNAL_BYTES, UsageError)
        text = data.decode("utf-8", errors="replace")
        # How each line begins, and so the first one, even if it was cut off.
        first_words = f'{{"{fields(self._kind)[0].name}":'
        if not first_words.startswith(text.strip()[: len(first_words)]):
            raise UsageError(
                f"{self._path}: the journal of finished simulations belongs there, but it holds "
                "something else, which is never changed; name other results."
            )
        rows: dict[str, Any] = {}
        for line in text.splitlines():
            row = self._row(line)
            if row is not None:
                rows[row.key] = row
        return rows

    def _row(self, line: str) -> Any:
        """Return the outcome that a line holds, None for any other line."""
        try:
            found = parse_json(line)
            require_finite(found)
            row = from_json(self._kind, found)
            require_known(found, (c.name for c in fields(self._kind)))
        except (ValueError, AttributeError, RecursionError):
            return None
        below = any(isinstance(value, int | float) and value < 0 for value in found.values())
        return None if row.error or not row.key or below else row

    def append(self, row: R) -> None:
        """Write one row at the end of the file, unless it has an error."""
        if cast(Any, row).error:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            if not self._begun and file.tell():
                file.write("\n")  # the last line may have been cut off
            self._begun = True
            file.write(json.dumps(asdict(cast(Any, row))) + "\n")


_NAMED = ("workloads", "systems", "networks")
_LISTS = {
    "compute": ("reference",),
    "congestion": tuple(way.value for way in Congestion),
    "group_collectives": ("hierarchical", "flat"),
}
_KEYS = (*_NAMED, *_LISTS, "costs")
MAX_POINTS = 100_000
"""Most simulations of a sweep."""


@dataclass(frozen=True)
class SweepPoint:
    """One simulation of a sweep, by the names and paths in the sweep file.

    Files of the compute model are relative to the current folder; ``cost`` is that of the network.
    """

    workload: str
    system: str
    network: str
    compute: str
    congestion: str
    prefix: str
    system_file: str
    network_file: str
    cost: float = 0.0
    group_collectives: str = "hierarchical"

    def key(self) -> str:
        """Return a hash of all that determines the outcome: contents of files, our version."""
        named = {"layerdag": __version__, **asdict(self)}
        digest = hashlib.sha256(json.dumps(named, sort_keys=True).encode())
        digest.update(_content_hashes(_stamped(self.prefix)))
        configured = (Path(self.system_file), Path(self.network_file))
        for path in (*model_files(self.compute), *configured):
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()


_Stamps = tuple[tuple[Path, int, int], ...]
"""Files with times of change in ns and sizes, which show whether one was changed."""


def _stamped(prefix: str) -> _Stamps:
    groups = sorted(Path(prefix).parent.glob("*comm_group.json"))
    stats = ((path, path.stat()) for path in (*rank_files(prefix), *groups))
    return tuple((path, stat.st_mtime_ns, stat.st_size) for path, stat in stats)


@lru_cache(maxsize=8)
def _content_hashes(files: _Stamps) -> bytes:
    """Return the hashes of files, end to end; points share workloads."""
    return b"".join(hashlib.sha256(path.read_bytes()).digest() for path, _, _ in files)


@lru_cache(maxsize=1)  # points of one workload follow each other
def _workload(prefix: str, files: _Stamps) -> Workload:
    workload = read_workload(prefix)
    reject_world_description(workload)
    return workload


@dataclass(frozen=True)
class SweepRow:
    """Outcome of one point, means over ranks; ``error`` is empty if it ran to its end.

    ``key`` is a hash of everything that went in, ``notes`` has a sentence on each line.
    """

    workload: str
    system: str
    network: str
    compute: str
    congestion: str
    cost: float
    ranks: int = 0
    nodes: int = 0
    makespan_ns: int = 0
    mean_compute_ns: float = 0.0
    mean_exposed_ns: float = 0.0
    error: str = ""
    key: str = field(default="", compare=False)
    group_collectives: str = "hierarchical"
    notes: str = ""


def read_sweep(path: str | Path) -> tuple[SweepPoint, ...]:
    """Read a sweep file: the product of its workloads, systems, networks and models.

    Example::

        workloads: {gpt: runs/gpt/workload}
        systems: {ring: ring.json, direct: direct.json}
        networks: {slow: slow.yml, fast: fast.yml}
        compute: [reference, h100]        # default: reference
        congestion: [unaware]             # default: unaware
        group_collectives: [flat, hierarchical]   # default: hierarchical
        costs: {slow: 1.0, fast: 2.5}     # of networks, for the Pareto table

    Paths are relative to the sweep file.

    Raises:
        ConfigError: If the file is missing or no YAML, or a key is unknown, missing or of the
            wrong form.
    """
    path = Path(path)
    try:
        content = load_yaml(read_whole(path, MAX_CONFIG_BYTES, ConfigError).decode())
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read as YAML ({error}).") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: a sweep is a mapping with the keys {', '.join(_KEYS)}.")
    for key in content:
        if key not in _KEYS:
            raise ConfigError(
                f"{path}: unknown key '{key}'.{did_you_mean(key, _KEYS)} Known are "
                f"{', '.join(_KEYS)}."
            )
    shape: dict[str, Any] = {key: {str: str} for key in _NAMED} | {"costs?": {str: float}}
    shape |= {f"{key}?": [str] for key in _LISTS}
    try:
        require_shape(content, shape)
        require_finite(content)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}.") from None
    named = [{str(name): file for name, file in content[key].items()} for key in _NAMED]
    for key, files in zip(_NAMED, named, strict=True):
        for file in files.values():
            if any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in file):
                raise ConfigError(f"{path}: '{key}' holds {file!r}, which is no name of a file.")
    ways = []
    for key, known in _LISTS.items():
        ways.append(content.get(key, [known[0]]))  # as in ``simulate``
        wrong = [entry for entry in ways[-1] if len(known) > 1 and entry not in known]
        if wrong:
            raise ConfigError(
                f"{path}: '{key}' holds '{wrong[0]}'.{did_you_mean(wrong[0], known)} Known are "
                f"{', '.join(known)}."
            )
    costs = {str(name): float(cost) for name, cost in content.get("costs", {}).items()}
    for name, cost in costs.items():
        if name not in named[2]:
            raise ConfigError(
                f"{path}: 'costs' names the network '{name}', which 'networks' has not."
                f"{did_you_mean(name, named[2])}"
            )
        if cost < 0:
            raise ConfigError(f"{path}: the cost of '{name}' is {cost}; write a number from 0 up.")
    empty = [key for key in (*_NAMED, *_LISTS) if key in content and not content[key]]
    if empty:
        raise ConfigError(f"{path}: '{empty[0]}' is empty; name at least one.")
    count = math.prod(len(found) for found in (*named, *ways))
    if count > MAX_POINTS:
        raise ConfigError(
            f"{path}: asks for {count:,} simulations, the product of its lists; at most "
            f"{MAX_POINTS:,} are run, so shorten them."
        )
    return tuple(
        SweepPoint(
            workload=workload,
            system=system,
            network=network,
            compute=compute,
            congestion=congestion,
            prefix=str(path.parent / named[0][workload]),
            system_file=str(path.parent / named[1][system]),
            network_file=str(path.parent / named[2][network]),
            cost=costs.get(network, 0.0),
            group_collectives=groups,
        )
        for workload, system, network in itertools.product(*named)
        for compute, congestion, groups in itertools.product(*ways)
    )


def run_point(point: SweepPoint, key: str = "") -> SweepRow:
    """Simulate one point; what cannot run becomes a row with an error."""
    row = SweepRow(
        point.workload, point.system, point.network, point.compute, point.congestion, point.cost,
        key=key, group_collectives=point.group_collectives,
    )  # fmt: skip
    try:
        options = RunOptions(congestion=Congestion(point.congestion))
        files = {"system": point.system_file, "network": point.network_file}
        cluster = Cluster.from_files(**files, options=options)
        groups = GroupCollectives(point.group_collectives)
        # A sweep is of networks and algorithms, whose effect measured times would hide.
        system = replace(cluster.system, group_collectives=groups, fitted_collectives="")
        cluster = replace(cluster, system=system)
        workload = _workload(point.prefix, _stamped(point.prefix))
        result = simulate(workload, cluster, compute=point.compute)
    except (LayerdagError, ValueError) as error:
        message = str(error)
        for file in (point.prefix, point.system_file, point.network_file):
            message = message.replace(f"{Path(file).parent}{os.sep}", "")
        return replace(row, error=message)
    return replace(
        row,
        ranks=result.num_ranks,
        nodes=result.num_nodes,
        makespan_ns=result.makespan_ns,
        mean_compute_ns=float(result.compute_ns.mean()),
        mean_exposed_ns=float(result.exposed_comm_ns.mean()),
        notes="\n".join((*map(str, workload.notes), *result.notes)),
    )


def run_sweep(
    points: Iterable[SweepPoint],
    journal: str | Path,
    run_all: Callable[[list[tuple[SweepPoint, str]]], Iterator[SweepRow]] | None = None,
) -> Iterator[SweepRow]:
    """Yield the row of every point, as they become ready; known rows come from the journal first.

    Args:
        points: What to simulate.
        journal: A file of JSON lines that finished rows are appended to. A point whose inputs are
            unchanged is taken from it, so an interrupted sweep goes on where it stopped.
        run_all: Simulates points, given with their keys, and yields rows in any order, such as
            ``in_processes`` or ``run_on_ray`` with the first argument bound; by default this
            process.
    """
    record = Journal(journal, SweepRow)
    known = record.read()
    todo = []
    for point in points:
        key = point.key()
        if key in known:
            yield known[key]
        else:
            todo.append((point, key))
    for row in (run_all or partial(in_processes, 1))(todo) if todo else ():
        record.append(row)
        yield row


def in_processes(processes: int, todo: list[tuple[SweepPoint, str]]) -> Iterator[SweepRow]:
    """Yield the rows of points, from worker processes if more than one is wanted."""
    return in_any_order(run_point, todo, processes)


def run_on_ray(address: str, todo: list[tuple[SweepPoint, str]]) -> Iterator[SweepRow]:
    """Yield the rows of ``todo`` as the cluster finishes them.

    Every machine of the cluster needs layerdag and sees the same files under the same paths.

    Args:
        address: What ``ray.init`` takes: "auto", "host:port" or "ray://host:port".
        todo: Points with their keys.

    Raises:
        UsageError: If Ray is not installed or the cluster cannot be reached.
        SimulationError: If a task is lost, for example with its machine.
    """
    try:
        ray = importlib.import_module("ray")
    except ImportError:
        raise UsageError(
            "--ray needs the package ray, which is not installed; pip install ray, or use "
            "--processes on this machine."
        ) from None
    try:
        ray.init(address=address, log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UsageError(f"--ray {address}: no cluster can be reached ({error}).") from None
    try:
        task = ray.remote(run_point)
        waiting = [task.remote(point, key) for point, key in todo]
        while waiting:
            ready, waiting = ray.wait(waiting, num_returns=1)
            yield ray.get(ready[0])
    except ray.exceptions.RayError as error:
        raise SimulationError(
            f"--ray {address}: a task was lost ({error}); run the sweep again, it goes on where it "
            "stopped."
        ) from None
    finally:
        ray.shutdown()


def write_rows(rows: Sequence[SweepRow], path: str | Path) -> None:
    """Write rows as Parquet (a name that ends in .parquet; needs pyarrow) or CSV.

    Raises:
        UsageError: If Parquet is asked for and pyarrow is not installed.
    """
    path = Path(path)
    with atomic_path(path) as draft:
        if path.suffix == ".parquet":
            try:
                import pyarrow
                from pyarrow import parquet
            except ImportError:
                raise UsageError(
                    "Parquet needs the package pyarrow, which is not installed; write .csv instead."
                ) from None
            parquet.write_table(pyarrow.Table.from_pylist([asdict(row) for row in rows]), draft)
            return
        with draft.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [c.name for c in fields(SweepRow)], lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(row) for row in rows)


def speed_ups(rows: Sequence[SweepRow]) -> list[tuple[SweepRow, float]]:
    """Return each complete row with its speed-up over the slowest of the same workload."""
    complete = [row for row in rows if not row.error and row.makespan_ns > 0]
    slowest: dict[str, int] = {}
    for row in complete:
        slowest[row.workload] = max(slowest.get(row.workload, 0), row.makespan_ns)
    return [(row, slowest[row.workload] / row.makespan_ns) for row in complete]


def pareto_front(rows: Sequence[SweepRow]) -> list[SweepRow]:
    """Return the complete rows that no other row of their workload beats in cost and makespan.

    A row is beaten by one that is no worse in both and better in one. Ordered by workload and cost.
    """
    front = []
    complete = [row for row in rows if not row.error]
    for row in complete:
        beaten = any(
            other.workload == row.workload
            and other.cost <= row.cost
            and other.makespan_ns <= row.makespan_ns
            and (other.cost, other.makespan_ns) != (row.cost, row.makespan_ns)
            for other in complete
        )
        if not beaten:
            front.append(row)
    return sorted(front, key=lambda row: (row.workload, row.cost, row.makespan_ns))


def draw(rows: Sequence[SweepRow], path: str | Path) -> None:
    """Draw the makespan of each complete point as bars, one group a workload."""
    from matplotlib.figure import Figure

    complete = sorted((r for r in rows if not r.error), key=lambda r: (r.workload, r.makespan_ns))
    figure = Figure(figsize=(7, 1 + 0.28 * len(complete)), layout="constrained")
    axes = figure.add_subplot()
    labels = [f"{r.workload} | {r.system} | {r.network} | {r.compute}" for r in complete]
    axes.barh(range(len(complete)), [r.makespan_ns / 1e6 for r in complete])
    axes.set_yticks(range(len(complete)), labels, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("makespan, ms")
    kind = Path(path).suffix.removeprefix(".") or "png"
    with atomic_path(path) as draft:
        figure.savefig(draft, format=kind)
