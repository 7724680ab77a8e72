"""``layerdag checkpoint upgrade``: a checkpoint of an older format in the present one."""

import argparse

SUMMARY = "Convert a checkpoint that an older version wrote."
EXAMPLE = (
    "  layerdag checkpoint upgrade outputs/old/best outputs/old/best-3\n"
    "  layerdag checkpoint upgrade old new --data traces   # knows how many graphs share a figure"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the action and its flags."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="upgrade")
    upgrade = actions.add_parser(
        "upgrade", help="write a checkpoint of format 2 in the present format, for sampling"
    )
    upgrade.add_argument("old", help="folder of the checkpoint")
    upgrade.add_argument("new", help="folder to write")
    upgrade.add_argument(
        "--data",
        metavar="DATA",
        help="data set it was trained on: then what fewer than 5 graphs show is left out, too",
    )
    upgrade.add_argument(
        "--labels", metavar="FILE", help="label file it was trained with, if it is not in DATA"
    )
    upgrade.add_argument(
        "--overwrite", action="store_true", help="replace a checkpoint that stands at NEW"
    )


def run(args: argparse.Namespace) -> int:
    """Convert, and say what became of it."""
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
