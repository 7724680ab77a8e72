"""What papers say of these graphs, with where it stands, and what was not found."""

DGRL = (
    "The figures of the benchmark's own models (arXiv 2410.06460) are not here: its repository has "
    "split and scores, but no figures."
)

NOT_FOUND = "not found"

WITHIN_TENTH = {
    "cortex": ("60.0", "99.0"),
    "630gpu": (NOT_FOUND, "99.0"),
    "640gpu": (NOT_FOUND, "99.1"),
}
"""Percent within 10 % by label: a GraphSAGE network, and nn-Meter itself."""

NN_METER = (
    "**GraphSAGE**: the example `nn-meter_dataset_for_gnn.ipynb` of microsoft/nn-Meter, 20,732 "
    "training and 5,173 test graphs of the same families (the last fifth of each by name), 20 "
    "epochs. **nn-Meter** (MobiSys 2021; figures of its package page): predictors of kernels, "
    "fitted to measured kernels, on all 26,000 networks. **Not directly comparable**: nn-Meter has "
    "measurements of kernels and no label of a network; the GNN has more than thirty times our "
    "training graphs, and its last fifth is by name, ours by place in the file."
)
