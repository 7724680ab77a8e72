"""``layerdag surrogate tune``: choose the settings of a surrogate's family."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from layerdag.surrogates import Trial, Tuning

FAMILY_NAMES = ("boosting", "message_passing", "dag_transformer", "additive")
SCORE_NAMES = ("pearson", "pearson_log", "spearman", "kendall", "mae", "mape", "within_10_percent")
SHOWN_TRIALS = 5
SHARED_HELP = (
    "one network for all targets instead of a model for each; of the families message_passing and "
    "dag_transformer"
)


def configure_tune(parser: argparse.ArgumentParser, data_help: str, labels_help: str) -> None:
    """Add the flags of ``tune``."""
    parser.add_argument("data", help=data_help)
    parser.add_argument("--out", required=True, metavar="DIR", help="where to write the surrogate")
    parser.add_argument(
        "--overwrite", action="store_true", help="replace a surrogate that stands at --out"
    )
    parser.add_argument("--family", choices=FAMILY_NAMES, default="boosting")
    parser.add_argument(
        "--trials", type=int, default=16, help="settings to try, the defaults first (default: 16)"
    )
    parser.add_argument("--folds", type=int, default=3, help="of the cross-validation (default: 3)")
    parser.add_argument(
        "--score", choices=SCORE_NAMES, default="mape", help="what chooses (default: mape)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--target",
        action="append",
        metavar="CONDITION",
        help="what to predict (default: label); may be repeated with --shared",
    )
    parser.add_argument("--shared", action="store_true", help=SHARED_HELP)
    parser.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="ATTRIBUTE",
        help="node attribute that the surrogate may not see; may be repeated",
    )
    parser.add_argument("--labels", metavar="FILE", help=labels_help)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run_tune(args: argparse.Namespace) -> int:
    """Search, save the best, and print the trials and the scores on the test part."""
    from layerdag._runtime import require_replaceable
    from layerdag.cli.output import evaluation_lines
    from layerdag.cli.settings import RealData
    from layerdag.surrogates import SURROGATE, Search, labeled, scored, tune

    require_replaceable(Path(args.out), SURROGATE, overwrite=args.overwrite)
    data = RealData(args.data, args.labels).alone()
    targets = args.target or ["label"]
    for target in targets:
        labeled(data.graphs["test"], data.schema, target, args.exclude)  # before a long search
    search = Search(args.trials, args.folds, args.score, args.seed)
    found = tune(
        data, args.family, search, target=targets, exclude=args.exclude, shared=args.shared
    )
    best = scored(found.surrogate, data)
    best.save(args.out, overwrite=args.overwrite)
    if args.json:
        trials = [_record(trial) for trial in found.trials]
        record = {**best.notes, "family": args.family, "trials": trials, "out": args.out}
        others = {one.target: dict(one.notes) for one in best.others}
        print(json.dumps(record | ({"others": others} if others else {})))
        return 0
    print("\n".join(_lines(found)))
    for one in (best, *best.others):
        tested = one.evaluate(data)
        print(
            f"fitted on {one.notes['train']} graphs; {one.target} on {tested.graphs} test graphs:"
        )
        print("\n".join(evaluation_lines(tested)))
    print(f"written to {args.out}")
    return 0


def _record(trial: "Trial") -> dict[str, object]:
    return {"settings": dict(trial.settings), "mean": trial.mean, "values": list(trial.values)}


def _lines(found: "Tuning") -> Iterator[str]:
    """Yield the best trials and the defaults, best first."""
    folds = len(found.best.values)
    targets = found.surrogate.targets
    over = f", the mean over {', '.join(targets)}," if len(targets) > 1 else ""
    yield (
        f"{found.score}{over} by cross-validation in {folds} folds of the training part, "
        f"{len(found.trials)} settings:"
    )
    for rank, trial in enumerate(found.trials, start=1):
        if rank <= SHOWN_TRIALS or trial is found.defaults:
            settings = ", ".join(f"{name}={value:.3g}" for name, value in trial.settings.items())
            value = f"{trial.mean:.4g} +- {trial.spread:.2g}"
            yield f"  {rank:3}  {value}  {settings or 'the defaults'}"
