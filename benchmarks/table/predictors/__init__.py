"""Surrogates beside what papers say of the same graphs."""

from ._table import Predictors as Predictors
