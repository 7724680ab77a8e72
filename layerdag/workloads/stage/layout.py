"""Where STAGE puts traces and groups."""

import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import final

from layerdag.errors import UsageError
from layerdag.runtime.files import settle, write_files
from layerdag.runtime.terminal import track
from layerdag.traces.chakra.workload import groups_in_place
from layerdag.traces.trace import LazyTraces, Workload


@final
@dataclass(frozen=True)
class StageLayout:
    """Where STAGE puts traces and groups.

    Attributes:
        name: ``--output_name``; "%d" stands for the rank, and without it the name becomes
            ``NAME.%d.et``.
    """

    folder: Path
    name: str

    @property
    def pattern(self) -> str:
        """Name of a rank's file, "%d" for the rank."""
        return self.name if "%d" in self.name else f"{self.name}.%d.et"

    @property
    def _stem(self) -> str:
        return self.pattern.replace(".%d", "").removesuffix(".et")

    @property
    def groups(self) -> Path:
        """The file of communicator groups."""
        return self.folder / self.pattern.replace(".%d", "").replace(".et", ".json")

    def file(self, rank: int) -> Path:
        """Return the file of a rank."""
        return self.folder / self.pattern.replace("%d", str(rank))

    def require_free(self, *, overwrite: bool) -> None:
        """Raise UsageError if traces there may not be replaced, or the name is not a file name."""
        if "/" in self.name or not self._stem:
            raise UsageError(f"--output_name '{self.name}' must be a file name, such as w.%d.et.")
        settle(self.folder / self._stem)
        standing = self.standing()
        if standing and not overwrite:
            raise UsageError(
                f"{standing[0]} is there already; name another place, or allow that it is replaced "
                "(--overwrite; overwrite=True in Python)."
            )

    def standing(self) -> list[Path]:
        """Return the files that exist already."""
        before, _, after = self.pattern.partition("%d")
        form = re.compile(rf"{re.escape(before)}\d{{1,9}}{re.escape(after)}")
        found = self.folder.iterdir() if self.folder.is_dir() else ()
        return sorted(p for p in found if form.fullmatch(p.name) or p == self.groups)

    def write(self, workload: Workload, *, overwrite: bool = False) -> None:
        """Write the workload of a ``StageJob``; no file is in its place before all are.

        Files that are replaced include those of ranks that the new job lacks.

        Raises:
            UsageError: If files exist and may not be replaced.
        """
        self.require_free(overwrite=overwrite)
        if not isinstance(workload.traces, LazyTraces):
            raise TypeError("a workload of StageJob.workload() is needed")
        self.folder.mkdir(parents=True, exist_ok=True)
        files = track(workload.traces.files(), "writing ranks", total=workload.num_ranks)
        ranks = ((self.file(rank), data) for rank, data in files)
        groups = groups_in_place(workload.groups, self.groups)
        write_files(self.folder / self._stem, itertools.chain(groups, ranks), self.standing())
