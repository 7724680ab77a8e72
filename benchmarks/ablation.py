"""What each part of the fast model is worth: train without it, over seeds; JSON.

    python benchmarks/ablation.py DATA/flowgraphs/tpu_tile --steps 480 --seeds 0 1 2
    python benchmarks/ablation.py data --max-nodes 80 --steps 250 --seeds 0 1 2

Every variant is an experiment (configs/experiment/ablation) or a setting of sampling. "full" is
what `layerdag train` trains: numbers of children are predicted in flow graphs, not in jobs. Every
variant is trained from scratch for the same number of steps, in a process of its own, then samples
one graph for the conditions of each training graph. Figures: validation likelihood (nats per graph;
of the graph alone, without the conditions), mean over seven similarity ratios (see
``benchmarks/quality.py``), copies, agreement of samples with their conditions (mean log-likelihood
under the posterior of the full model's first seed), and processor seconds of a training step.
"""

import argparse
import json
import multiprocessing
import platform
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from layerdag._runtime import build_settings
from layerdag.cli.settings import as_plain, compose
from layerdag.datasets import GraphDataset, read_dataset
from layerdag.evaluation import compare
from layerdag.evaluation.metrics import AttributeView
from layerdag.evaluation.privacy import novelty
from layerdag.graph import DAGBatch, GraphStatistics
from layerdag.models import DAGModel, ModelSpec, build_model, spec_for
from layerdag.sampling import GenerationSettings, sample_like
from layerdag.training import TrainingRun, TrainSettings, load_checkpoint, train

SHAPE = ("nodes", "edges", "layers", "mean_width", "in_degree", "out_degree")


@dataclass(frozen=True)
class Variant:
    """The model without one of its parts.

    Attributes:
        experiment: File of configs/experiment/ablation with the settings of the model.
        sampling: Settings of sampling that are not the usual ones.
        weights_of: Experiment whose weights are used; None trains its own.
    """

    experiment: str = "full"
    sampling: Mapping[str, Any] = field(default_factory=dict)
    weights_of: str | None = None


VARIANTS = {
    "full": Variant(),
    "no messages": Variant("no_messages"),
    "no attention": Variant("no_attention"),
    "no out-degree prediction": Variant("no_out_degree"),
    "out-degree prediction": Variant("out_degree"),
    "no parent features": Variant("no_parent_features"),
    "all pairs": Variant("all_pairs"),
    "independent attributes": Variant("independent_attributes"),
    "one position bucket": Variant("one_bucket"),
    "no token dropout": Variant("no_token_dropout"),
    "no out-degree constraints": Variant("unlimited_out_degree", weights_of="full"),
    "no posterior": Variant(sampling={"best_of": 1}),
    "no posterior, no guidance": Variant(sampling={"best_of": 1, "guidance": 1.0}),
    "no conditions": Variant("no_conditions", sampling={"best_of": 1, "guidance": 1.0}),
}


def main() -> None:
    """Run every variant and seed, print one JSON object."""
    args = _arguments()
    spawn = multiprocessing.get_context("spawn")
    rows = []
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool,
    ):
        args.judge = str(Path(folder) / f"full-{args.seeds[0]}" / "best")
        for seed in args.seeds:
            for name in args.variants:
                row = pool.submit(_run, name, seed, args, Path(folder)).result()
                print(json.dumps(row), flush=True)
                rows.append(row)
    summary = {name: _summary([r for r in rows if r["variant"] == name]) for name in args.variants}
    machine = {"platform": platform.platform(), "threads": args.threads}
    settings = {key: getattr(args, key) for key in ("data", "steps", "seeds", "max_nodes")}
    print(json.dumps({"machine": machine, "settings": settings, "mean and deviation": summary}))


