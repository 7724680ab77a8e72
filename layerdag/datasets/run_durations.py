"""How long operators took in the training runs of the embedded corpus."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from layerdag.dag.statistics import needed_programs
from layerdag.datasets.corpus import run_graph
from layerdag.errors import DataError
from layerdag.graph.attributed_graph import LABEL
from layerdag.schema.costs import cost_columns
from layerdag.schema.durations import Durations, fit_durations
from layerdag.traces.chakra.corpus import INDEX, read_index, read_runs


def run_durations(corpus: Path, program_of: Mapping[str, int]) -> Durations:
    """Return how long operators took in runs of a corpus, as several programs show it.

    Args:
        corpus: Its folder.
        program_of: The number of the program of each run, by the run's name.

    Raises:
        DataError: If the corpus has no such runs, or too few.
        TraceError: If it is damaged.
    """
    if not (corpus / INDEX).is_file():
        raise DataError(
            f"{corpus}: holds no runs ({INDEX} is missing), so nothing tells how long operators "
            "take; leave operator_times out."
        )
    records = [record for record in read_index(corpus) if record.run in program_of]
    graphs = [run_graph(run) for run in read_runs(corpus, records)]
    found = None
    if graphs:
        program_G = np.array([program_of[record.run] for record in records])
        cost_NC = np.concatenate([cost_columns(g.numbers, g.num_nodes) for g in graphs])
        found = fit_durations(graphs, cost_NC, LABEL, needed_programs(program_G), program_G)
    if found is None:
        raise DataError(
            f"{corpus}: {len(graphs)} of its runs are of the programs to train on, too few to tell "
            "how long operators take; leave operator_times out."
        )
    return found
