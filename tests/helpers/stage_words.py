"""STAGE's flags as words of a command line, for tests."""

import argparse

from layerdag.cli.commands import workload_stage as _workload_stage
from layerdag.workloads.stage.flags import StageFlags


def flags_of(words: str) -> StageFlags:
    """Return what the command line would make of ``--dp 2 --tp 4 ...``."""
    parser = argparse.ArgumentParser()
    _workload_stage.configure(parser)
    return _workload_stage.flags_of(parser.parse_args(words.split()))
