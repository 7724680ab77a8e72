"""Where ``layerdag convert`` writes: Chakra, the feeder's JSON, or one JSON file."""

import re
from pathlib import Path

from layerdag._runtime import write_bytes
from layerdag.errors import UsageError
from layerdag.traces import Workload, require_free_prefix, write_workload
from layerdag.traces.chakra import encode_feeder_json, encode_trace_json

ENDINGS = {"et": ".et", "feeder-json": ".json"}
"""How the files of the forms that give each rank one end."""


def require_free(kind: str, out: Path, *, overwrite: bool) -> None:
    """Raise UsageError, before anything is read, if what lies at ``out`` may not be replaced."""
    if kind == "json":
        return
    ending = ENDINGS[kind]
    prefix = _prefix(out, ending)
    if kind == "et":
        require_free_prefix(prefix, overwrite=overwrite)
    elif not overwrite and (standing := _feeder_files(prefix)):
        raise UsageError(
            f"{prefix}: a workload lies there already ({standing[0].name}); name another prefix, "
            "or allow that it is replaced with --overwrite."
        )


def _feeder_files(prefix: Path) -> list[Path]:
    """Return the feeder files of any rank at a prefix."""
    found = prefix.parent.glob("*.json") if prefix.parent.is_dir() else ()
    pattern = re.compile(re.escape(prefix.name) + r"\.\d{1,9}\.json")
    return sorted(path for path in found if pattern.fullmatch(path.name))


def write_traces(workload: Workload, kind: str, out: Path) -> Path:
    """Write the workload in the chosen form, in place of one there; return its first file."""
    if kind == "json":
        write_bytes(out, encode_trace_json(workload))
        return out
    prefix = _prefix(out, ENDINGS[kind])
    if kind == "et":
        write_workload(workload, prefix, overwrite=True)
    else:
        _write_feeder_files(workload, prefix)
    return _file_of(prefix, 0, ENDINGS[kind])


def _write_feeder_files(workload: Workload, prefix: Path) -> None:
    """Write the file of each rank, rank 0 last.

    Raises:
        UsageError: If a file of a rank that the workload lacks is there.
    """
    encoded = [encode_feeder_json(trace) for trace in workload.traces]
    files = {_file_of(prefix, rank, ".json"): data for rank, data in enumerate(encoded)}
    foreign = [path for path in _feeder_files(prefix) if path not in files]
    if foreign:
        raise UsageError(
            f"{foreign[0]}: is there already, but no rank of the new workload, so readers would "
            "mix the two; remove it or name another prefix."
        )
    for path, data in reversed(files.items()):
        write_bytes(path, data)


def _prefix(out: Path, ending: str) -> Path:
    """Return the prefix that ``--out`` names, with or without the ending of the files.

    Raises:
        UsageError: If it has the ending of another kind of file.
    """
    if out.suffix == ending:
        return out.with_suffix("")
    if out.suffix in (".et", ".json"):
        raise UsageError(
            f"--out {out}: a prefix is needed, since every rank gets a {ending} file of its own; "
            f"write --out {out.with_suffix('')}, or choose another form with --to."
        )
    return out


def _file_of(prefix: Path, rank: int, ending: str) -> Path:
    """Return the file of one rank."""
    return prefix.with_name(f"{prefix.name}.{rank}{ending}")
