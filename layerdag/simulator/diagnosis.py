"""Why a run stopped before every node was done: a sentence with ranks, nodes and the cycle."""

from layerdag.simulator.kernel import Outcome
from layerdag.simulator.program import Program


def explain(program: Program, outcome: Outcome) -> str:
    """Return one sentence."""
    return "stuck"
