"""Forward programs: what a model calls, with sizes as expressions, and the steps they derive."""
