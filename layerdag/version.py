"""The version of the package, on the ground floor."""

__version__ = "0.1.0"
