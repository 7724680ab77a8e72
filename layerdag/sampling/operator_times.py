"""Times of the operators of derived steps, drawn as training jobs have them."""

from typing import cast, final

import numpy as np

from layerdag.codec.vocabulary import operators
from layerdag.programs.targets import Targets
from layerdag.runtime.rng import numpy_generator
from layerdag.schema.durations import Durations, costs_and_ranks
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.compute import ComputeModel
from layerdag.simulator.compute_choice import compute_model
from layerdag.traces.trace import Trace

_COSTS = ("num_ops", "tensor_size", "comm_size")


def asked_times(targets: Targets) -> ComputeModel | None:
    """Return what times operators as it was asked for; None if nothing was.

    Raises:
        ConfigError: If there is no such compute model or cluster.
    """
    asked = targets.operator_times
    if asked is None or isinstance(asked, ComputeModel):
        return asked
    cluster = targets.preset
    cluster = Cluster(cluster) if isinstance(cluster, str) else cast(Cluster, cluster)
    return compute_model(str(asked), cluster.with_ranks(1).system)


@final
class DrawnTimes(ComputeModel):
    """Draws how long operators take, and how fast the machine of the job is.

    An operator that no training job has takes as long as those of the nearest costs.

    Args:
        durations: How long operators of training jobs take.
        seed: Of the sample.
    """

    def __init__(self, durations: Durations, seed: int) -> None:
        self._durations = durations
        self._rng = numpy_generator(seed, "durations")
        self._log_speed = durations.job_factor(np.zeros(0), None, float(self._rng.random()))

    def durations_ns(self, trace: Trace, rows: np.ndarray, on_cpu: np.ndarray) -> np.ndarray:
        """See ``ComputeModel.durations_ns``."""
        del on_cpu
        if not len(rows):
            return np.zeros(0, dtype=np.int64)
        words = operators(trace)
        names = [self._durations.nearest_name(words[row]) for row in rows.tolist()]
        cost_NC = np.stack(
            [np.maximum(trace.integers(name)[0][rows], 0) for name in _COSTS], axis=1
        )
        cost_N4 = costs_and_ranks(cost_NC, 0)
        usual_N = self._durations.usual(names, cost_N4)
        new_N = np.isnan(usual_N)
        if new_N.any():
            usual_N[new_N] = self._durations.usual_of_costs(cost_N4[new_N])
        factor_N = self._durations.node_factors(names, self._rng.random(len(rows)))
        time_N: np.ndarray = np.exp(usual_N + factor_N + self._log_speed)
        return np.maximum(np.round(time_N), 1).astype(np.int64)
