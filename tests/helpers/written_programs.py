"""What a program of a model says, by the names of its nodes."""

from layerdag.traces.trace import Trace


def costs(trace: Trace) -> dict[str, tuple[int, int]]:
    """Return (operations, bytes) of every operator by its name."""
    operations_N, has_N = trace.integers("num_ops")
    moved_N, _ = trace.integers("tensor_size")
    rows = zip(trace.names(), operations_N.tolist(), moved_N.tolist(), has_N, strict=True)
    return {name: (operations, moved) for name, operations, moved, has in rows if has}


def messages(trace: Trace) -> dict[str, int]:
    """Return the bytes of every collective, send and receive by its name."""
    size_N, has_N = trace.integers("comm_size")
    rows = zip(trace.names(), size_N.tolist(), has_N, strict=True)
    return {name: size for name, size, has in rows if has}


def roles(trace: Trace) -> dict[str, str]:
    """Return the role of the group of every collective by its name."""
    role_N, has_N = trace.texts("pg_name")
    rows = zip(trace.names(), role_N, has_N, strict=True)
    return {name: role for name, role, has in rows if has}


def needs(trace: Trace, name: str) -> set[str]:
    """Return the names of the nodes whose data a node needs."""
    names = trace.names()
    return {names[node] for node in trace.data_deps.of(names.index(name)).tolist()}
