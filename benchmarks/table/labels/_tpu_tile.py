"""TPU Tile in nine folds: are samples as near as real graphs, and do they teach what those teach?

Of the 567 graphs that are not its test part each is held out once; graphs that are equal stay in
one fold. In each fold a model learns from the others, and surrogates that were fitted to its
samples, or to the real graphs that it learned from, predict the labels of the held-out graphs.
Scores are of the predictions of all folds together.

Shape letters: B graphs, R resamples.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from layerdag.dag.dag import DAG, graph_hash
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.settings import TpuTileConfig
from layerdag.datasets.tpu_tile import load_tpu_tile
from layerdag.evaluation.metrics.base import attribute_views
from layerdag.evaluation.similarity import compare
from layerdag.graph.attributed_graph import Condition
from layerdag.runtime.rng import numpy_generator
from layerdag.schema.schema import complete_conditions
from layerdag.statistics import bootstrap_weights
from layerdag.surrogates.families.registry import FAMILIES
from layerdag.surrogates.scoring import scores

from .._base import Options
from .._learners import fit_fast
from .._page import Words, conditions_of, number, table
from .._runs import Figures, Record, Run, Store
from ._gains import FAMILY_TITLES, JUDGED
from ._parts import generators_data, labels_of

FOLDS, COPIES, REDRAWS = 9, 4, 1000
SHAPE = ("nodes", "edges", "layers", "mean_width", "in_degree", "out_degree")
RATED = ("pearson", "spearman")
USUAL = {"guidance": None, "best_of": None}
"""Of ``GenerationSettings``: what a request that does not say has."""
SETTINGS = {"batch_nodes": 1350, "learning_rate": 2e-3}
FINAL, DRAWN = "final", "drawn"
"""Parts: conditions of training graphs and what samples teach; conditions that are drawn."""
REAL, POSTERIOR, TAUGHT = (
    "real graphs",
    "samples, labels of the posterior",
    "samples, labels of surrogates",
)


@dataclass(frozen=True)
class Fold:
    """What one run starts from.

    Attributes:
        data: The generator's training and validation graphs.
        real: Both.
        test: The held-out graphs.
    """

    data: GraphDataset
    real: tuple[DAG, ...]
    test: tuple[DAG, ...]


def folds_of(data: GraphDataset, folds: int = FOLDS, seed: int = 0) -> list[Fold]:
    """Cut training and validation graphs into folds of like size; equal graphs stay together."""
    groups: dict[str, list[DAG]] = {}
    for dag in (*data.graphs["train"], *data.graphs["val"]):
        groups.setdefault(graph_hash(dag), []).append(dag)
    rows = numpy_generator(seed, "folds").permutation(len(groups)).tolist()
    shuffled = [list(groups.values())[row] for row in rows]
    parts: list[list[list[DAG]]] = [[] for _ in range(folds)]
    for group in sorted(shuffled, key=len, reverse=True):  # the largest first, where there is room
        min(parts, key=lambda part: sum(map(len, part))).append(group)
    return [_fold(data, parts, held_out) for held_out in range(folds)]


def _fold(data: GraphDataset, parts: Sequence[Sequence[Sequence[DAG]]], held_out: int) -> Fold:
    others = [group for i, part in enumerate(parts) if i != held_out for group in part]
    tenth = max(len(others) // 10, 1)
    val = [dag for group in others[::-1][:tenth] for dag in group]
    train = [dag for group in others[::-1][tenth:] for dag in group]
    test = tuple(dag for group in parts[held_out] for dag in group)
    return Fold(generators_data(data, train, val), (*train, *val), test)


def figures_of(fold: Fold, run: Run) -> Figures:
    """Fit the generator, sample, compare, and keep what each surrogate predicts."""
    settings = run.config["settings"]
    fitted = fit_fast(fold.data, run.config["seconds"], run.seed, **settings)
    asked = [dag.conditions for dag in fold.real for _ in range(run.config["copies"])]
    samples = [dag for dag in fitted.sample_rows(asked, 0, labels="predicted") if dag is not None]
    sizes, label_B = fold.data.schema.sizes(), labels_of(fold.real)
    found: dict[str, dict[str, list[float]]] = {}
    taught = []
    for family in JUDGED:
        model = FAMILIES[family](fold.real, label_B, sizes, run.seed)
        found[family] = {REAL: _listed(model.predict(fold.test))}
        taught.append(np.log(np.maximum(model.predict(samples), 1e-30)))
    labels = {POSTERIOR: labels_of(samples), TAUGHT: np.exp(np.mean(taught, axis=0))}
    for family in JUDGED:
        for how, sample_label_B in labels.items():
            model = FAMILIES[family](samples, sample_label_B, sizes, run.seed)
            found[family][how] = _listed(model.predict(fold.test))
    return {
        "steps": fitted.steps,
        "parameters": fitted.parameters,
        "samples": len(samples),
        "ratios": _ratios(fold, samples),
        "labels": _listed(labels_of(fold.test)),
        "predictions": found,
    }


def drawn_figures_of(fold: Fold, run: Run) -> Figures:
    """Fit the generator and sample as ``layerdag sample`` does: open conditions are drawn."""
    settings = run.config["settings"]
    fitted = fit_fast(fold.data, run.config["seconds"], run.seed, **settings)
    drawn = _drawn_conditions(fold, len(fold.real))
    samples = [dag for dag in fitted.sample_rows(drawn, 0, **USUAL) if dag is not None]
    return {"steps": fitted.steps, "samples": len(samples), "ratios": _ratios(fold, samples)}


def _drawn_conditions(fold: Fold, num: int) -> list[dict[str, Condition]]:
    """Return conditions as a request that names none gets them, from the generator's graphs."""
    rows = [dag.conditions for dag in fold.data.graphs["train"]]
    return complete_conditions(fold.data.schema.with_table(rows), {}, range(num))


