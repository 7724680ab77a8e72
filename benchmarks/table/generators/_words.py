"""What the page of all generators says."""

TITLE = "Every generator on every data set"

BEFORE = (
    "What does `fast` add to simpler ways, after equal time and with about equal parameters? All "
    "learners see operators and edges alone, so that each can take part, and learn for so many "
    "processor seconds on one thread. `fast` samples as the package does by default: of flow "
    "graphs it goes on with those, of several, whose nodes have parents and children as training "
    "shows; jobs, of which no size is asked here, are drawn once. "
    '"One draw" is the same model without that choice.\n\n'
    "- **V.U.N.**: valid, the first of its kind, and no training graph (by Weisfeiler-Lehman "
    "hashes), in brackets Wilson's 95 % interval. Valid is what all training graphs have in "
    "common: numbers of components, sources and sinks where they are the same in all, for each "
    "operator the fewest and most parents, and whether it occurs without and with children.\n"
    "- **Mean ratio**: distances of samples to test graphs over those of as many training graphs, "
    "mean over numbers of nodes, edges and layers, mean width, in-degrees, out-degrees and "
    "operators; 1 is as near as real graphs.\n"
    "- **Unseen, repeated**: nodes whose neighborhood of operators (radius 1 and 2) occurs in no "
    "training graph, or again in its own graph; best is what is nearest to real graphs.\n"
    "- **Type hashes, three operators**: total variation of WfChef's type hashes and of operators "
    "along paths of three nodes, in brackets the ratio to that of as many training graphs.\n"
    "- **In one training graph**: the largest share of a sample's neighborhoods (radius 2, each as "
    "often as it occurs) that one training graph has, mean over samples; 100 is a copy, and best "
    "is what is nearest to real graphs.\n\n"
    "Real graphs are those of the validation part, which no model learns from. Bold is the best of "
    "all that makes new graphs; training graphs drawn again stand beside, and win nothing."
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

_SEAMS = (
    "A recipe is one real graph with a few parts more or fewer, so that only its seams can differ "
    "from real ones; `fast` draws every node and edge itself."
)
_PARTS = "The parts that a recipe copies and leaves are real, and so is how often they occur."
_ENDS = "Copying and removing whole parts leaves every operator the ends that it has in training."

REASONS: dict[str, dict[str, str]] = {
    "tpu_tile": {
        "vun": (
            "Four in ten graphs of `fast` repeat a training graph, of the real ones seven in ten; "
            "a recipe differs from the graph that it starts from, as another size is asked for."
        ),
        "valid": _ENDS,
        "neighborhood_novelty:1": _SEAMS,
        "neighborhood_novelty:2": _SEAMS,
        "neighborhood_repetition:1": "All of them are within two points of real graphs.",
        "neighborhood_repetition:2": "As at radius 1.",
        "type_hashes": _PARTS,
        "path_frequencies:3": _PARTS,
        "shared": "Both are a tenth below real graphs, most of which repeat a training graph.",
    },
    "amp": {
        "vun": (
            "All that `fast` draws is valid; a third of it repeats a training graph, of the real "
            "ones more than eight in ten."
        ),
        "ratio": (
            "Of sizes, degrees and operators alone: the neighborhoods that it draws are unseen "
            "twice as often. The choice among candidates costs `fast` a tenth."
        ),
        "neighborhood_novelty:1": _SEAMS,
        "neighborhood_novelty:2": (
            "Of graphs of ten nodes one new edge is in most neighborhoods of radius 2: nearly all "
            "are unseen where graphs are new at all, and real graphs are mostly not new."
        ),
        "neighborhood_repetition:1": _PARTS,
        "neighborhood_repetition:2": _PARTS,
        "type_hashes": _PARTS,
        "path_frequencies:3": "A hundred graphs of ten nodes do not tell them apart.",
        "shared": _SEAMS,
    },
    "jobs": {
        "vun": "All that `fast` draws is new; half of it breaks the rule.",
        "valid": _ENDS,
        "ratio": (
            "Recipes have the sizes and operators of training graphs. The transformer is level "
            "with `fast` in sizes, degrees and operators; most of its neighborhoods no job has."
        ),
        "neighborhood_novelty:1": _SEAMS,
        "neighborhood_novelty:2": _SEAMS,
        "neighborhood_repetition:1": _PARTS,
        "neighborhood_repetition:2": _PARTS,
        "type_hashes": _PARTS,
        "path_frequencies:3": _PARTS,
    },
    "na_edge": {
        "ratio": (
            "A recipe has the sizes and operators of its training graph, and here every valid one "
            "is a training graph. Real graphs of the validation part are further off than both."
        ),
        "neighborhood_novelty:1": _SEAMS,
        "neighborhood_novelty:2": _SEAMS,
        "neighborhood_repetition:1": _PARTS,
        "neighborhood_repetition:2": _PARTS,
        "type_hashes": (
            "A type hash takes in all ancestors and descendants, so that one new edge changes most "
            "of a network's: only copies of training graphs keep them."
        ),
        "path_frequencies:3": _PARTS,
        "shared": "Nine in ten recipes are training graphs, as nine in ten real ones are.",
    },
}
"""Why another learner is ahead of `fast`, by task and figure."""

AFTER = (
    "A hundred samples per fit. What learns got {trials} trials of settings on the first task: "
    "with about the parameters that `fast` has by default (640,000), and with a smaller size of "
    "its own{third}; the least mean ratio of samples to the validation part chose, by another fit "
    "and seeds that no figure here uses, and what was chosen holds on every task. No test graph "
    "entered a choice. Intervals of local structure, by which a baseline that is ahead may lie "
    "inside that of `fast`, are over samples drawn again, and not over fits."
)

THIRD = ", then at another learning rate"
