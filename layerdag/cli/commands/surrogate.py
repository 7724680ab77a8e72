"""``layerdag surrogate``: fit and use models that predict performance."""

import argparse
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from layerdag.cli.printing import add_json, report_data, warn
from layerdag.errors import UsageError
from layerdag.runtime.terminal import counted

SUMMARY = "Fit and use models that predict performance from a graph."
EXAMPLE = (
    "  layerdag workload gpt2 --data 8 --out traces/gpt2\n"
    "  layerdag surrogate fit traces/labeled --out outputs/surrogate\n"
    "  layerdag surrogate predict outputs/surrogate traces/gpt2\n"
    "  layerdag surrogate eval outputs/surrogate traces/labeled --by family\n"
    "  layerdag surrogate tstr traces/labeled outputs/samples"
)
DATA_HELP = (
    "corpus, or its folder (index.jsonl), TPU Tile folder (.pth), family of DGRL's computational "
    "graphs (num-node-list.csv), folder of graphs with labels.csv or labels.json, or a training run"
)
FAMILY_NAMES = ("boosting", "message_passing", "stacked")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their flags."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="fit|predict|eval|tstr")
    fit = actions.add_parser("fit", help="fit on the training part, test on the test part")
    fit.add_argument("data", help=DATA_HELP)
    fit.add_argument("--out", required=True, metavar="DIR", help="where to write the surrogate")
    fit.add_argument("--overwrite", action="store_true",
        help="replace the surrogate at --out")  # fmt: skip
    fit.add_argument("--family", choices=FAMILY_NAMES, default="boosting")
    fit.add_argument("--seed", type=int, default=0)
    fit.add_argument("--target", action="append", metavar="CONDITION",
        help="what to predict (default: label); may be repeated")  # fmt: skip
    fit.add_argument("--shared", action="store_true",
        help="one network for all targets instead of a model for each; of the family "
        "message_passing")  # fmt: skip
    fit.add_argument("--per", choices=("graph", "operator"), default="graph",
        help="what to predict a number of; 'operator' learns the measured times of single "
        "operators from a corpus or a workload, for 'simulate --compute "
        "surrogate:DIR'")  # fmt: skip
    predict = actions.add_parser("predict", help="predict for workloads or graphs")
    predict.add_argument("model", help="folder that 'fit' wrote")
    predict.add_argument("paths", nargs="+", metavar="PATH", help="workload prefix, file or graph")
    predict.add_argument("--level", type=float, default=0.9,
        help="of the intervals, a fraction (default: 0.9)")  # fmt: skip
    score = actions.add_parser("eval", help="score on a part of a data set")
    score.add_argument("model", help="folder that 'fit' wrote")
    score.add_argument("data", help=DATA_HELP)
    score.add_argument("--split", choices=("train", "val", "test"), default="test")
    score.add_argument("--by", metavar="CONDITION",
        help="score each group of graphs, too, such as each 'family'")  # fmt: skip
    tstr = actions.add_parser("tstr", help="train on synthetic, test on real graphs")
    tstr.add_argument("data", help=DATA_HELP)
    tstr.add_argument("samples", help="folder that 'layerdag sample' wrote")
    tstr.add_argument("--family", choices=FAMILY_NAMES, action="append",
        help="may be repeated (default: boosting and message_passing)")  # fmt: skip
    tstr.add_argument("--target", default="label", metavar="CONDITION",
        help="what to predict (default: label)")  # fmt: skip
    tstr.add_argument("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    tstr.add_argument("--real", type=int, nargs="+", default=[], metavar="N",
        help="numbers of real graphs that are tried alone and together with the samples, such as "
        "20 50 100")  # fmt: skip
    for one in (fit, tstr):
        one.add_argument("--exclude", action="append", default=[], metavar="ATTRIBUTE",
            help="node attribute that the surrogate may not see; 'duration' where it tells the "
            "target; may be repeated")  # fmt: skip
    for one in (fit, score, tstr):
        one.add_argument("--labels", metavar="FILE",
            help="label file of a folder of graphs, where it is not labels.csv or labels.json in "
            "it")  # fmt: skip
    for one in (fit, predict, score, tstr):
        add_json(one)


def run(args: argparse.Namespace) -> int:
    """Run one action and print what came out."""
    actions = {"fit": _fit, "predict": _predict, "eval": _eval, "tstr": _tstr}
    figures, lines = actions[args.action](args)
    if args.json:
        print(json.dumps(figures))
    else:
        print("\n".join(lines))
    return 0


Outcome = tuple[object, Iterable[str]]
"""The JSON document of an action, and the lines that say the same."""


