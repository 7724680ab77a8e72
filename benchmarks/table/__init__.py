"""Tables of the literature, made again: a run is a line of a file, and pages come from the files.

``python -m benchmarks.table NAME`` in the repository's root makes what is missing of a table in
``benchmarks/results/NAME.jsonl``; ``--page`` writes the page NAME of
``docs/results`` from what is there.
"""
