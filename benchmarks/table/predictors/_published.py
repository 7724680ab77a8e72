"""What papers say of these graphs, with where it stands, and what was not found."""

DGRL = (
    "The paper of the benchmark (arXiv 2410.06460, tables of its five data sets) could not be read "
    "where this was made; its repository has split and scores in code, but no figures. Its columns "
    "say *not found* here rather than a number from memory; whoever has the paper can write them "
    "into `benchmarks/table/predictors/_published.py`."
)

NOT_FOUND = "not found"

CG: dict[tuple[str, str], str] = {}
"""The best figure of the paper by label and part ("id" or "ood")."""

AMP: dict[tuple[str, str], str] = {}
"""The same of amplifiers."""

WITHIN_TENTH = {
    "cortex": ("60.0", "99.0"),
    "630gpu": (NOT_FOUND, "99.0"),
    "640gpu": (NOT_FOUND, "99.1"),
}
"""Percent within 10 % by label: a GraphSAGE network, and nn-Meter itself."""

NN_METER = (
    "**GraphSAGE**: the example `nn-meter_dataset_for_gnn.ipynb` of microsoft/nn-Meter, 20,732 "
    "training and 5,173 test graphs of the same 13 families (the last fifth of each family by "
    "name), 20 epochs, labels of the CPU alone. **nn-Meter** (MobiSys 2021; figures of its "
    "package page): predictors of kernels, fitted to kernels that were measured on the devices, on "
    "all 26,000 networks. **Not comparable** one to one: nn-Meter has measurements that we do not "
    "have and no label of a network; the GNN has more than thirty times our training graphs, and "
    "its last fifth is by name, ours by place in the file."
)