def _fit(args: argparse.Namespace) -> Outcome:
    from layerdag.api.reference_data import ReferenceData
    from layerdag.runtime.files import require_replaceable
    from layerdag.surrogates.files import SURROGATE, save_surrogate
    from layerdag.surrogates.operators import fit_operators
    from layerdag.surrogates.surrogate import FittedSurrogate
    from layerdag.surrogates.targets import labeled

    by_operator = args.per == "operator"
    others = args.target or args.exclude or args.labels or args.shared
    if by_operator and (others or args.family != "boosting"):
        raise UsageError(
            "'--per operator' fits boosted trees to measured times; leave out --target, --exclude, "
            "--labels, --shared and --family."
        )
    require_replaceable(Path(args.out), SURROGATE, overwrite=args.overwrite)
    written = f"written to {args.out}"
    if by_operator:
        trees, errors, jobs = fit_operators(ReferenceData(args.data).place, args.seed)
        notes = {"data": args.data, "seed": args.seed, "train": jobs}
        notes |= {"evaluation": errors.to_dict()} if errors else {}
        save_surrogate(trees, args.out, notes, overwrite=args.overwrite)
        first = f"operators of {counted(jobs, 'job')} fitted, seed {args.seed}"
        figures = {**notes, "family": trees.family, "out": args.out}
        return figures, [first, *([str(errors)] if errors else []), written]
    data = ReferenceData(args.data, args.labels).load(as_jobs=True)  # programs have no costs
    report_data(data)
    targets = args.target or ["label"]
    for target in targets:
        labeled(data.graphs["test"], data.schema, target, args.exclude)  # before a long fit
    fitted = FittedSurrogate.fit(
        data, args.family, target=targets, exclude=args.exclude, seed=args.seed, shared=args.shared
    )
    rated = fitted.scored(data)
    rated.save(args.out, overwrite=args.overwrite)
    every = (rated, *rated.others)
    records = [{**one.notes, "target": one.target, "excluded": args.exclude} for one in every]
    further = {"others": {one["target"]: one for one in records[1:]}} if records[1:] else {}
    settings = {"family": args.family, "shared": args.shared, "out": args.out}
    lines = []
    for one in every if not args.json else ():
        found = one.evaluate(data)
        lines.append(
            f"{args.family} fitted on {one.notes['train']} graphs of {data.name}, "
            f"seed {args.seed}; {one.target} on {found.graphs} test graphs:"
        )
        lines.append(str(found))
    return records[0] | settings | further, [*lines, written]


def _predict(args: argparse.Namespace) -> Outcome:
    from layerdag.datasets.encoding import encoded
    from layerdag.surrogates.surrogate import FittedSurrogate

    if not 0 < args.level < 1:
        raise UsageError(f"--level is {args.level:g}; write a fraction between 0 and 1.")
    model = FittedSurrogate.load(args.model)
    dags = encoded(args.paths, model.schema)
    rows, lines = model.prediction_rows(args.paths, dags, args.level), []
    for row in rows:
        lines += [f"{row['path']}: {t} {_prediction(row, t)}" for t in model.targets]
        if row["unfamiliar"] and not args.json:
            warn(f"{row['path']} is unlike what was fitted on: {row['unfamiliar']}.")
    return rows, lines


def _prediction(row: Mapping[str, Any], target: str) -> str:
    """Return one predicted number of a row with its interval in brackets."""
    found = row["others"][target] if target in row.get("others", ()) else row
    number = found.get("value", found.get(target))
    if "low" not in found:
        return f"{number:.6g}"
    around = f"{found['low']:.4g} to {found['high']:.4g}"
    return f"{number:.6g} ({100 * found['level']:.4g} % interval: {around})"


def _eval(args: argparse.Namespace) -> Outcome:
    from layerdag.api.reference_data import ReferenceData
    from layerdag.surrogates.surrogate import FittedSurrogate

    model = FittedSurrogate.load(args.model)
    data = ReferenceData(args.data, args.labels).load(as_jobs=True)  # programs have no costs
    report_data(data)
    if model.notes.get("split") != data.split.to_dict():
        warn(
            f"{args.data}: is split in another way than the data that {args.model} was fitted on, "
            "so nothing tells whether graphs of this part were fitted on."
        )
    first, *others = (one.evaluate(data, args.split, args.by) for one in (model, *model.others))
    further = {"others": {one.target: one.to_dict() for one in others}} if others else {}
    lines = []
    for found in (first, *others):
        lines.append(
            f"{model.model.family} for {found.target} on {found.graphs} {args.split} graphs of "
            f"{data.name}:"
        )
        lines.append(str(found))
    return {"split": args.split, **first.to_dict(), **further}, lines


def _tstr(args: argparse.Namespace) -> Outcome:
    from layerdag.api.reference_data import ReferenceData
    from layerdag.samples.manifest import report_unread
    from layerdag.samples.stream import read_samples
    from layerdag.surrogates.families.registry import FAMILIES
    from layerdag.surrogates.targets import labeled
    from layerdag.surrogates.training_sets import CONDITIONS, RELABELED, few_real
    from layerdag.surrogates.tstr import evaluate_tstr

    data = ReferenceData(args.data, args.labels, warn=warn).load_for_samples(args.samples)
    report_data(data)
    report_unread(args.samples, warn)
    schema = data.schema
    real = labeled(data.graphs["train"], schema, args.target, args.exclude)
    families = list(dict.fromkeys(args.family or FAMILY_NAMES[:2]))
    relabeled = (RELABELED,) if len(families) > 1 else ()
    report = evaluate_tstr(
        real,
        labeled(read_samples(args.samples, schema), schema, args.target, args.exclude),
        labeled(data.graphs["test"], schema, args.target, args.exclude),
        schema.sizes(),
        {name: FAMILIES[name] for name in families},
        seeds=range(args.seeds),
        conditions=(*CONDITIONS, *relabeled, *few_real(args.real, len(real.dags))),
    )
    return asdict(report), [str(report)]
