"""From private traces to a package that may be published."""