def _ratios(fold: Fold, samples: Sequence[DAG]) -> dict[str, float]:
    """Return distances of samples to the held-out graphs, over those of the real graphs."""
    views = attribute_views(fold.data.schema)
    report = compare(fold.real, fold.test, samples, views, replicates=2)
    names = (*SHAPE, f"attribute:{fold.data.schema.attributes[0].name}")
    ratios = {name: report[name].ratio for name in names}
    return {name: round(ratio, 4) for name, ratio in ratios.items() if ratio is not None}


def _listed(value_B: np.ndarray) -> list[float]:
    return [float(f"{value:.6g}") for value in value_B]


class TpuTile:
    """One run for each fold.

    Args:
        folder: Of TPU Tile; without it there is nothing to make.
    """

    name = "tpu-tile"
    about = "TPU Tile in nine folds: similarity, and what samples teach surrogates"

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def make(self, store: Store, options: Options) -> Iterator[Record]:
        """Make the runs."""
        if self.folder is None:
            raise SystemExit("tpu-tile: name the folder with the data, --tpu-tile FOLDER.")
        for number_of, fold in enumerate(
            folds_of(load_tpu_tile(TpuTileConfig(folder=self.folder)))
        ):
            if options.tasks is not None and number_of >= options.tasks:
                return
            config = {
                "task": "tpu_tile",
                "real": len(fold.real),
                "seconds": options.seconds,
                "settings": SETTINGS,
            }
            name = f"fold{number_of}"
            if options.only in (None, FINAL):
                run = Run(name, "fast", number_of, config | {"part": FINAL, "copies": COPIES})
                yield store.made(run, partial(figures_of, fold))
            if options.only in (None, DRAWN):
                run = Run(f"{name}-{DRAWN}", "fast", number_of, config | {"part": DRAWN})
                yield store.made(run, partial(drawn_figures_of, fold))

    def page(self, records: Sequence[Record]) -> str:
        """Return the page."""
        records, drawn = of_parts(records)
        parts = [
            f"# {WORDS.title}",
            WORDS.before,
            *([] if len(records) == FOLDS else [f"{len(records)} of {FOLDS} folds are made."]),
            "## Transfer",
            transfer_table(records),
            "## Similarity",
            ratio_table(records, drawn),
            "## How it was made",
            conditions_of(records),
            WORDS.published,
            "This page is made from `benchmarks/results/tpu-tile.jsonl` by "
            "`python -m benchmarks.table "
            "tpu-tile --page`; `python -m benchmarks.table tpu-tile --seconds 150 --tpu-tile "
            "FOLDER` makes the folds that are missing there.",
        ]
        return "\n\n".join(parts) + "\n"


