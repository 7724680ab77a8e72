"""How good are the samples of some checkpoints? Every figure beside the real one; JSON.

    python benchmarks/quality.py DATA/flowgraphs/tpu_tile fast=outputs/fast/best \
        reference=outputs/reference/best --split test --seeds 0 1000 2000

For each checkpoint and sampling seed, one graph is drawn for the conditions of each training graph.
Similarity is the distance to the real graphs of ``--split`` over the same distance of the real
training graphs (Wasserstein-1; total variation for the first attribute): 1 is as near as real ones.
``floor`` is what as many training graphs, drawn with replacement, reach: noise of a finite draw.
``neighborhoods`` are fractions of nodes, mean over graphs: "novelty:r" whose neighborhood of radius
r occurs in no training graph, "repetition:r" whose neighborhood occurs again in the same graph.
``local`` holds the other figures of local structure (docs/how-to/similarity.md).
Transfer is the score of a surrogate trained on the samples, tested on the real graphs of
``--split``, over that of one trained on the real training graphs (``--target``, ``--exclude``),
with its interval over fits and resampled graphs of ``--split``, the same for both.

``--posterior FOLDER`` chooses among the ``--best-of`` graphs of a model without a posterior, such
as ``reference``, by log p(conditions | graph) under the posterior of that checkpoint.

The corpus, jobs of at most 160 nodes, as ``data.max_nodes=160`` trained on them:

    python benchmarks/quality.py data fast=outputs/fast/best --largest 160 --target label \
        --exclude duration
"""

import argparse
import json
import platform
import time
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from layerdag.dag.dag import DAG, DAGBatch
from layerdag.datasets.corpus import load_corpus
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.loading import read_dataset
from layerdag.datasets.splits import require_same_split
from layerdag.evaluation.metrics.base import (
    AttributeMetrics,
    AttributeView,
    Metric,
    attribute_views,
)
from layerdag.evaluation.metrics.neighborhoods import NEIGHBORHOOD_METRICS
from layerdag.evaluation.similarity import LOCAL_METRICS, compare, compare_by_depth
from layerdag.evaluation.validity import check_structure
from layerdag.graph.attributed_graph import Split
from layerdag.models.base import DAGModel, LossTerm, SampleRequest, SampleResult
from layerdag.models.best_of import resample
from layerdag.privacy.copies import novelty
from layerdag.runtime.terminal import track
from layerdag.sampling.generation import sample_rows
from layerdag.sampling.settings import REQUESTED, GenerationSettings
from layerdag.schema.schema import GraphSchema
from layerdag.statistics import Interval
from layerdag.surrogates.families.registry import FAMILIES
from layerdag.surrogates.targets import labeled
from layerdag.surrogates.training_sets import REAL, SYNTHETIC
from layerdag.surrogates.tstr import RELATIVE, evaluate_tstr
from layerdag.training.checkpoint import LoadedCheckpoint, checkpoint_path, load_checkpoint

SHAPE = ("nodes", "edges", "layers", "mean_width", "in_degree", "out_degree")


def main() -> None:
    """Print one JSON object."""
    args = _arguments()
    torch.set_num_threads(args.threads)
    largest = args.largest
    data = load_corpus(args.data, max_nodes=largest) if largest else read_dataset(args.data)
    rows = []
    named = [name_and_path.rpartition("=")[::2] for name_and_path in args.checkpoints]
    for _, path in named:  # hours of sampling must not end at a folder that does not fit
        _fitting(data, load_checkpoint(checkpoint_path(path)), args.data)
    for name, path in named:
        for seed in track(args.seeds, f"quality of {name}", len(args.seeds)):
            rows.append({"checkpoint": name, "seed": seed, **_figures(data, path, seed, args)})
    report = {
        "machine": {"platform": platform.platform(), "threads": args.threads},
        "data": args.data,
        "split": args.split,
        "real": {"train": len(data.graphs["train"]), args.split: len(data.graphs[args.split])},
        "samples": {
            key: getattr(args, key)
            for key in (
                "guidance",
                "temperature",
                "best_of",
                "posterior",
                "labels",
                "steps",
                "copies",
            )
        },
        "floor": _floor(data, args),
        "rows": rows,
        "means": _means(rows),
    }
    print(json.dumps(report, indent=1))


