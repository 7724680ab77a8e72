"""``layerdag surrogate fit|predict|tstr``: predict performance from graphs."""

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from layerdag._runtime import tell_renamed

SUMMARY = "Fit and use models that predict performance from a graph."
EXAMPLE = (
    "  layerdag surrogate fit data --exclude duration --out outputs/surrogate\n"
    "  layerdag surrogate predict outputs/surrogate data/examples/ddp_mlp\n"
    "  layerdag surrogate tstr data outputs/samples --exclude duration"
)
DATA_HELP = (
    "corpus folder (index.jsonl), TPU Tile folder (.pth), family of DGRL's computational graphs "
    "(num-node-list.csv), folder of graphs with labels.csv or labels.json, or a training run"
)
LABELS_HELP = "label file of a folder of graphs, where it is not labels.csv or labels.json in it"
FAMILY_NAMES = ("boosting", "message_passing")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the three actions and their flags."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="fit|predict|tstr")
    fit = actions.add_parser("fit", help="fit on the training part, test on the test part")
    fit.add_argument("data", help=DATA_HELP)
    fit.add_argument("--out", required=True, metavar="DIR", help="where to write the surrogate")
    fit.add_argument(
        "--overwrite", action="store_true", help="replace a surrogate that stands at --out"
    )
    fit.add_argument("--family", choices=FAMILY_NAMES, default="boosting")
    fit.add_argument("--seed", type=int, default=0)
    _common(fit)
    predict = actions.add_parser("predict", help="predict for workloads or graphs")
    predict.add_argument("model", help="folder that 'fit' wrote")
    predict.add_argument("paths", nargs="+", metavar="PATH", help="workload prefix, file or graph")
    predict.add_argument("--json", action="store_true", help="print JSON instead of text")
    tstr = actions.add_parser("tstr", help="train on synthetic, test on real graphs")
    tstr.add_argument("data", help=DATA_HELP)
    tstr.add_argument("samples", help="folder that 'layerdag sample' wrote")
    tstr.add_argument("--family", choices=FAMILY_NAMES, action="append", help="may be repeated")
    tstr.add_argument("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    _common(tstr)


def _common(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the actions that read a data set."""
    parser.add_argument(
        "--target", default="label", metavar="CONDITION", help="what to predict (default: label)"
    )
    parser.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="ATTRIBUTE",
        help="node attribute that the surrogate may not see; 'duration' where it tells the target; "
        "may be repeated",
    )
    parser.add_argument("--hide", action=_OldExclude, dest="exclude", help=argparse.SUPPRESS)
    parser.add_argument("--labels", metavar="FILE", help=LABELS_HELP)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


class _OldExclude(argparse.Action):
    """``--hide``, the old name of ``--exclude``."""

    def __call__(
        self, parser: object, namespace: argparse.Namespace, values: Any, *_: object
    ) -> None:
        tell_renamed("--hide", "--exclude")
        namespace.exclude = [*namespace.exclude, values]


def run(args: argparse.Namespace) -> int:
    """Run one action."""
    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "fit": _fit,
        "predict": _predict,
        "tstr": _tstr,
    }
    return actions[args.action](args)


def _fit(args: argparse.Namespace) -> int:
    """Fit, save with everything that prediction needs, and print the scores on the test part."""
    from layerdag._runtime import require_replaceable
    from layerdag.cli.settings import RealData
    from layerdag.surrogates import SURROGATE, Surrogate, labeled

    require_replaceable(Path(args.out), SURROGATE, overwrite=args.overwrite)
    data = RealData(args.data, args.labels).alone()
    tested = len(labeled(data.graphs["test"], data.schema, args.target, args.exclude).dags)
    surrogate = Surrogate.fit(
        data, args.family, target=args.target, exclude=args.exclude, seed=args.seed
    )
    figures = surrogate.score(data)
    notes = {**surrogate.notes, "test": tested, "scores": figures}
    replace(surrogate, notes=notes).save(args.out, overwrite=args.overwrite)
    record = notes | {"target": args.target, "excluded": args.exclude}
    if args.json:
        print(json.dumps(record | {"family": args.family, "out": args.out}))
        return 0
    print(
        f"{args.family} fitted on {record['train']} graphs of {data.name}, seed {args.seed}; "
        f"on {tested} test graphs:"
    )
    print("  " + ", ".join(f"{name} {value:.3g}" for name, value in figures.items()))
    print(f"written to {args.out}")
    return 0


def _predict(args: argparse.Namespace) -> int:
    """Print one number per graph."""
    from layerdag.surrogates import Surrogate

    model = Surrogate.load(args.model)
    target, predicted = model.target, model.predict(args.paths)
    rows = [
        {"path": path, target: float(value)}
        for path, value in zip(args.paths, predicted, strict=True)
    ]
    if args.json:
        print(json.dumps(rows))
    else:
        for row in rows:
            print(f"{row['path']}: {target} {row[target]:.6g}")
    return 0


def _tstr(args: argparse.Namespace) -> int:
    """Print the transfer table."""
    from layerdag.cli.settings import RealData
    from layerdag.surrogates import FAMILIES, RELATIVE, labeled, read_samples, transfer

    data = RealData(args.data, args.labels).beside_samples(args.samples)
    schema = data.schema
    report = transfer(
        labeled(data.graphs["train"], schema, args.target, args.exclude),
        labeled(read_samples(args.samples, schema), schema, args.target, args.exclude),
        labeled(data.graphs["test"], schema, args.target, args.exclude),
        schema.sizes(),
        {name: FAMILIES[name] for name in args.family or FAMILY_NAMES},
        seeds=range(args.seeds),
    )
    if args.json:
        found = asdict(report)
        print(json.dumps({**found, "shares": found["fractions"]}))  # the key until now
        return 0
    print(f"tested on {report.tested_on} real graphs, seeds {', '.join(map(str, report.seeds))}")
    width = max(len(row.condition) for row in report.rows)
    for row in report.rows:
        shown: Mapping[str, float] = {name: score.mean for name, score in row.scores.items()}
        figures = "  ".join(f"{name} {value:7.3f}" for name, value in shown.items())
        print(f"{row.family:16} {row.condition:{width}}  {row.trained_on:5} graphs  {figures}")
    for reached in report.fractions:
        if reached.score in RELATIVE and reached.interval is not None:
            print(
                f"{reached.family:16} synthetic reaches {reached.value:.0%} of the real "
                f"{reached.score} (95 % interval {reached.interval.low:.0%} to "
                f"{reached.interval.high:.0%})"
            )
    return 0
