"""What the page of all generators says."""

TITLE = "Every generator on every data set"

BEFORE = (
    "`fast` beside simpler generators after equal time, with about equal parameters. All learners "
    "see operators and edges alone and get the same processor seconds on one thread. `fast` "
    "samples as by default: of several flow graphs it keeps those whose nodes have parents and "
    "children as in training; jobs, of which no size is asked here, are drawn once. "
    '"One draw" is the same model without that choice.\n\n'
    "- **V.U.N.**: valid, unique and novel (by Weisfeiler-Lehman hashes), with Wilson's 95 % "
    "interval. Valid is what all training graphs have in common: numbers of components, sources "
    "and sinks where they agree, and for each operator the range of its parents and whether it "
    "occurs without and with children.\n"
    "- **Mean ratio**: distances of samples to test graphs over those of as many training graphs, "
    "mean over nodes, edges, layers, mean width, in-degrees, out-degrees and operators; 1 is as "
    "near as real graphs.\n"
    "- **Unseen, repeated**: nodes whose neighborhood of operators (radius 1 and 2) occurs in no "
    "training graph, or again in its own graph; best is nearest to real graphs.\n"
    "- **Type hashes, three operators**: total variation of WfChef's type hashes and of operators "
    "along paths of three nodes; in brackets the ratio to that of as many training graphs.\n"
    "- **In one training graph**: the largest share of a sample's neighborhoods (radius 2) that "
    "one training graph has; 100 is a copy, and best is nearest to real graphs.\n\n"
    "Real graphs are those of the validation part. Bold is the best of all that makes new graphs."
)

FIGURES = {
    "vun": "V.U.N., %",
    "valid": "valid, %",
    "ratio": "mean ratio",
    "neighborhood_novelty:1": "unseen, radius 1, %",
    "neighborhood_novelty:2": "unseen, radius 2, %",
    "neighborhood_repetition:1": "repeated, radius 1, %",
    "neighborhood_repetition:2": "repeated, radius 2, %",
    "type_hashes": "type hashes",
    "path_frequencies:3": "three operators",
    "shared": "in one training graph, %",
}

TASKS = {
    "tpu_tile": "TPU Tile, its validation file",
    "amp": "Operational amplifiers, 2,000 graphs",
    "jobs": "Jobs of the corpus of at most 160 nodes",
    "na_edge": "NA-Edge, 600 networks",
}

AFTER = (
    "A hundred samples per fit. Settings were chosen on the first task for all tasks, by {trials} "
    "short fits with other seeds: about the parameters that `fast` has by default (640,000), and a "
    "smaller size{third}; the least mean ratio to the validation part decides. No test graph "
    "entered a choice."
)

THIRD = ", then at another learning rate"