def _arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="data set folder, as for 'layerdag surrogate'")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--given", nargs="+", help="names of the conditions to keep; else all")
    parser.add_argument("--steps", type=int, default=480)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--batch-nodes", type=int, default=1350)
    parser.add_argument("--max-nodes", type=int, default=400)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def _run(name: str, seed: int, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train and sample one variant."""
    torch.set_num_threads(args.threads)
    variant, data = VARIANTS[name], _data(args)
    own = _spec(variant.experiment, data, args)
    trained = variant.weights_of or variant.experiment
    best = folder / f"{trained}-{seed}" / "best"
    spent = 0.0 if best.exists() else _trained(trained, data, args, best.parent, seed)
    checkpoint = load_checkpoint(best)
    model = build_model(own)
    model.load_state_dict(checkpoint.model.state_dict())
    made = _samples(variant, data, model.eval(), seed)
    train_graphs, held_out = data.graphs["train"], data.graphs["val"]
    views = [AttributeView(attribute.name) for attribute in data.schema.attributes]
    similarity = compare(train_graphs, held_out, made, views, replicates=5)
    names = [*SHAPE, f"attribute:{data.schema.attributes[0].name}"]
    return {
        "variant": name,
        "seed": seed,
        "nats": checkpoint.meta.metrics["validation/total_per_graph"],
        "ratio": float(np.mean([similarity.row(n).ratio for n in names])),
        "copied": novelty(train_graphs, held_out, made).copied,
        "agreement": _agreement(data, made, Path(args.judge)),
        "step_processor_s": spent / args.steps,
    }


def _composed(experiment: str, args: argparse.Namespace) -> Any:
    """Return the settings of an experiment with those of the command line on top."""
    return compose(
        "train",
        [
            f"experiment=ablation/{experiment}",
            f"training.max_steps={args.steps}",
            f"training.evaluate_every={max(args.steps // 6, 1)}",
            f"training.batch_nodes={args.batch_nodes}",
        ],
    )


def _seen(experiment: str, data: GraphDataset, args: argparse.Namespace) -> GraphDataset:
    """Return the data set with the conditions that an experiment keeps."""
    kept = _composed(experiment, args).conditions
    return data if kept is None else data.conditioned_on(list(kept))


def _spec(experiment: str, data: GraphDataset, args: argparse.Namespace) -> ModelSpec:
    """Return the model of an experiment, with exact statistics of the training graphs."""
    data = _seen(experiment, data, args)
    settings = as_plain(_composed(experiment, args).model)
    spec = spec_for(data, settings.pop("name"), settings)
    return replace(spec, statistics=GraphStatistics.measure(data.graphs["train"], spec.sizes))


def _trained(
    experiment: str, data: GraphDataset, args: argparse.Namespace, folder: Path, seed: int
) -> float:
    """Train an experiment in ``folder`` and return the processor seconds."""
    seen = _seen(experiment, data, args)
    job = TrainingRun(
        spec=_spec(experiment, data, args),
        train=seen.batch("train"),
        validation=seen.batch("val"),
        directory=folder,
        schema=seen.schema.to_dict(),
        data_fingerprint=seen.fingerprint,
    )
    node = {**as_plain(_composed(experiment, args).training), "seed": seed}
    begin = time.process_time()
    train(job, build_settings(TrainSettings, node, "training"))
    return time.process_time() - begin


def _data(args: argparse.Namespace) -> GraphDataset:
    """Read the data set, without its largest graphs."""
    data = read_dataset(args.data)
    if args.given:
        data = data.conditioned_on(args.given)
    graphs = {
        part: tuple(dag for dag in dags if dag.num_nodes <= args.max_nodes)
        for part, dags in data.graphs.items()
    }
    return replace(data, graphs=graphs)


def _samples(variant: Variant, data: GraphDataset, model: DAGModel, seed: int) -> list[Any]:
    """Return one sample for the conditions of each training graph, as far as it knows them."""
    if variant.experiment == "no_conditions":
        data = data.conditioned_on([])
    settings = GenerationSettings(
        seed=1000 * seed,
        batch_size=64,
        max_nodes=2 * max(dag.num_nodes for dag in data.graphs["train"]),
        **variant.sampling,
    )
    rows = [dag.conditions for dag in data.graphs["train"]]
    return [sample.dag for sample in sample_like(model, data.schema, rows, settings)]


def _agreement(data: GraphDataset, made: list[Any], judge: Path) -> float:
    """Return how likely the full model's posterior finds the wanted conditions, nats per graph."""
    rows = [dag.conditions for dag in data.graphs["train"]]
    batch = DAGBatch.of(made, *data.schema.encode_conditions(rows))
    model: Any = load_checkpoint(judge).model.eval()
    with torch.no_grad():
        return float(model.posterior.log_likelihood(batch).mean())


def _summary(rows: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Return mean and standard deviation over the seeds."""
    keys = ("nats", "ratio", "copied", "agreement", "step_processor_s")
    return {
        key: [round(float(f([row[key] for row in rows])), 4) for f in (np.mean, np.std)]
        for key in keys
    }


if __name__ == "__main__":
    main()
