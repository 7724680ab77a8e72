"""STAGE's flags as words of a command line, for tests."""

import argparse

from layerdag.cli.stage import configure, stage_flags_of
from layerdag.workloads.stage.flags import StageFlags


def flags_of(words: str) -> StageFlags:
    """Return what the command line would make of ``--dp 2 --tp 4 ...``."""
    parser = argparse.ArgumentParser()
    configure(parser)
    return stage_flags_of(parser.parse_args(words.split()))
