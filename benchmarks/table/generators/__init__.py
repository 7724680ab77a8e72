"""A table of all generators on several data sets, after equal time and with equal parameters."""

from ._table import Generators as Generators