def transfer_table(records: Sequence[Record]) -> str:
    """Return the scores of both families on the held-out graphs of all folds together."""
    head = (
        "surrogate",
        "fitted to",
        "Pearson",
        "Spearman",
        "of real, Pearson",
        "of real, Spearman",
    )
    rows = []
    for family in JUDGED:
        drawn = drawn_scores(records, family)
        for how, found in drawn.items():
            plain = [number(float(found[score][0])) for score in RATED]
            reached = [fraction(drawn, how, score) for score in RATED]
            rows.append(
                [FAMILY_TITLES[family], how, *plain, *(reached if how != REAL else ["", ""])]
            )
    return table(head, rows)


def drawn_scores(records: Sequence[Record], family: str) -> dict[str, Mapping[str, np.ndarray]]:
    """Return the scores by what a surrogate learned from: of all graphs, then of resamples."""
    label_B = _joined([record.figures["labels"] for record in records])
    rng = numpy_generator(0, "held-out graphs")
    weights_RB = np.concatenate(
        [np.ones((1, label_B.size)), bootstrap_weights(rng, REDRAWS, label_B.size)]
    )
    drawn: dict[str, Mapping[str, np.ndarray]] = {}
    for how in (REAL, POSTERIOR, TAUGHT):
        rows = [record.figures["predictions"][family][how] for record in records]
        drawn[how] = scores(label_B, _joined(rows), weights_RB)
    return drawn


def fraction(drawn: Mapping[str, Mapping[str, np.ndarray]], how: str, score: str) -> str:
    """Return the score over that of real graphs, with its interval."""
    drawn_R = drawn[how][score] / drawn[REAL][score]
    low, high = np.quantile(drawn_R[1:], (0.025, 0.975))
    return f"{number(float(drawn_R[0]))} [{number(float(low))}, {number(float(high))}]"


def _joined(rows: Sequence[Sequence[float]]) -> np.ndarray:
    return np.concatenate([np.asarray(row, dtype=np.float64) for row in rows])


def of_parts(records: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """Return the records of ``FINAL`` and of ``DRAWN``."""
    final, drawn = (
        [record for record in records if record.run.config["part"] == part]
        for part in (FINAL, DRAWN)
    )
    return final, drawn


def ratio_table(final: Sequence[Record], drawn: Sequence[Record]) -> str:
    """Return mean ratios of distances over folds, and how they vary from fold to fold."""
    columns = [
        [{**r.figures["ratios"], "mean": mean_of(r)} for r in records] for records in (final, drawn)
    ]
    rows = [
        [
            name.replace("_", " ").replace("attribute:", ""),
            *(_with_spread([float(one[name]) for one in column]) for column in columns),
        ]
        for name in columns[0][0]
    ]
    made = "" if len(drawn) == FOLDS else f", {len(drawn)} folds"
    titles = ("conditions of training graphs, one draw", f"as `layerdag sample` draws{made}")
    return table(("distance over that of real graphs", *titles), rows)


def mean_of(record: Record) -> float:
    """Return the mean of the ratios of one fold."""
    return float(np.mean(list(record.figures["ratios"].values())))


def _with_spread(values: Sequence[float]) -> str:
    """Return the mean over folds with their standard deviation."""
    if not values:
        return ""
    mean = number(float(np.mean(values)))
    return f"{mean} ± {number(float(np.std(values, ddof=1)))}" if len(values) > 1 else mean


WORDS = Words(
    title="TPU Tile in nine folds",
    before=(
        "The training and validation graphs of TPU Tile's validation file (567), cut into nine "
        "folds; equal graphs stay in one. In each fold `fast` learns from the other eight and "
        f"draws {COPIES} graphs for the conditions of each of their graphs, one draw, and one "
        "more for each with drawn conditions, guidance and candidates as `layerdag sample` has "
        "them. Distances are those of samples to "
        "the held-out graphs over those of the real graphs (Wasserstein-1; "
        "total variation for operators): 1 is as near as real ones. Surrogates are fitted to the "
        "real graphs, or to samples with labels of the generator's posterior or of the two "
        "surrogates of real graphs (geometric mean), and predict the held-out graphs of all folds; "
        "brackets are 95 % intervals over resampled graphs, real and samples paired."
    ),
    tasks={},
    published=(
        "The LayerDAG paper has 0.65 for LayerDAG and 0.75 for real graphs (Pearson, message "
        "passing, on 631 test graphs), that is 0.87 of real. **Not directly comparable**: we have "
        "a tenth of its graphs, and other surrogates."
    ),
)
