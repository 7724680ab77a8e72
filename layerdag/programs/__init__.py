"""Forward programs: what a model calls, with sizes as expressions, and the steps they derive."""

from layerdag.programs.forward_program import Program
from layerdag.programs.sources import program

__all__ = ["Program", "program"]
