"""Communicator groups as ASTRA-sim reads them: ``{"<group>": [rank, ...]}``."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from layerdag._runtime import read_parsed, write_bytes
from layerdag.errors import TraceError
from layerdag.traces.analysis import WORLD_NAMES


def read_groups(path: str | Path, num_ranks: int) -> dict[str, tuple[int, ...]]:
    """Read communicator groups in ASTRA-sim's form ``{"<group>": [rank, ...]}``.

    Raises:
        TraceError: If the file has another form, or a rank lies outside ``0..num_ranks-1`` or
            occurs twice in its group.
    """
    return decode_groups(read_parsed(path, TraceError), path, num_ranks)


def decode_groups(data: bytes, path: str | Path, num_ranks: int) -> dict[str, tuple[int, ...]]:
    """Return the groups in the content of the file ``path``; errors as in ``read_groups``."""
    try:
        loaded = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path}: is no JSON ({error}); repair or replace it.") from None
    if not isinstance(loaded, dict):
        raise TraceError(f'{path}: holds no object; write {{"<group>": [rank, ...]}}.')
    return {str(name): _group(name, ranks, num_ranks, path) for name, ranks in loaded.items()}


def _group(name: str, ranks: object, num_ranks: int, path: str | Path) -> tuple[int, ...]:
    """Return the checked ranks of one group."""
    if not isinstance(ranks, list) or not all(type(rank) is int for rank in ranks):
        raise TraceError(f"{path}: group '{name}' is no list of ranks; write [0, 1, ...].")
    outside = [rank for rank in ranks if not 0 <= rank < num_ranks]
    if outside:
        raise TraceError(
            f"{path}: group '{name}' names rank {outside[0]}, but the workload has ranks 0 to "
            f"{num_ranks - 1}; correct the group or add the trace."
        )
    if len(set(ranks)) != len(ranks):
        raise TraceError(f"{path}: group '{name}' names a rank twice; list each rank once.")
    return tuple(ranks)


def write_groups(groups: Mapping[str, Sequence[int]], path: str | Path) -> None:
    """Write communicator groups in ASTRA-sim's form ``{"<group>": [rank, ...]}``.

    Group "0" is left out: it stands for all ranks, and ASTRA-sim aborts on an entry of that name.
    Where none is left, a file is written only to replace one that is there.
    """
    content = encode_groups(groups)
    if content or Path(path).exists():
        write_bytes(path, content or b"{}\n")


def encode_groups(groups: Mapping[str, Sequence[int]]) -> bytes:
    """Return the content of the file that ``write_groups`` writes, empty without a group."""
    described = {name: list(ranks) for name, ranks in groups.items() if name not in WORLD_NAMES}
    return (json.dumps(described, indent=1) + "\n").encode() if described else b""
