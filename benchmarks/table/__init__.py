"""Tables of the literature, made again: every run is a file, and the pages come from the files.

``python -m benchmarks.table NAME`` in the repository's root makes what is missing of a table under
``benchmarks/results/NAME``; ``--page`` writes the page NAME of ``docs/results`` from what is there.
"""