def _arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="data set folder, as for 'layerdag surrogate'")
    parser.add_argument("checkpoints", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--split", choices=("val", "test"), default="val")
    parser.add_argument("--largest", type=int, help="data is a corpus: leave larger jobs out")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1000, 2000])
    parser.add_argument("--guidance", type=float, default=1.0)
    parser.add_argument("--temperature", type=float, default=1.0, help="of a fast model")
    parser.add_argument("--best-of", type=int, default=1, help="graphs drawn for one")
    parser.add_argument("--posterior", metavar="FOLDER", help="checkpoint of a fast model")
    parser.add_argument("--labels", default=REQUESTED, help="as in sample.yaml")
    parser.add_argument("--steps", type=int, help="denoising steps of the reference")
    parser.add_argument("--copies", type=int, default=1, help="samples a training graph")
    parser.add_argument("--target", help="condition that surrogates predict; none: no transfer")
    parser.add_argument("--exclude", action="append", default=[], help="attribute they may not see")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=["boosting"])
    parser.add_argument("--fits", type=int, default=3, help="seeds of each surrogate")
    parser.add_argument("--max-nodes", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def _fitting(data: GraphDataset, checkpoint: LoadedCheckpoint, folder: str) -> GraphDataset:
    """Return the data with the conditions that the checkpoint was trained on.

    Stops unless the checkpoint means the same by its codes as the data, and was trained on the same
    split, as far as it records one.
    """
    if checkpoint.meta.split is not None:
        require_same_split(
            checkpoint.meta.split, data.split, model=str(checkpoint.path), data=folder
        )
    schema = GraphSchema.from_dict(checkpoint.schema)
    names = [name for name in data.schema.condition_names if name in schema.condition_names]
    fitting = data.conditioned_on(names)
    if schema.to_dict() != fitting.schema.to_dict():
        raise SystemExit(
            f"{checkpoint.path}: its schema is not that of {folder}, so that codes mean other "
            "things; give the folder it was trained on, and its data.max_nodes as --largest."
        )
    return fitting


@final
class BestByPosterior(DAGModel):
    """A generator whose best of several graphs is chosen by the posterior of another model."""

    def __init__(self, generator: DAGModel, chooser: DAGModel) -> None:
        super().__init__()
        self.generator, self.chooser = generator, chooser

    def losses(self, batch: DAGBatch, generator: torch.Generator) -> dict[str, LossTerm]:
        """Return the generator's."""
        return self.generator.losses(batch, generator)

    def objective_parameters(self) -> dict[tuple[str, ...], list[nn.Parameter]]:
        """Return the generator's."""
        return self.generator.objective_parameters()

    def require_options(self, *, steps: int | None, best_of: int, temperature: float = 1.0) -> None:
        """Refuse what the generator cannot do but choose."""
        self.generator.require_options(steps=steps, best_of=1, temperature=temperature)

    def sample(self, request: SampleRequest) -> SampleResult:
        """Sample ``request.best_of`` graphs for each one kept."""
        return resample(self._log_posterior, request, self.generator.sample)

    def _log_posterior(self, batch: DAGBatch, _request: SampleRequest) -> Tensor:
        """Return the log weight of each graph, nats, shape (B,)."""
        found_B = self.chooser.log_posterior(batch)
        assert found_B is not None
        return found_B


def _posterior_of(folder: str, schema: GraphSchema) -> DAGModel:
    """Return the model whose posterior chooses; stops unless it means the same by its codes."""
    checkpoint = load_checkpoint(checkpoint_path(folder))
    same = GraphSchema.from_dict(checkpoint.schema) == schema
    if not same or not checkpoint.model.posterior_objectives():
        raise SystemExit(
            f"{checkpoint.path}: has no posterior, or another schema than the model whose samples "
            "it shall choose among; train it with model=fast on the same data."
        )
    return checkpoint.model.eval()


def _figures(data: GraphDataset, path: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """Sample a checkpoint and return all its figures."""
    checkpoint = load_checkpoint(checkpoint_path(path))
    schema = GraphSchema.from_dict(checkpoint.schema)
    data = _fitting(data, checkpoint, args.data)
    train, held_out = data.graphs["train"], data.graphs[args.split]
    wanted = [dag.conditions for dag in train] * args.copies
    is_fast = checkpoint.spec.name == "fast"
    model = checkpoint.model.eval()
    if args.posterior and not is_fast:
        model = BestByPosterior(model, _posterior_of(args.posterior, schema))
    settings = GenerationSettings(
        seed=seed,
        guidance=args.guidance,
        best_of=args.best_of if is_fast or args.posterior else 1,
        labels=args.labels,
        steps=None if is_fast else args.steps,
        temperature=args.temperature if is_fast else 1.0,
        max_nodes=args.max_nodes,
        batch_size=max(256 // args.best_of, 8),
    )
    begin = time.process_time()
    made = list(sample_rows(model, schema, wanted, settings))
    spent = time.process_time() - begin
    dags = [one.dag for one in made]
    ratios = _ratios(data, args.split, dags)
    found = novelty(train, held_out, dags)
    return {
        "step": checkpoint.meta.step,
        "ratio": {name: _rounded(ratio) for name, ratio in ratios.items()},
        "by_depth": _by_depth(data, args.split, dags),
        "neighborhoods": _rows(data, args.split, dags, NEIGHBORHOOD_METRICS),
        "local": _rows(data, args.split, dags, LOCAL_METRICS),
        "mean_ratio": _rounded(float(np.mean(list(ratios.values())))),
        "worst_ratio": _rounded(max(ratios.values())),
        "distinct": _rounded(found.unique),
        "copied": _rounded(found.copied),
        "copied_real": _rounded(found.copied_real),
        "structure_valid": _rounded(float(check_structure(dags).valid_B.mean())),
        "truncated": _rounded(float(np.mean([one.truncated for one in made]))),
        "processor_s_per_graph": round(spent / len(dags), 5),
        "transfer": _transfer(data, schema, dags, args) if args.target else None,
    }


def _ratios(
    data: GraphDataset, split: Split, dags: Sequence[DAG], replicates: int = 20
) -> dict[str, float]:
    """Return the distance to the real graphs of ``split`` over that of the training graphs."""
    views = [AttributeView(attribute.name) for attribute in data.schema.attributes]
    similarity = compare(
        data.graphs["train"], data.graphs[split], dags, views, replicates=replicates
    )
    names = [*SHAPE, f"attribute:{data.schema.attributes[0].name}"]
    found = {name: similarity[name].ratio for name in names}
    return {name: ratio for name, ratio in found.items() if ratio is not None}


def _by_depth(
    data: GraphDataset, split: Split, dags: Sequence[DAG]
) -> list[dict[str, float | None]]:
    """Return the ratios of each fifth of the depth, from the first layers on."""
    views = [AttributeView(attribute.name) for attribute in data.schema.attributes]
    stretches = compare_by_depth(
        data.graphs["train"], data.graphs[split], dags, views, replicates=2
    )
    return [
        {"mean": _rounded(one.mean_ratio)}
        | {row.metric.name: _rounded(row.ratio) for row in one.rows}
        for one in stretches
    ]


def _rows(
    data: GraphDataset,
    split: Split,
    dags: Sequence[DAG],
    metrics: Sequence[Metric | AttributeMetrics],
) -> dict[str, dict[str, float | None]]:
    """Return what metrics find of samples, beside real graphs."""
    sets = (data.graphs["train"], data.graphs[split], dags)
    report = compare(*sets, attribute_views(data.schema), metrics=metrics, replicates=20)
    return {
        row.metric.name.removeprefix("neighborhood_"): {
            "samples": _rounded(row.generated.value),
            "real": _rounded(row.reference.value),
            "ratio": _rounded(row.ratio),
        }
        for row in report.rows
    }


def _floor(data: GraphDataset, args: argparse.Namespace, draws: int = 10) -> dict[str, Any]:
    """Return the figures of bootstrap draws of the training graphs: means over the draws."""
    train = data.graphs["train"]
    rng = np.random.default_rng(0)
    chosen_DN = rng.integers(0, len(train), (draws, len(train)))
    drawn = [[train[i] for i in chosen_N] for chosen_N in track(chosen_DN, "floor", draws)]
    ratios_DR = np.array(
        [list(_ratios(data, args.split, dags, replicates=2).values()) for dags in drawn]
    )
    floor: dict[str, Any] = {
        "draws": draws,
        "mean_ratio": _rounded(float(ratios_DR.mean())),
        "sd_of_mean_ratio": _rounded(float(ratios_DR.mean(1).std(ddof=1))),
        "worst_ratio": _rounded(float(ratios_DR.max(1).mean())),
    }
    if args.target:
        found = [_transfer(data, data.schema, dags, args) for dags in drawn]
        floor["transfer_share"] = {
            key: _rounded(float(np.mean([one[key]["share"] for one in found]))) for key in found[0]
        }
        floor["transfer_interval"] = _mean_intervals(found)
    return floor


def _transfer(
    data: GraphDataset, schema: GraphSchema, dags: Sequence[DAG], args: argparse.Namespace
) -> dict[str, Any]:
    """Return scores of surrogates trained on samples and on real graphs, and their ratios."""
    real, test = (
        labeled(data.graphs[part], data.schema, args.target, args.exclude)
        for part in ("train", args.split)
    )
    synthetic = labeled(dags, schema, args.target, args.exclude)
    report = evaluate_tstr(
        real,
        synthetic,
        test,
        data.schema.sizes(),
        {name: FAMILIES[name] for name in args.families},
        seeds=range(args.fits),
        conditions=(REAL, SYNTHETIC),
    )
    return {
        f"{family} {score}": {
            "real": _rounded(report.row(family, REAL).scores[score].mean),
            "synthetic": _rounded(report.row(family, SYNTHETIC).scores[score].mean),
            "share": _rounded(report.fraction(family, score).value),
            "interval": _ends(report.fraction(family, score).interval),
        }
        for family in args.families
        for score in RELATIVE
    }


def _ends(interval: Interval | None) -> list[float] | None:
    """Return both ends of an interval."""
    return None if interval is None else [round(interval.low, 3), round(interval.high, 3)]


def _mean_intervals(transfers: Sequence[dict[str, Any]]) -> dict[str, list[float] | None]:
    """Return the mean ends of the intervals of each share.

    All rows are tested on the same graphs, whose choice therefore counts in full for their mean,
    too; what is new in each row, the draw of the samples, is in the spread of the rows.
    """
    found = {key: [one[key]["interval"] for one in transfers] for key in transfers[0]}
    return {
        key: None if None in ends else np.mean(ends, axis=0).round(3).tolist()
        for key, ends in found.items()
    }


def _means(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the mean over sampling seeds of the main figures of each checkpoint."""
    result = {}
    for name in dict.fromkeys(row["checkpoint"] for row in rows):
        mine = [row for row in rows if row["checkpoint"] == name]
        means: dict[str, Any] = {
            key: _rounded(float(np.mean([row[key] for row in mine])))
            for key in ("mean_ratio", "worst_ratio", "distinct", "copied")
        }
        means["ratio"] = {
            key: _rounded(float(np.mean([row["ratio"][key] for row in mine])))
            for key in mine[0]["ratio"]
        }
        if mine[0]["transfer"]:
            means["transfer_share"] = {
                key: _rounded(float(np.mean([row["transfer"][key]["share"] for row in mine])))
                for key in mine[0]["transfer"]
            }
            means["transfer_interval"] = _mean_intervals([row["transfer"] for row in mine])
        result[name] = means
    return result


def _rounded(value: float | None) -> float | None:
    """Return three decimals."""
    return None if value is None else round(value, 3)


if __name__ == "__main__":
    main()
