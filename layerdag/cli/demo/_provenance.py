"""What the demo says of itself: what was run, how far it came, and what it does not show."""

from layerdag._version import __version__
from layerdag.api import WarmStart
from layerdag.cli.demo._stages import DemoSettings, hardware, steps_of
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
    settings: DemoSettings, trained: TrainResult, best_step: int, warm: WarmStart | None
) -> tuple[tuple[str, str], ...]:
    """Say where the weights come from, how many steps were done, and which were sampled from."""
    return (
        ("start", _start(warm)),
        ("training", f"{trained.step} of {steps_of(settings, warm)} steps"),
        ("weights", f"those of step {best_step}, the best on the validation jobs"),
    )


def _start(warm: WarmStart | None) -> str:
    """Say what training started from."""
    if warm is None:
        return (
            "random weights, for the shipped checkpoint was not trained on the same split of these "
            "data"
        )
    return (
        "the shipped checkpoint, trained on the training jobs of the same split "
        f"({warm.start.origin.step:,} steps in its last run); its validation and test jobs are the "
        "ones held out here"
    )


def caveats(
    settings: DemoSettings, trained: TrainResult, warm: WarmStart | None
) -> tuple[str, ...]:
    """Return what the figures do not show; first of all that training was cut short, if it was."""
    known: tuple[str, ...] = CAVEATS
    if warm is not None:
        known = (
            f"The figures are not those of {trained.step} steps alone: the weights that they "
            "started from had been trained before "
            f"({warm.start.origin.step:,} steps in the last run).",
            *CAVEATS,
        )
    steps = steps_of(settings, warm)
    if trained.step >= steps:
        return known
    stopped = (
        f"Training stopped after {trained.step} of {steps} steps ({trained.reason}); the figures "
        "are those of a model that learned less."
    )
    return (stopped, *known)


def provenance(
    settings: DemoSettings, data: GraphDataset, seconds: dict[str, float]
) -> tuple[tuple[str, str], ...]:
    """Say what was run, on what, how long it took and with which seeds."""
    took = ", ".join(f"{name} {value:.0f} s" for name, value in seconds.items())
    counts = ", ".join(f"{len(dags)} {split}" for split, dags in data.graphs.items())
    is_short = settings == DemoSettings.short(settings.data, settings.out, settings.seed)
    return (
        ("command", f"layerdag demo --seed {settings.seed}{' --short' if is_short else ''}"),
        ("layerdag", __version__),
        ("hardware", hardware()),
        ("data", f"{settings.data.name}, at most {settings.max_nodes} nodes per job: {counts}"),
        ("data fingerprint", data.fingerprint),
        ("left out", f"{len(data.left_out)} runs (too large, or with an unseen word)"),
        ("seed of training and sampling", str(settings.seed)),
        ("fits of each surrogate", fits(settings.surrogate_seeds)),
        ("time", took),
    )
