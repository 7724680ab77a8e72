"""Sweeps on a Ray cluster: the points of a sweep as Ray tasks. Ray is imported only here."""

import importlib
from collections.abc import Iterator

from layerdag.errors import SimulationError, UsageError
from layerdag.simulator.sweep._run import SweepPoint, SweepRow, run_point


def run_on_ray(address: str, todo: list[tuple[SweepPoint, str]]) -> Iterator[SweepRow]:
    """Yield the rows of ``todo`` as the cluster finishes them.

    Every machine of the cluster needs layerdag and sees the same files under the same paths.

    Args:
        address: What ``ray.init`` takes: "auto", "host:port" or "ray://host:port".
        todo: Points with their keys.

    Raises:
        UsageError: If Ray is not installed or the cluster cannot be reached.
        SimulationError: If a task is lost, for example with its machine.
    """
    try:
        ray = importlib.import_module("ray")
    except ImportError:
        raise UsageError(
            "--ray needs the package ray, which is not installed; pip install ray, or use "
            "--processes on this machine."
        ) from None
    try:
        ray.init(address=address, log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UsageError(f"--ray {address}: no cluster can be reached ({error}).") from None
    try:
        task = ray.remote(run_point)
        waiting = [task.remote(point, key) for point, key in todo]
        while waiting:
            ready, waiting = ray.wait(waiting, num_returns=1)
            yield ray.get(ready[0])
    except ray.exceptions.RayError as error:
        raise SimulationError(
            f"--ray {address}: a task was lost ({error}); run the sweep again, it goes on where it "
            "stopped."
        ) from None
    finally:
        ray.shutdown()
