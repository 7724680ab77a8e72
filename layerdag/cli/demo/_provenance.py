"""What the demo says of itself: what was run, how far it came, and what it does not show."""

from layerdag._version import __version__
from layerdag.cli.demo._stages import DemoSettings, hardware
from layerdag.datasets import GraphDataset
from layerdag.report.sections import fits
from layerdag.training import TrainResult

CAVEATS = (
    "The scale of every distance is the same distance between real training and real test jobs; "
    "with this many graphs a ratio is uncertain, see the intervals.",
    "Copy tests and membership attacks that find nothing are no proof of safety.",
    "The surrogate does not see measured durations; the job's step time is its target.",
)


def training(
    settings: DemoSettings, trained: TrainResult, best_step: int
) -> tuple[tuple[str, str], ...]:
    """Say how many steps were done, and which step's weights were sampled from."""
    return (
        ("training", f"{trained.step} of {settings.train_steps} steps"),
        ("weights", f"those of step {best_step}, the best on the validation jobs"),
    )


def caveats(settings: DemoSettings, trained: TrainResult) -> tuple[str, ...]:
    """Return what the figures do not show; first of all that training was cut short, if it was."""
    if trained.step >= settings.train_steps:
        return CAVEATS
    stopped = (
        f"Training stopped after {trained.step} of {settings.train_steps} steps "
        f"({trained.reason}); the figures are those of a model that learned less."
    )
    return (stopped, *CAVEATS)


def provenance(
    settings: DemoSettings, data: GraphDataset, seconds: dict[str, float]
) -> tuple[tuple[str, str], ...]:
    """Say what was run, on what, how long it took and with which seeds."""
    took = ", ".join(f"{name} {value:.0f} s" for name, value in seconds.items())
    counts = ", ".join(f"{len(dags)} {split}" for split, dags in data.graphs.items())
    return (
        ("command", f"layerdag demo --seed {settings.seed}"),
        ("layerdag", __version__),
        ("hardware", hardware()),
        ("data", f"{settings.data.name}, at most {settings.max_nodes} nodes per job: {counts}"),
        ("data fingerprint", data.fingerprint),
        ("left out", f"{len(data.left_out)} runs (too large, or with an unseen word)"),
        ("seed of training and sampling", str(settings.seed)),
        ("fits of each surrogate", fits(settings.surrogate_seeds)),
        ("time", took),
    )
