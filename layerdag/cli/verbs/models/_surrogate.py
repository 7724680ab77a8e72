"""``layerdag surrogate fit|tune|predict|eval|tstr``: predict performance from graphs."""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from layerdag.cli.verbs.models._tuning import SHARED_HELP, configure_tune, run_tune
from layerdag.errors import UsageError

if TYPE_CHECKING:
    pass

SUMMARY = "Fit and use models that predict performance from a graph."
EXAMPLE = (
    "  layerdag surrogate fit data --exclude duration --out outputs/surrogate\n"
    "  layerdag surrogate predict outputs/surrogate data/examples/ddp_mlp\n"
    "  layerdag surrogate tune data --exclude duration --trials 32 --out outputs/tuned\n"
    "  layerdag surrogate eval outputs/surrogate data --by family\n"
    "  layerdag surrogate tstr data outputs/samples --exclude duration"
)
DATA_HELP = (
    "corpus folder (index.jsonl), TPU Tile folder (.pth), family of DGRL's computational graphs "
    "(num-node-list.csv), folder of graphs with labels.csv or labels.json, or a training run"
)
LABELS_HELP = "label file of a folder of graphs, where it is not labels.csv or labels.json in it"
FAMILY_NAMES = ("boosting", "message_passing", "dag_transformer", "additive", "stacked")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their flags."""
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="fit|tune|predict|eval|tstr"
    )
    fit = actions.add_parser("fit", help="fit on the training part, test on the test part")
    fit.add_argument("data", help=DATA_HELP)
    fit.add_argument("--out", required=True, metavar="DIR", help="where to write the surrogate")
    fit.add_argument(
        "--overwrite", action="store_true", help="replace a surrogate that stands at --out"
    )
    fit.add_argument("--family", choices=FAMILY_NAMES, default="boosting")
    fit.add_argument("--seed", type=int, default=0)
    fit.add_argument(
        "--target",
        action="append",
        metavar="CONDITION",
        help="what to predict (default: label); may be repeated",
    )
    fit.add_argument("--shared", action="store_true", help=SHARED_HELP)
    fit.add_argument(
        "--per",
        choices=("graph", "operator"),
        default="graph",
        help="what to predict a number of; 'operator' learns the measured times of single "
        "operators from a corpus or a workload, for 'simulate --compute surrogate:DIR'",
    )
    _common(fit)
    configure_tune(
        actions.add_parser("tune", help="choose the settings of a family, and fit"),
        DATA_HELP,
        LABELS_HELP,
    )
    predict = actions.add_parser("predict", help="predict for workloads or graphs")
    predict.add_argument("model", help="folder that 'fit' wrote")
    predict.add_argument("paths", nargs="+", metavar="PATH", help="workload prefix, file or graph")
    predict.add_argument(
        "--level", type=float, default=0.9, help="of the intervals, a fraction (default: 0.9)"
    )
    predict.add_argument("--json", action="store_true", help="print JSON instead of text")
    _configure_eval(actions.add_parser("eval", help="score on a part of a data set"))
    tstr = actions.add_parser("tstr", help="train on synthetic, test on real graphs")
    tstr.add_argument("data", help=DATA_HELP)
    tstr.add_argument("samples", help="folder that 'layerdag sample' wrote")
    tstr.add_argument(
        "--family",
        choices=FAMILY_NAMES,
        action="append",
        help="may be repeated (default: boosting and message_passing)",
    )
    tstr.add_argument(
        "--target", default="label", metavar="CONDITION", help="what to predict (default: label)"
    )
    tstr.add_argument("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    tstr.add_argument(
        "--real",
        type=int,
        nargs="+",
        default=[],
        metavar="N",
        help="numbers of real graphs that are tried alone and together with the samples, such as "
        "20 50 100",
    )
    _common(tstr)


def _configure_eval(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``eval``."""
    parser.add_argument("model", help="folder that 'fit' wrote")
    parser.add_argument("data", help=DATA_HELP)
    parser.add_argument("--split", choices=("train", "val", "test"), default="test")
    parser.add_argument(
        "--by", metavar="CONDITION", help="score each group of graphs, too, such as each 'family'"
    )
    parser.add_argument("--labels", metavar="FILE", help=LABELS_HELP)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def _common(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the actions that read a data set."""
    parser.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="ATTRIBUTE",
        help="node attribute that the surrogate may not see; 'duration' where it tells the target; "
        "may be repeated",
    )
    parser.add_argument("--labels", metavar="FILE", help=LABELS_HELP)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(args: argparse.Namespace) -> int:
    """Run one action."""
    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "fit": _fit,
        "tune": run_tune,
        "predict": _predict,
        "eval": _eval,
        "tstr": _tstr,
    }
    return actions[args.action](args)


def _fit(args: argparse.Namespace) -> int:
    """Fit, save with everything that prediction needs, and print the scores on the test part."""
    if args.per == "operator":
        return _fit_operators(args)
    from layerdag._runtime import require_replaceable
    from layerdag.cli.output import evaluation_lines
    from layerdag.cli.settings import RealData
    from layerdag.surrogates import SURROGATE, Surrogate, labeled, scored

    require_replaceable(Path(args.out), SURROGATE, overwrite=args.overwrite)
    data = RealData(args.data, args.labels).alone()
    targets = args.target or ["label"]
    for target in targets:
        labeled(data.graphs["test"], data.schema, target, args.exclude)  # before a long fit
    fitted = Surrogate.fit(
        data,
        args.family,
        target=targets,
        exclude=args.exclude,
        seed=args.seed,
        shared=args.shared,
    )
    rated = scored(fitted, data)
    rated.save(args.out, overwrite=args.overwrite)
    every = (rated, *rated.others)
    if args.json:
        records = [{**one.notes, "target": one.target, "excluded": args.exclude} for one in every]
        others = {record["target"]: record for record in records[1:]}
        further = {"others": others} if others else {}
        settings = {"family": args.family, "shared": args.shared, "out": args.out}
        print(json.dumps(records[0] | settings | further))
        return 0
    for one in every:
        found = one.evaluate(data)
        print(
            f"{args.family} fitted on {one.notes['train']} graphs of {data.name}, "
            f"seed {args.seed}; {one.target} on {found.graphs} test graphs:"
        )
        print("\n".join(evaluation_lines(found)))
    print(f"written to {args.out}")
    return 0


def _fit_operators(args: argparse.Namespace) -> int:
    """Fit and save the times of single operators."""
    from layerdag._runtime import require_replaceable
    from layerdag.cli.output import operator_lines
    from layerdag.surrogates import SURROGATE, fit_operators, save_surrogate

    if args.target or args.exclude or args.labels or args.shared or args.family != "boosting":
        raise UsageError(
            "'--per operator' fits boosted trees to measured times; leave out --target, --exclude, "
            "--labels, --shared and --family."
        )
    require_replaceable(Path(args.out), SURROGATE, overwrite=args.overwrite)
    trees, errors, jobs = fit_operators(args.data, args.seed)
    notes = {"data": args.data, "seed": args.seed, "train": jobs}
    notes |= {"evaluation": errors.to_dict()} if errors else {}
    save_surrogate(trees, args.out, notes, overwrite=args.overwrite)
    if args.json:
        print(json.dumps({**notes, "family": trees.family, "out": args.out}))
        return 0
    print(f"operators of {jobs} {'jobs' if jobs > 1 else 'job'} fitted, seed {args.seed}")
    print("\n".join((*operator_lines(errors), f"written to {args.out}")))
    return 0


def _predict(args: argparse.Namespace) -> int:
    """Print one number per graph and target, with its interval."""
    from layerdag.cli.output import prediction_rows, prediction_text
    from layerdag.cli.settings import warn
    from layerdag.datasets import encoded
    from layerdag.surrogates import Surrogate

    model = Surrogate.load(args.model)
    dags = encoded(args.paths, model.schema)
    rows = list(prediction_rows(model, args.paths, dags, args.level))
    if args.json:
        print(json.dumps(rows))
        return 0
    for row in rows:
        for target in model.targets:
            print(f"{row['path']}: {target} {prediction_text(row, target)}")
        if row["unfamiliar"]:
            warn(f"{row['path']} is unlike what was fitted on: {row['unfamiliar']}.")
    return 0


def _eval(args: argparse.Namespace) -> int:
    """Print scores with intervals and the coverage of prediction intervals."""
    from layerdag.cli.output import evaluation_lines
    from layerdag.cli.settings import RealData, warn
    from layerdag.surrogates import Surrogate

    model = Surrogate.load(args.model)
    data = RealData(args.data, args.labels).alone()
    if model.notes.get("split") != data.split.to_dict():
        warn(
            f"{args.data}: is split in another way than the data that {args.model} was fitted on, "
            "so nothing tells whether graphs of this part were fitted on."
        )
    first, *others = (one.evaluate(data, args.split, args.by) for one in (model, *model.others))
    if args.json:
        further = {"others": {one.target: one.to_dict() for one in others}} if others else {}
        print(json.dumps({"split": args.split, **first.to_dict(), **further}))
        return 0
    for found in (first, *others):
        print(
            f"{model.model.family} for {found.target} on {found.graphs} {args.split} graphs of "
            f"{data.name}:"
        )
        print("\n".join(evaluation_lines(found)))
    return 0


def _tstr(args: argparse.Namespace) -> int:
    """Print the transfer table."""
    from layerdag.cli.output import transfer_lines
    from layerdag.cli.settings import RealData
    from layerdag.surrogates import (
        CONDITIONS,
        FAMILIES,
        RELABELED,
        few_real,
        labeled,
        read_samples,
        transfer,
    )

    data = RealData(args.data, args.labels).beside_samples(args.samples)
    schema = data.schema
    real = labeled(data.graphs["train"], schema, args.target, args.exclude)
    families = list(dict.fromkeys(args.family or FAMILY_NAMES[:2]))
    relabeled = (RELABELED,) if len(families) > 1 else ()
    report = transfer(
        real,
        labeled(read_samples(args.samples, schema), schema, args.target, args.exclude),
        labeled(data.graphs["test"], schema, args.target, args.exclude),
        schema.sizes(),
        {name: FAMILIES[name] for name in families},
        seeds=range(args.seeds),
        conditions=(*CONDITIONS, *relabeled, *few_real(args.real, len(real.dags))),
    )
    if args.json:
        print(json.dumps(asdict(report)))
        return 0
    print("\n".join(transfer_lines(report)))
    return 0
