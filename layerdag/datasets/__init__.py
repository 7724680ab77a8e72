"""Data sets: clean graphs with the schema that gives their codes a meaning."""
