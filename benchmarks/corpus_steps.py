"""Training steps on the embedded corpus, on a processor, as JSON.

    python benchmarks/corpus_steps.py --threads 2

The model and the settings are the defaults of ``layerdag train data=corpus device=cpu``. The same
steps are timed in every run, so that two versions of the package can be compared: those after as
many others, in which each shape of a product is compiled. Graphs per second follow from the same
time.
"""

import argparse
import json
import os
import platform
import sys
from dataclasses import replace

from layerdag.cli.main import limit_openmp_spin


def main() -> int:
    """Time steps and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    limit_openmp_spin()  # as `layerdag train` does, before torch is there

    import torch
    from step_watch import Phase, watched

    from layerdag.datasets.loading import load_dataset
    from layerdag.training.model_spec import spec_for
    from layerdag.training.settings import TrainSettings

    torch.set_num_threads(options.threads)
    data = load_dataset("corpus")
    settings = replace(TrainSettings(), log_every=options.steps)
    _, timed = watched(spec_for(data, "fast", {}), data.batch("train"), settings, "cpu", [Phase()])
    found = {
        "platform": platform.platform(),
        "torch": torch.__version__,
        "threads": options.threads,
        "steps": timed.steps,
        "ms_per_step": 1000 * timed.seconds / timed.steps,
        "graphs_per_second": timed.graphs / timed.seconds,
    }
    json.dump(found, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
