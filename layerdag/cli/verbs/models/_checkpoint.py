"""``layerdag checkpoint``: what an older version wrote, with what the present one would write."""

import argparse
from typing import Any

SUMMARY = "Convert a checkpoint that an older version wrote, or add what it lacks."
EXAMPLE = (
    "  layerdag checkpoint upgrade outputs/old/best outputs/old/best-3\n"
    "  layerdag checkpoint upgrade old new --data traces   # knows how many graphs share a figure\n"
    "  layerdag checkpoint neighbors old new --data traces # samples with fewer new neighborhoods\n"
    "  layerdag checkpoint costs old new --data traces     # samples with numbers of programs"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the action and its flags."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="upgrade|neighbors|costs")
    upgrade = actions.add_parser(
        "upgrade", help="write a checkpoint of format 2 in the present format, for sampling"
    )
    _add_arguments(
        upgrade, help="data set it was trained on: then what fewer than 5 graphs show is left out"
    )
    neighbors = actions.add_parser(
        "neighbors",
        help="add the parents and children that nodes of each kind have in training, by which "
        "'sample' chooses while it draws; weights stay as they are",
    )
    _add_arguments(neighbors, help="data set it was trained on", required=True)
    costs = actions.add_parser(
        "costs",
        help="add what operators cost in training, by which 'sample' gives nodes FLOPs, bytes and "
        "message sizes that go together; weights stay as they are",
    )
    _add_arguments(costs, help="data set it was trained on", required=True)


def _add_arguments(parser: argparse.ArgumentParser, **data: Any) -> None:
    """Add what all actions take; ``data`` describes the flag of the data set."""
    parser.add_argument("old", help="folder of the checkpoint")
    parser.add_argument("new", help="folder to write")
    parser.add_argument("--data", metavar="DATA", **data)
    parser.add_argument(
        "--labels", metavar="FILE", help="label file it was trained with, if it is not in DATA"
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace a checkpoint that stands at NEW"
    )


def run(args: argparse.Namespace) -> int:
    """Convert, and say what became of it."""
    act = {"upgrade": _upgrade, "neighbors": _add_neighbors, "costs": _add_costs}
    return act[args.action](args)


def _add_neighbors(args: argparse.Namespace) -> int:
    """Write the checkpoint with the neighbors of its training graphs."""
    from layerdag.cli.settings import RealData, public_config
    from layerdag.sampling import with_neighbor_kinds
    from layerdag.training import load_checkpoint, save_checkpoint

    old = load_checkpoint(args.old)
    data = RealData(args.data, args.labels).beside_weights(old)
    contents = with_neighbor_kinds(old, public_config(old.run_config), data)
    save_checkpoint(args.new, contents, overwrite=args.overwrite)
    statistics = contents.spec.statistics
    parents, children = (
        sum(map(len, side.multisets)) for side in (statistics.parents, statistics.children)
    )
    print(f"{args.new}: weights unchanged; {parents:,} sets of parents and {children:,} of "
          "children that at least 5 training graphs have")  # fmt: skip
    return 0


def _add_costs(args: argparse.Namespace) -> int:
    """Write the checkpoint with the costs of its training jobs."""
    from layerdag.cli.settings import RealData, public_config
    from layerdag.datasets.schema.costs import CostTable
    from layerdag.sampling import with_costs
    from layerdag.training import load_checkpoint, save_checkpoint

    old = load_checkpoint(args.old)
    data = RealData(args.data, args.labels).beside_weights(old)
    contents = with_costs(old, public_config(old.run_config), data)
    save_checkpoint(args.new, contents, overwrite=args.overwrite)
    table = CostTable.from_dict(contents.schema["costs"])
    costs = sum(len(entry.costs) for entry in table.operators.values())
    changes = sum(map(len, table.steps.values()))
    print(
        f"{args.new}: weights unchanged; {costs:,} costs of operators and {changes:,} changes of "
        "size along dependencies that at least 5 training graphs have"
    )
    return 0


def _upgrade(args: argparse.Namespace) -> int:
    """Write the checkpoint in the present format."""
    from layerdag.cli.settings import RealData, public_config
    from layerdag.sampling import read_old_checkpoint, upgraded
    from layerdag.training import save_checkpoint

    old = read_old_checkpoint(args.old)
    data = RealData(args.data, args.labels).beside_weights(old) if args.data else None
    contents = upgraded(old, public_config(old.run_config), data)
    save_checkpoint(args.new, contents, overwrite=args.overwrite)
    cells = len(contents.schema["condition_table"]["cells"])
    print(f"{args.new}: format {contents.meta.format_version}, weights unchanged; "
          f"conditions in {cells} cells of at least 5 graphs")  # fmt: skip
    if data is None:
        print("counts are rounded; with --data, what fewer than 5 graphs show is left out, too")
    return 0
