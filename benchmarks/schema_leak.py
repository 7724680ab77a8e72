"""What the schema of a checkpoint tells of its training graphs, and what drawing from it gives.

    python benchmarks/schema_leak.py data

Needs no model: schemas are fitted to random parts of the data set. A membership attack on the
shipped checkpoint alone is indistinguishable from chance differences between training and
held-out jobs.
"""

import argparse
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import ks_2samp

from layerdag.dag.dag import DAG
from layerdag.datasets.corpus import load_corpus
from layerdag.datasets.dataset import GraphDataset
from layerdag.graph.attributed_graph import Condition
from layerdag.runtime.rng import numpy_generator
from layerdag.schema.schema import complete_conditions
from layerdag.statistics import auroc

REPEATS = 10
DRAWS = 5000
Rows = Sequence[Mapping[str, Condition]]


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="corpus folder")
    args = parser.parse_args()
    data = load_corpus(args.data, max_nodes=1200)
    _attack_refitted(data)
    _attack_with_all(data)
    _compare_draws(data)


def _rows(data: GraphDataset, dags: list[DAG]) -> tuple[np.ndarray, np.ndarray]:
    """Return codes and standardized numbers of the conditions."""
    numeric_BC, category_BM = data.schema.encode_conditions([dag.conditions for dag in dags])
    return category_BM.numpy(), numeric_BC.double().numpy()


def _attack_refitted(data: GraphDataset) -> None:
    """Fit tables to random parts of all jobs, and attack them with the jobs left out."""
    dags = [*data.graphs["train"], *data.held_out]
    members = len(data.graphs["train"])
    category_BM, numeric_BC = _rows(data, dags)
    lookups: list[float] = []
    densities: list[float] = []
    informed: list[float] = []
    every = data.schema.with_table([dag.conditions for dag in dags]).condition_table
    reference_B = every.log_density(category_BM, numeric_BC)
    for repeat in range(REPEATS):
        order = numpy_generator(repeat, "schema-leak").permutation(len(dags))
        inside, outside = order[:members], order[members:]
        table = data.schema.with_table([dags[i].conditions for i in inside]).condition_table
        found_B = table.holds(category_BM, numeric_BC).astype(float)
        weight_B = table.log_density(category_BM, numeric_BC)
        for areas, score_B in (
            (lookups, found_B), (densities, weight_B), (informed, weight_B - reference_B)
        ):  # fmt: skip
            areas.append(auroc(score_B[inside], score_B[outside]))
    for name, areas in (
        ("lookup", lookups),
        ("density", densities),
        ("density over that of a table of all jobs", informed),
    ):
        print(
            f"table, {REPEATS} random splits, {name}: area {np.mean(areas):.3f} "
            f"(standard deviation {np.std(areas):.3f})"
        )


def _attack_with_all(data: GraphDataset) -> None:
    """Attack the data set's own split, and jobs of the training part that a table has not seen."""
    train = list(data.graphs["train"])
    rows = [_rows(data, part) for part in (train, list(data.held_out))]
    table = data.schema.condition_table
    lookup = auroc(*(table.holds(*row).astype(float) for row in rows))
    density = auroc(*(table.log_density(*row) for row in rows))
    print(f"table, own split: lookup {lookup:.3f}, density {density:.3f}")
    unseen = []
    for repeat in range(REPEATS):
        order = numpy_generator(repeat, "schema-drift").permutation(len(train))
        half = len(train) // 2
        table = data.schema.with_table([train[i].conditions for i in order[:half]]).condition_table
        others = _rows(data, [train[i] for i in order[half:]])
        unseen.append(auroc(table.log_density(*others), table.log_density(*rows[1])))
    print(f"  density of training jobs that a table has not seen: {np.mean(unseen):.3f}")


def _compare_draws(data: GraphDataset) -> None:
    """Compare drawn conditions, and held-out jobs, with training jobs."""
    drawn: Rows = complete_conditions(data.schema, {}, range(DRAWS))
    train: Rows = [dag.conditions for dag in data.graphs["train"]]
    for name, rows in (("drawn", drawn), ("held out", [d.conditions for d in data.held_out])):
        print(f"{name} against training jobs:")
        for condition in data.schema.numeric_conditions:
            mine, theirs = _numbers(rows, condition.name), _numbers(train, condition.name)
            print(f"  {condition.name}: Kolmogorov-Smirnov {ks_2samp(mine, theirs).statistic:.3f}")
        for category in data.schema.category_conditions:
            print(
                f"  {category.name}: total variation {_variation(rows, train, category.name):.3f}"
            )
        print(f"  correlations, largest difference: {_correlation_gap(data, rows, train):.3f}")


def _numbers(rows: Rows, name: str) -> np.ndarray:
    return np.array([float(row[name]) for row in rows if name in row])


def _variation(rows: Rows, others: Rows, name: str) -> float:
    """Return the total variation distance of the shares of a category."""
    words = sorted({str(row.get(name)) for row in [*rows, *others]})
    shares = [
        np.array([[str(row.get(name)) == word for word in words] for row in part]).mean(axis=0)
        for part in (rows, others)
    ]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def _correlation_gap(data: GraphDataset, rows: Rows, others: Rows) -> float:
    """Return the largest difference of correlations between standardized numbers."""
    found = [
        np.corrcoef(data.schema.encode_conditions(part)[0].double().numpy().T)
        for part in (rows, others)
    ]
    return float(np.abs(found[0] - found[1]).max())


if __name__ == "__main__":
    main()
