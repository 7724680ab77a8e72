"""One self-contained HTML page, and JSON beside it, from the results of the floors below."""
