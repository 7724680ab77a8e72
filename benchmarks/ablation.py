"""What each part of the fast model is worth: train without it, over seeds; JSON.

    python benchmarks/ablation.py DATA/flowgraphs/tpu_tile --steps 480 --seeds 0 1 2
    python benchmarks/ablation.py data --max-nodes 80 --steps 250 --seeds 0 1 2

"Full" is what `layerdag train` trains: with plans on flow graphs, without them on jobs.
Every variant is trained from scratch for the same number of steps, in a process of its own, then
samples one graph for the conditions of each training graph. Figures: validation likelihood (nats a
graph; of the graph alone, without the conditions), mean over seven similarity ratios (see
``benchmarks/quality.py``), copies, agreement of samples with their conditions (mean log-likelihood
under the judge of the full model's first seed), and processor seconds of a training step.
"""

import argparse
import json
import multiprocessing
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from layerdag.datasets import GraphDataset, read_dataset
from layerdag.evaluation import compare
from layerdag.evaluation.metrics import AttributeView
from layerdag.evaluation.privacy import novelty
from layerdag.graph import DAGBatch, GraphStatistics
from layerdag.models import ModelSpec, predicts_out_degree
from layerdag.models.autoregressive import (
    DegreeConstraints,
    Heads,
    _conditioning as fast_conditions,
    _encoder as fast_encoder,
    _losses as fast_losses,
)
from layerdag.models.autoregressive.sampling import (
    _cache as fast_cache,
    _parent_scorer as fast_scorer,
    _sampler as fast_sampling,
)
from layerdag.models.layers import SumEmbedding
from layerdag.sampling import GenerationSettings, sample_like
from layerdag.training import TrainJob, TrainSettings, load_checkpoint, train

SHAPE = ("nodes", "edges", "layers", "mean_width", "in_degree", "out_degree")


@dataclass(frozen=True)
class Variant:
    """The model without one of its parts.

    Attributes:
        removes: Changes the code while the variant is trained and sampled.
        arguments: Of the model.
        retrain: Whether training differs from that of the full model; else its weights are used.
        guidance: Weight of guidance while sampling.
        best_of: Graphs drawn for each one kept while sampling.
        conditions: Whether it sees conditions at all.
    """

    removes: Callable[[ExitStack], None] = lambda stack: None
    arguments: dict[str, float] = field(default_factory=dict)
    retrain: bool = True
    guidance: float = 1.5
    best_of: int = 4
    conditions: bool = True


def _without_messages(stack: ExitStack) -> None:
    """Parents send nothing to their children in the trunk."""
    finish = fast_encoder.EncoderBlock.finish
    stack.enter_context(
        patch.object(
            fast_encoder.EncoderBlock, "finish",
            lambda self, x, seen, message: finish(self, x, seen, torch.zeros_like(message)),
        )
    )  # fmt: skip


def _without_attention(stack: ExitStack) -> None:
    """Tokens see their parents alone."""
    blind = patch.object(
        fast_encoder.EncoderBlock, "_attend", lambda self, query, key, value, context: query * 0.0
    )
    stack.enter_context(blind)
    stack.enter_context(
        patch.object(
            fast_cache.EncoderBlockCache,
            "attend",
            lambda self, query, visible: torch.zeros_like(query),
        )
    )


def _without_codes(stack: ExitStack) -> None:
    """Candidate parents are scored by query and key alone: no uses, offsets, gaps."""
    for module in (fast_losses, fast_scorer):
        codes = module.token_codes
        stack.enter_context(
            patch.object(module, "token_codes", lambda *args, codes=codes: codes(*args) * 0)
        )


