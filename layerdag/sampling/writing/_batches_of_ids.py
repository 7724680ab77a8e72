"""Samples as a function from numbers to rows, for engines that map over batches (Ray Data)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from layerdag.datasets.samples import require_pyarrow, sample_table
from layerdag.errors import UsageError
from layerdag.sampling import (
    GeneratedGraph,
    GenerationSettings,
    checkpoint_schema,
    generate_together,
    pretrained_checkpoint,
    sample_name,
)
from layerdag.sampling.writing._request import table_row
from layerdag.training import load_checkpoint


class SampleBatches:
    """Maps batches of numbers to the samples with these numbers, a row each.

    For ``ray.data.range(n).map_batches(SampleBatches, ...)``: every worker loads the checkpoint
    once. Row i is sampled with ``settings.seed + i`` alone, so that neither the size of batches nor
    the number of workers changes it. The columns are those of ``format=parquet``.

    Args:
        checkpoint: Folder of the checkpoint; None is the one inside the package.
        settings: What to sample; its ``num`` is not used.
        threads: Of torch in the worker.

    Raises:
        UsageError: If pyarrow is not installed.
        CheckpointError: If the checkpoint cannot be read.
    """

    def __init__(
        self,
        checkpoint: str | Path | None = None,
        settings: GenerationSettings | None = None,
        threads: int = 1,
    ) -> None:
        require_pyarrow()
        torch.set_num_threads(threads)
        loaded = load_checkpoint(checkpoint or pretrained_checkpoint())
        self._model, self._schema = loaded.model, checkpoint_schema(loaded)
        self._settings = (settings or GenerationSettings()).settled(self._model, self._schema)

    def __call__(self, batch: Mapping[str, np.ndarray]) -> Any:
        """Return a table (of pyarrow) with a row for each number in the column "id", in order.

        Raises:
            UsageError: If there is no such column, or a number is below 0.
        """
        if "id" not in batch:
            found = ", ".join(batch) or "none"
            raise UsageError(f"A batch needs the column 'id' of numbers from 0 on; found {found}.")
        numbers = [int(number) for number in batch["id"]]
        if min(numbers, default=0) < 0:
            raise UsageError(f"Samples are numbered from 0 on, found {min(numbers)}.")
        made = {
            number: table_row(sample, self._settings)
            for run in _runs(sorted(set(numbers)))
            for number, sample in zip(run, self._samples(run), strict=True)
        }
        return sample_table([made[number] for number in numbers], self._schema)

    def _samples(self, run: range) -> Iterator[GeneratedGraph]:
        """Yield the samples with these numbers."""
        wanted = replace(self._settings, seed=self._settings.seed + run.start, num=len(run))
        for number, sample in zip(
            run, generate_together(self._model, self._schema, wanted), strict=True
        ):
            yield replace(sample, name=sample_name(number))


def _runs(numbers: Sequence[int]) -> Iterator[range]:
    """Yield the runs of consecutive numbers, of ascending ones."""
    start = 0
    for end in range(1, len(numbers) + 1):
        if end == len(numbers) or numbers[end] != numbers[end - 1] + 1:
            yield range(numbers[start], numbers[end - 1] + 1)
            start = end
