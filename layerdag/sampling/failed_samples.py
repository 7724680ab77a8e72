"""Samples that are missing from a run: those whose seeds give no program that runs, or no step."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, final

from layerdag.errors import DataError, MissingSampleError
from layerdag.samples.manifest import SampleRun, is_run, read_manifest
from layerdag.sampling.generated import GeneratedGraph

T = TypeVar("T")
_FIRST, _SHOWN = 16, 8


@final
class FailedSamples:
    """Notes name, seed and reason of the samples of a run that cannot be written.

    ``found`` counts those that can, including those of an earlier part of the run.
    """

    def __init__(self, found: int = 0, noted: Sequence[Mapping[str, Any]] = ()) -> None:
        self.found = found
        self.noted: list[Mapping[str, Any]] = list(noted)
        self._first: MissingSampleError | None = None

    def made(self, sample: GeneratedGraph, make: Callable[[GeneratedGraph], T]) -> T | None:
        """Return what is made of a sample, None if it is missing.

        Raises:
            DataError: If none of the first samples can be made: then the request is at fault.
            UsageError: The same, where the plan that was asked for fits none.
        """
        try:
            made = make(sample)
        except MissingSampleError as error:
            self._first = self._first or error
            self.noted.append({"name": sample.name, "seed": sample.seed, "reason": str(error)})
            if not self.found and len(self.noted) >= _FIRST:
                self.require_some()
            return None
        self.found += 1
        return made

    def require_some(self) -> None:
        """Refuse a run of which every sample is missing. Raises as ``made``."""
        if self.noted and not self.found:
            if self._first is not None and self._first.__cause__ is not None:
                raise self._first.__cause__
            raise DataError(str(self.noted[0]["reason"]))


def failed_samples(path: Path, num: int) -> str:
    """Return which samples of a run of ``num`` are missing and why, "" if none is.

    ``path`` is the manifest of the samples, or the file of a run in parts.
    """
    if is_run(path.parent):
        parts = SampleRun.read(path.parent).parts_at(path.parent)
        noted = [entry for index in parts for entry in index.missing]
    else:
        noted = read_manifest(path.parent).get("missing", [])
    if not noted:
        return ""
    seeds = ", ".join(f"{entry['seed']}" for entry in noted[:_SHOWN])
    more = f" and {len(noted) - _SHOWN:,} more" if len(noted) > _SHOWN else ""
    word, are = ("seed", "is") if len(noted) == 1 else ("seeds", "are")
    return (
        f"{path}: {len(noted):,} of {num:,} samples {are} missing ({word} {seeds}{more}), the "
        f"others are written; ask for other seeds or less. The first: {noted[0]['reason']}"
    )