def _independent_attributes(stack: ExitStack) -> None:
    """Attributes after the first do not see one another."""
    forward, made = SumEmbedding.forward, Heads.__init__
    silenced: set[torch.nn.Module] = set()

    def silent(self: SumEmbedding, codes: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = forward(self, codes)
        return found * 0 if self in silenced else found

    def init(self: Heads, *args: Any, **named: Any) -> None:
        made(self, *args, **named)
        silenced.update(self.other_embeddings)

    stack.enter_context(patch.object(SumEmbedding, "forward", silent))
    stack.enter_context(patch.object(Heads, "__init__", init))


def _one_stage(stack: ExitStack) -> None:
    """Conditions add the same vector to every token."""
    stack.enter_context(
        patch.object(
            fast_conditions.ConditionEncoder, "bucket", lambda self, position: position * 0
        )
    )
    stack.enter_context(patch.object(fast_sampling, "POSITION_BUCKETS", ()))


def _unlimited_children(stack: ExitStack) -> None:
    """Nodes may have any number of children."""
    stack.enter_context(
        patch.object(
            DegreeConstraints,
            "capacity",
            lambda self, kind, out_degree: torch.full_like(kind, 1 << 40),
        )
    )
    stack.enter_context(
        patch.object(
            DegreeConstraints, "violations", lambda self, batch: torch.zeros(batch.num_graphs)
        )
    )


VARIANTS = {
    "full": Variant(),
    "no messages": Variant(_without_messages),
    "no attention": Variant(_without_attention),
    "no plans": Variant(arguments={"predict_out_degree": False}),
    "plans": Variant(arguments={"predict_out_degree": True}),
    "no dynamic codes": Variant(_without_codes),
    "all pairs": Variant(arguments={"block": 1024}),
    "independent attributes": Variant(_independent_attributes),
    "one stage": Variant(_one_stage),
    "no token dropout": Variant(arguments={"token_dropout": 0.0}),
    "any number of children": Variant(_unlimited_children, retrain=False),
    "no judge": Variant(best_of=1, retrain=False),
    "no judge, no guidance": Variant(best_of=1, guidance=1.0, retrain=False),
    "no conditions": Variant(conditions=False, best_of=1, guidance=1.0),
}


@contextmanager
def _removed(variant: Variant) -> Iterator[None]:
    """Apply what the variant removes."""
    with ExitStack() as stack:
        variant.removes(stack)
        yield


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
    sizes = data.schema.sizes()
    shown = {part: data.batch(part) for part in ("train", "val")}
    if not variant.conditions:
        shown = {part: _blind(batch) for part, batch in shown.items()}
    statistics = GraphStatistics.measure(data.graphs["train"], sizes)
    trained_as = name if variant.retrain else "full"
    arguments = {"predict_out_degree": predicts_out_degree(data), **variant.arguments}
    job = TrainJob(
        spec=ModelSpec("fast", sizes, statistics, arguments),
        train=shown["train"], validation=shown["val"],
        directory=folder / f"{trained_as}-{seed}", schema=data.schema.to_dict(),
        run_config={}, data_fingerprint=data.fingerprint,
    )  # fmt: skip
    plan = TrainSettings(
        seed=seed, max_steps=args.steps, batch_nodes=args.batch_nodes, learning_rate=2e-3,
        weight_decay=0.05, schedule="cosine", ema_decay=0.99, patience=0,
        evaluate_every=max(args.steps // 6, 1), precision="float32",
    )  # fmt: skip
    spent = 0.0
    with _removed(variant):
        if not job.best.exists():
            begin = time.process_time()
            train(job, plan)
            spent = time.process_time() - begin
        made = _samples(variant, data, job.best, seed)
    nats = load_checkpoint(job.best).meta.metrics["validation/total_per_graph"]
    train_graphs, held_out = data.graphs["train"], data.graphs["val"]
    views = [AttributeView(attribute.name) for attribute in data.schema.attributes]
    similarity = compare(train_graphs, held_out, made, views, replicates=5)
    names = [*SHAPE, f"attribute:{data.schema.attributes[0].name}"]
    return {
        "variant": name,
        "seed": seed,
        "nats": nats,
        "ratio": float(np.mean([similarity.row(n).ratio for n in names])),
        "copied": novelty(train_graphs, held_out, made).copied,
        "agreement": _agreement(data, made, Path(args.judge)),
        "step_processor_s": spent / args.steps,
    }


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


def _blind(batch: DAGBatch) -> DAGBatch:
    """Return the batch with every condition unknown."""
    return replace(
        batch,
        numeric_BC=torch.full_like(batch.numeric_BC, torch.nan),
        category_BM=torch.full_like(batch.category_BM, -1),
    )


def _samples(variant: Variant, data: GraphDataset, checkpoint: Path, seed: int) -> list[Any]:
    """Return one sample for the conditions of each training graph."""
    rows = [dag.conditions for dag in data.graphs["train"]]
    if not variant.conditions:
        rows = [{} for _ in rows]
    settings = GenerationSettings(
        seed=1000 * seed, guidance=variant.guidance, best_of=variant.best_of,
        batch_size=64,
        max_nodes=2 * max(dag.num_nodes for dag in data.graphs["train"]),
    )  # fmt: skip
    model = load_checkpoint(checkpoint).model.eval()
    return [sample.dag for sample in sample_like(model, data.schema, rows, settings)]


def _agreement(data: GraphDataset, made: list[Any], judge: Path) -> float:
    """Return how likely the judge of the full model finds the wanted conditions, nats per graph."""
    rows = [dag.conditions for dag in data.graphs["train"]]
    batch = DAGBatch.collate(
        made, [dag.layers() for dag in made], *data.schema.encode_conditions(rows)
    )
    model: Any = load_checkpoint(judge).model.eval()
    with torch.no_grad():
        return float(model.judge.log_likelihood(batch).mean())


def _summary(rows: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Return mean and standard deviation over the seeds."""
    keys = ("nats", "ratio", "copied", "agreement", "step_processor_s")
    return {
        key: [round(float(f([row[key] for row in rows])), 4) for f in (np.mean, np.std)]
        for key in keys
    }


if __name__ == "__main__":
    main()
