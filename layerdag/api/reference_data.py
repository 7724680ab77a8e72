"""The real graphs that samples are compared with, selected and split as they were in training.

What was learned from and what was held out depends on settings (largest job, seed of the split,
label file), so a folder alone does not say it. Checkpoints and manifests of samples record the
settings and a fingerprint of the split; a folder that does not give that split is refused.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.loading import (
    data_config,
    load_config,
    read_dataset,
    read_learned_dataset,
    require_no_labels,
)
from layerdag.datasets.programs import PROGRAMS, jobs_of_programs
from layerdag.datasets.settings import LABEL_FILES
from layerdag.datasets.splits import SplitFingerprint, require_same_split
from layerdag.errors import ConfigError, DataError, UsageError
from layerdag.traces.chakra.corpus import INDEX, embedded_corpus
from layerdag.training.checkpoint import META, RUN_FILE, LoadedCheckpoint
from layerdag.training.run_file import read_run_file


@dataclass(frozen=True)
class ReferenceData:
    """Which real graphs to read.

    Attributes:
        source: Folder of a data set, or of a training run, which records its data set; or "corpus"
            or "programs" for what is embedded.
        labels: Label file; None looks for one in the folder.
        warn: Takes a sentence on what cannot be checked.
    """

    source: str
    labels: str | None = None
    warn: Callable[[str], object] = field(default=warnings.warn, compare=False)

    @property
    def place(self) -> str:
        """The folder that is meant."""
        embedded = {"corpus": embedded_corpus(), PROGRAMS: embedded_corpus() / PROGRAMS}
        if self.source in embedded and not Path(self.source).is_dir():
            return str(embedded[self.source])
        return self.source

    def load(self, *, as_jobs: bool = False) -> GraphDataset:
        """Return the data set by itself, with all its words, which the caller must not publish.

        Args:
            as_jobs: Load traces as graphs even where they record arguments.

        Raises:
            UsageError: If ``place`` is no data set and no run.
        """
        chosen = self._of_run()
        if chosen is not None:
            return _built(self.source, chosen)
        return read_dataset(self.place, self.labels, public_words="all", as_jobs=as_jobs)

    def folder(self) -> str | None:
        """Return the folder that the graphs are read from; None if they are generated."""
        chosen = self._of_run()
        found = self.place if chosen is None else chosen.get("folder")
        return str(found) if found is not None and Path(str(found)).is_dir() else None

    def load_for_samples(self, samples: str) -> GraphDataset:
        """Return the data set as the model that made these samples was trained on it.

        Raises:
            UsageError: If it is split in another way.
        """
        manifest = _manifest(samples)
        settings = manifest.get("data")
        learned = SplitFingerprint.from_dict(manifest.get("split"))
        data = self._read(settings if isinstance(settings, Mapping) else {}, learned)
        self.require_fits(data, samples)
        return data

    def require_fits(self, data: GraphDataset, samples: str) -> None:
        """Refuse samples of a model that was trained on another split of the data set.

        Raises:
            UsageError: If it is split in another way.
        """
        learned = SplitFingerprint.from_dict(_manifest(samples).get("split"))
        if learned is None:
            self.warn(
                f"{samples}: its manifest records no fingerprint of the training split, so nothing "
                f"tells whether graphs of {self.source} that count as held out were trained on. "
                "Sample again from a checkpoint that records its split."
            )
        else:
            require_same_split(learned, data.split, model=samples, data=self.source)

    def load_for_checkpoint(self, checkpoint: LoadedCheckpoint) -> GraphDataset:
        """Return the data set as this checkpoint was trained on it, with its conditions.

        Raises:
            UsageError: If its training graphs are not those of the checkpoint.
        """
        settings = checkpoint.run_config.get("data")
        learned = checkpoint.meta.split
        data = self._read(settings if isinstance(settings, Mapping) else {}, learned)
        conditions = checkpoint.run_config.get("conditions")
        if isinstance(conditions, list):
            data = data.conditioned_on([str(name) for name in conditions])
        if learned is not None:
            require_same_split(learned, data.split, model=str(checkpoint.path), data=self.source)
        elif data.fingerprint != checkpoint.meta.data_fingerprint:
            raise UsageError(
                f"{checkpoint.path}: was trained on graphs with fingerprint "
                f"{checkpoint.meta.data_fingerprint or 'unknown'}, but those in {self.source} have "
                f"{data.fingerprint}; give the data set that it was trained on."
            )
        return data

    def _read(self, settings: Mapping[str, Any], learned: SplitFingerprint | None) -> GraphDataset:
        """Read the folder with the settings of a run, or detect what it holds if there are none."""
        if settings.get("name") == "programs" and (Path(self.place) / INDEX).is_file():
            return self._jobs(settings)
        chosen = self._of_run() or self._of_folder(settings)
        if chosen is None:
            return read_learned_dataset(self.place, self.labels, learned)
        return _built(self.source, chosen)

    def _jobs(self, settings: Mapping[str, Any]) -> GraphDataset:
        folder = Path(self.place) / PROGRAMS
        if not folder.is_dir():
            raise UsageError(
                f"{self.source}: has no folder '{PROGRAMS}', and these samples come from a model "
                "that learned from the programs of a corpus; give that corpus."
            )
        known = {"folder": str(folder), "avoid_copies": False, "operator_times": False}
        programs = _built(self.source, {**settings, **known})
        return jobs_of_programs(programs, Path(self.place))

    def _of_run(self) -> dict[str, Any] | None:
        """Return the settings, paths included, of the run that ``place`` is; None if it is none.

        Raises:
            UsageError: If it is a checkpoint without the run's own file, which has the paths.
        """
        folder = Path(self.place)
        for run in (folder, folder.parent):
            if (run / RUN_FILE).is_file() and (run is folder or (folder / META).is_file()):
                settings = dict(read_run_file(run)["data"])
                return settings | ({"labels": self.labels} if self.labels else {})
        if (folder / META).is_file() or (folder / "best" / META).is_file():
            raise UsageError(
                f"{self.source}: does not say where the data lies that it learned from (it has no "
                f"{RUN_FILE}); give the data folder instead."
            )
        return None

    def _of_folder(self, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the recorded settings for the folder that ``place`` is; None without any."""
        if "name" not in settings:
            return None
        if settings["name"] == "latent_preferential":
            return dict(settings)  # Generated, not read.
        if settings["name"] == "corpus" and not (Path(self.place) / INDEX).is_file():
            raise UsageError(
                f"{self.source}: is no corpus (there is no {INDEX}), and these samples come from a "
                "model that learned from one, whose split no other folder has; give that corpus, "
                f"or samples of a model that learned from {self.source}."
            )
        if settings["name"] == "programs" and not any(Path(self.place).glob("*.jsonl.xz")):
            raise UsageError(
                f"{self.source}: holds no programs (FAMILY.jsonl.xz), and these samples come from "
                "a model that learned from some, whose split no other folder has; give those, or "
                f"samples of a model that learned from {self.source}."
            )
        chosen = {**settings, "folder": self.place}
        if settings["name"] == "folder":
            chosen["labels"] = self._label_file(settings.get("labels"))
        return chosen

    def _label_file(self, recorded: object) -> str | None:
        """Return the label file: the one named, else one in the folder or, as recorded, beside it.

        Raises:
            UsageError: If one was trained with, and is not found.
        """
        if self.labels is not None:
            require_no_labels(self.source, "folder", self.labels)
            return self.labels
        folder = Path(self.place)
        names = [Path(str(recorded)).name] if recorded else list(LABEL_FILES)
        folders = [folder, folder.resolve().parent] if recorded else [folder]
        for path in (source / name for source in folders for name in names):
            if path.is_file():
                return str(path)
        if recorded:
            raise UsageError(
                f"{self.source}: the model was trained with a label file '{names[0]}', which is "
                "neither in this folder nor beside it; name it with --labels."
            )
        return None


def _built(source: str, settings: Mapping[str, Any]) -> GraphDataset:
    try:
        return load_config(data_config(settings))
    except (ConfigError, TypeError, ValueError) as error:
        raise DataError(
            f"{source}: the recorded settings of the data set cannot be used ({error}); sample or "
            "train again."
        ) from None


def _manifest(samples: str) -> dict[str, Any]:
    from layerdag.samples.manifest import read_manifest  # evaluation, slow to import, comes with it

    return read_manifest(samples)
