"""``layerdag pack``: a folder of graphs as flat arrays that train with little memory."""

import argparse
import sys
from pathlib import Path

from layerdag.cli.printing import (
    add_strict,
    notes_json,
    print_figures,
    print_notes,
    strict_code,
    unknown_share,
)

SUMMARY = "Write a folder of graphs as flat arrays, to train on more than memory holds."
EXAMPLE = "  layerdag pack traces --out traces-packed\n  layerdag train --folder traces-packed"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument(
        "folder", metavar="FOLDER", help="traces or flow graphs, as for train data=folder"
    )
    parser.add_argument("--out", required=True, metavar="PACKED", help="folder to write")
    parser.add_argument("--labels", metavar="FILE", help="CSV or JSON: name, label, split, ...")
    parser.add_argument("--seed", type=int, default=0, help="of the split (default 0)")
    parser.add_argument(
        "--max-nodes", type=int, default=10_000, help="larger graphs are left out (default 10000)"
    )
    parser.add_argument(
        "--num-bins", type=int, default=16, help="bins of each numeric attribute (default 16)"
    )
    parser.add_argument(
        "--held-out", type=float, metavar="SHARE", help="of the graphs, for validation and test"
    )
    parser.add_argument(
        "--public-words", nargs="*", default=[], metavar="WORD",
        help="words that stay beside the public ones; 'all' keeps every word",
    )  # fmt: skip
    parser.add_argument("--blocks", choices=("whole", "rolled"), default="whole")
    parser.add_argument(
        "--schema-nodes", type=int, metavar="N",
        help="nodes of the graphs that are held to learn words and bins from (default 2000000)",
    )  # fmt: skip
    parser.add_argument("--overwrite", action="store_true", help="replace an older packed data set")
    add_strict(parser)


def run(args: argparse.Namespace) -> int:
    """Pack, and print what was written."""
    from layerdag.cli.settings import warn
    from layerdag.datasets.loading import LABEL_FILES, FolderConfig
    from layerdag.datasets.packing import SCHEMA_NODES, pack_folder

    folder = Path(args.folder)
    inside = (folder / name for name in LABEL_FILES if (folder / name).is_file())
    labels = Path(args.labels) if args.labels else next(inside, None)
    config = FolderConfig(
        folder=folder, labels=labels, seed=args.seed, max_nodes=args.max_nodes,
        num_bins=args.num_bins, held_out=args.held_out, blocks=args.blocks,
        public_words="all" if args.public_words == ["all"] else tuple(args.public_words),
    )  # fmt: skip
    header = pack_folder(
        config,
        args.out,
        schema_nodes=args.schema_nodes or SCHEMA_NODES,
        overwrite=args.overwrite,
    )
    print_notes(header.notes)
    share = unknown_share(header.unknown, header.nodes, "--public-words", "--public-words all")
    for sentence in share:
        warn(sentence)
    for sentence in header.left_out:
        print(f"layerdag: left out: {sentence}", file=sys.stderr)
    counts = ", ".join(f"{count} {split}" for split, count in header.splits.items())
    graphs = "graph" if header.learned_from == 1 else "graphs"
    line = f"wrote {args.out}: {counts}; schema of {header.learned_from} training {graphs}"
    figures = {
        "out": args.out,
        "splits": dict(header.splits),
        "learned_from": header.learned_from,
        "nodes": header.nodes,
        "unknown": header.unknown,
        "left_out": list(header.left_out),
        "notes": notes_json(header.notes),
    }
    print_figures(args.json, figures, [line])
    return strict_code(header.notes, strict=args.strict)
