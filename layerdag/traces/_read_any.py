"""Read a workload of any format from a file, a prefix or a folder."""

from pathlib import Path

from layerdag._runtime import read_whole, require_parsable
from layerdag.errors import TraceError
from layerdag.traces._detect import Format, detect_format, pytorch_format
from layerdag.traces._trace import Workload
from layerdag.traces._workload import holds_rank_files, read_workload
from layerdag.traces.astra import parse_text, read_groups, text_to_workload
from layerdag.traces.chakra import decode_feeder_json, decode_trace, decode_trace_json
from layerdag.traces.pytorch import (
    find_rank_files,
    import_pytorch,
    import_ranks,
    refuse_missing_ranks,
)


def read_any(
    location: str | Path, groups_file: str | Path | None = None, num_ranks: int = 1
) -> Workload:
    """Read a workload of any supported format.

    Args:
        location: A file of any ``Format``, a prefix of ``PREFIX.<rank>.et``, a folder with one
            such set, or a folder or prefix of PyTorch traces, one host trace or profile per rank.
        groups_file: JSON with communicator groups, as for ``workload.read_workload``.
        num_ranks: For an ASTRA-sim text workload, which does not say: for how many ranks.

    Raises:
        TraceError: If nothing is found, or the content is unknown, damaged or incomplete.
    """
    location = Path(location)
    if not location.is_file():
        job = None if holds_rank_files(location) else _import_job(location)
        return read_workload(location, groups_file) if job is None else job
    workload = _read_file(location, num_ranks)
    if groups_file:
        groups = read_groups(groups_file, workload.num_ranks)
        workload = Workload(workload.traces, groups, workload.source)
    return workload


def _read_file(path: Path, num_ranks: int) -> Workload:
    """Read one file of any format; what PyTorch wrote is never held as a whole."""
    written_by_pytorch = pytorch_format(path)
    if written_by_pytorch is not None:
        return _import_pytorch(written_by_pytorch, path)
    data, source = read_whole(path, error=TraceError), str(path)
    kind = detect_format(data, source)
    if kind is Format.CHAKRA:
        return Workload((decode_trace(data, source),), {}, source)
    if kind in (Format.FEEDER_JSON, Format.LAYERDAG_JSON, Format.ASTRA_TEXT):
        require_parsable(data, source, TraceError)
    if kind is Format.FEEDER_JSON:
        return Workload((decode_feeder_json(data, source),), {}, source)
    if kind is Format.LAYERDAG_JSON:
        return decode_trace_json(data, source)
    if kind is Format.ASTRA_TEXT:
        return text_to_workload(parse_text(data, source), num_ranks, source)
    return _import_pytorch(kind, path)


def _import_pytorch(kind: Format, path: Path) -> Workload:
    """Import a host trace or a profile; `pytorch.import_pytorch` also takes both together."""
    result = import_pytorch(None, path) if kind is Format.KINETO else import_pytorch(path)
    return Workload((result.trace,), result.groups, str(path))


def _import_job(location: Path) -> Workload | None:
    """Import a folder or prefix of PyTorch traces; None if it has none."""
    files = find_rank_files(location)
    if files is None:
        return None
    job = import_ranks(files.hosts, files.devices)
    refuse_missing_ranks(job)
    return job.workload
