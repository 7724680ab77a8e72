"""Drawing samples and keeping those that may be published; what was drawn survives a kill."""

import json
import shutil
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from layerdag._runtime import track, write_text
from layerdag.api.publication import DRAWN, HASHES, ReleaseSettings, Work
from layerdag.api.publication.drawing._batches import read_batch, write_batch
from layerdag.api.publication.drawing._plan import drawing_plan
from layerdag.api.publication.drawing._sieve import KEPT, Sieve
from layerdag.api.publication.reading import FoundJobs
from layerdag.datasets import GraphDataset
from layerdag.errors import UsageError
from layerdag.evaluation.privacy import Resemblance
from layerdag.sampling import GeneratedGraph, generate
from layerdag.training import LoadedCheckpoint

BATCH = 32
MOST_DRAWN_PER_KEPT = 20


@dataclass(frozen=True, eq=False)
class Drawn:
    """All samples that were drawn.

    Attributes:
        samples: In order of their seeds.
        outcomes: What became of each: ``KEPT``, or the reason of its rejection.
        renumbered: Nodes of kept samples that got other numbers, for those drawn were of a single
            real run, or go with such.
        threshold: Distance below which a sample counted as a near copy.
        seconds: That drawing took.
    """

    samples: tuple[GeneratedGraph, ...]
    outcomes: tuple[str, ...]
    renumbered: int
    threshold: float
    seconds: float

    def kept(self, most: int | None = None) -> list[GeneratedGraph]:
        """Return the samples that may be published."""
        found = [s for s, word in zip(self.samples, self.outcomes, strict=True) if word == KEPT]
        return found[:most]

    @property
    def with_copies(self) -> list[GeneratedGraph]:
        """What would be published without the rejection of copies."""
        wanted = {KEPT, Resemblance.COPY.value, Resemblance.NEAR.value}
        return [s for s, word in zip(self.samples, self.outcomes, strict=True) if word in wanted]

    @property
    def price(self) -> float | None:
        """Samples drawn for each one that was kept; None if none was."""
        kept = sum(word == KEPT for word in self.outcomes)
        return len(self.outcomes) / kept if kept else None

    def counts(self) -> Mapping[str, int]:
        """Return the number of samples by outcome."""
        return Counter(self.outcomes)


def draw_samples(
    settings: ReleaseSettings,
    jobs: FoundJobs,
    data: GraphDataset,
    checkpoint: LoadedCheckpoint,
    work: Work,
    seconds: float,
) -> Drawn:
    """Draw until enough are kept or time is up; what an earlier run drew is taken up.

    Args:
        settings: Of the release.
        jobs: The real graphs, for the numbers that only one run has.
        data: The same, split.
        checkpoint: What to sample from.
        work: The private folder.
        seconds: Most seconds to draw.
    """
    folder = work.path / DRAWN
    _start_anew_if_other(folder, settings, work)
    sieve = Sieve.of(jobs, data)
    write_text(work.path / HASHES, json.dumps(sorted(sieve.copies.hashes)) + "\n")
    began = time.monotonic()
    samples: list[GeneratedGraph] = []
    outcomes: list[str] = []
    index = 0
    bar = iter(track(range(settings.num), "sampling", settings.num))
    while True:
        kept = sum(word == KEPT for word in outcomes)
        file = folder / f"{index:05d}.npz"
        spent = time.monotonic() - began
        time_is_up = spent >= seconds or index >= _finished_batches(work, settings)
        enough = kept >= settings.num or len(outcomes) >= _most(settings.num, kept)
        if enough or (not file.is_file() and time_is_up and index):
            break
        batch = _read_or_draw(file, settings, checkpoint, data, index)
        for sample, word in sieve.sifted(batch):
            samples.append(sample)
            outcomes.append(word)
            if word == KEPT:
                next(bar, None)
        index += 1
    seconds = time.monotonic() - began
    longest = max(seconds, float(work.stages.get("sample", {}).get("seconds", 0.0)))
    facts = {"batches": index, "num": settings.num, "drawn": len(outcomes)}
    work.note("sample", {**facts, "seconds": round(longest, 1)})
    return Drawn(tuple(samples), tuple(outcomes), sieve.renumbered, sieve.copies.threshold, seconds)


def _most(num: int, kept: int) -> int:
    """Return the number of samples after which drawing ends, whatever was kept."""
    return 4 * BATCH if not kept else max(MOST_DRAWN_PER_KEPT * num, 4 * BATCH)


def _finished_batches(work: Work, settings: ReleaseSettings) -> float:
    """Return after how many batches an earlier run ended; the same call ends there again."""
    noted = work.stages.get("sample", {})
    ended = isinstance(noted.get("batches"), int) and noted.get("num") == settings.num
    return float(noted["batches"]) if ended else float("inf")


def _start_anew_if_other(folder: Path, settings: ReleaseSettings, work: Work) -> None:
    """Discard what was drawn at another temperature, or as the best of another number."""
    note = folder / "temperature.json"
    plan = drawing_plan(settings, BATCH, settings.seed)
    chosen = plan.temperature if plan.best_of is None else [plan.temperature, plan.best_of]
    wanted = json.dumps(chosen)
    if folder.is_dir() and not (note.is_file() and note.read_text() == wanted):
        shutil.rmtree(folder)
        work.note("sample", {})
    folder.mkdir(exist_ok=True)
    note.write_text(wanted)


def _read_or_draw(
    file: Path,
    settings: ReleaseSettings,
    checkpoint: LoadedCheckpoint,
    data: GraphDataset,
    index: int,
) -> list[GeneratedGraph]:
    """Return batch number ``place``, from its file if it is whole."""
    if file.is_file():
        try:
            return read_batch(file, data.schema)
        except (OSError, ValueError, KeyError, TypeError, EOFError):
            file.unlink()
    plan = drawing_plan(settings, BATCH, settings.seed + index * BATCH)
    plan = replace(plan, batch_size=BATCH)
    try:
        batch = list(generate(checkpoint.model, data.schema, replace(plan, labels="predicted")))
    except UsageError:  # no label to predict
        batch = list(generate(checkpoint.model, data.schema, plan))
    write_batch(file, batch)
    return read_batch(file, data.schema)
