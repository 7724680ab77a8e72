"""``layerdag workload corpus``: labelled training steps of LLMs, to learn from."""

import argparse
from pathlib import Path

from layerdag.errors import UsageError

SUMMARY = (
    "Draw points (model, plan, batch) of a space and write each as the graph of a training step, "
    "layers held once, with its simulated time: a corpus for 'layerdag train data=folder'."
)
EXAMPLE = (
    "  layerdag workload corpus --num 900 --seed 0 --out corpora/llm\n"
    "  layerdag train --experiment llm --folder corpora/llm\n"
    "  layerdag workload corpus --space space.yaml --num 100 --out corpora/mine\n"
    "  with space.yaml (what is left out is as without a file):\n"
    "    models: {llama3: llama3-8b, mine: my/config.json}\n"
    "    tensor: [1, 2, 4]\n"
    "    world_size: [8, 16, 32]\n"
    "    machine: {device: h100, node_ranks: 8, node_gb_per_s: 450, gb_per_s: 50}\n"
    "    test_layers: [96, 128]   # of the test part alone: beyond training"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--out", metavar="FOLDER", help="folder to write")
    parser.add_argument("--num", type=int, default=900, metavar="N",
        help="points; eight of ten are for training (default: %(default)s)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, metavar="N",
        help="the same seed draws the same points (default: %(default)s)")  # fmt: skip
    parser.add_argument("--space", type=Path, metavar="FILE",
        help="YAML file: models, choices of each part of a plan, machine")  # fmt: skip
    parser.add_argument("--overwrite", action="store_true", help="replace the corpus there")


def run(args: argparse.Namespace) -> int:
    """Draw, simulate and write."""
    from layerdag.cli.main import gc_disabled, single_threaded_blas

    if not args.out:
        raise UsageError("Say where the corpus goes: --out FOLDER.")
    if args.num < 1:
        raise UsageError(f"--num is {args.num}; a corpus has at least one point.")
    single_threaded_blas()
    with gc_disabled():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    from layerdag.workloads.llm_corpus import read_space, write_corpus

    space = read_space(args.space)
    made = write_corpus(args.out, args.num, args.seed, space=space, overwrite=args.overwrite)
    parts = ", ".join(f"{part} {count}" for part, count in made["parts"].items())
    labels = made["label_s"]
    print(f"{args.out}: {made['num']} training steps ({parts}) of {', '.join(space.models)}")
    print(
        f"a step takes {labels['least']:.3g} to {labels['most']:.3g} s as simulated, on "
        f"{space.machine.device} in nodes of {space.machine.node_ranks}"
    )
    print(f"layerdag train --experiment llm --folder {args.out}")
    return 0
