"""How near does the forecast of a graph's number of nodes come, and a checkpoint that has one.

    python benchmarks/size_forecast.py data [--further data/further] [--out FOLDER]

trains the forecast alone on the corpus' training jobs (and further ones), beside the weights of the
shipped checkpoint, which stay as they are, and prints, for each tenth of the validation jobs'
nodes, the error of the logarithm. ``--out`` writes the checkpoint with the new forecast.
"""

import argparse
import json
import math
from dataclasses import fields, replace
from pathlib import Path

import torch
from torch import Tensor

from layerdag.datasets import GraphDataset
from layerdag.datasets.schema import GraphSchema
from layerdag.datasets.sources import load_corpus
from layerdag.graph import DAGBatch
from layerdag.models import Progress, SizeForecast, build_model
from layerdag.sampling import pretrained_checkpoint
from layerdag.training import CheckpointContents, load_checkpoint, save_checkpoint

BATCH = 512


def main() -> None:
    """Train, print one JSON object, and write the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", help="folder of the corpus")
    parser.add_argument("--further", help="corpus folder of further training jobs")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--max-nodes", type=int, default=1200)
    parser.add_argument("--out", type=Path, help="folder of the new checkpoint")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = load_corpus(args.corpus, max_nodes=args.max_nodes, further=args.further)
    forecast = trained(SizeForecast(data.schema.sizes()), data.batch("train"), args.epochs)
    found = figures(forecast, data.batch("val"))
    print(json.dumps({"jobs": {k: len(v) for k, v in data.graphs.items()}, **found}, indent=1))
    if args.out is not None:
        write(args.out, forecast, data, float(str(found["nats per job"])))


def trained(forecast: SizeForecast, batch: DAGBatch, epochs: int) -> SizeForecast:
    """Return the forecast after so many passes over all full blocks in random order."""
    progress, graph_R = Progress.of_batch(batch, batch.category_BM, forecast.kinds)
    log_size_R = batch.node_ptr.diff()[graph_R].float().log()
    optimizer = torch.optim.AdamW(forecast.parameters(), weight_decay=0.05)
    steps = epochs * math.ceil(graph_R.shape[0] / BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for _ in range(epochs):
        for row_R in torch.randperm(graph_R.shape[0]).split(BATCH):
            rows = Progress(**{f.name: getattr(progress, f.name)[row_R] for f in fields(progress)})
            hidden = torch.rand(rows.category_RM.shape) < 0.1
            rows = replace(rows, category_RM=rows.category_RM.masked_fill(hidden, -1))
            mean_R, deviation_R = forecast(rows)
            distance_R = (log_size_R[row_R] - mean_R) / deviation_R
            optimizer.zero_grad()
            (0.5 * distance_R.square() + deviation_R.log()).mean().backward()
            torch.nn.utils.clip_grad_norm_(forecast.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    return forecast


@torch.no_grad()
def figures(forecast: SizeForecast, batch: DAGBatch) -> dict[str, object]:
    """Return the error of the logarithm (root mean square) by the tenth of the graph."""
    progress, graph_R = Progress.of_batch(batch, batch.category_BM, forecast.kinds)
    size_R = batch.node_ptr.diff()[graph_R].float()
    mean_R, deviation_R = forecast(progress)
    tenth_R = (10 * progress.position_R / size_R).ceil().long().clamp(1, 10)
    error_R = mean_R - size_R.log()

    def root_mean_square(value_R: Tensor, tenth: int) -> float:
        return round(float(value_R[tenth_R == tenth].square().mean().sqrt()), 3)

    return {
        "nats per job": float(forecast.loss(batch, None).total) / batch.num_graphs,
        "error": [root_mean_square(error_R, tenth) for tenth in range(1, 11)],
        "told": [root_mean_square(deviation_R, tenth) for tenth in range(1, 11)],
    }


def write(out: Path, forecast: SizeForecast, data: GraphDataset, nats: float) -> None:
    """Write the shipped checkpoint with this forecast."""
    old = load_checkpoint(pretrained_checkpoint())
    known = GraphSchema.from_dict(old.schema)
    if data.schema.attributes[0] != known.attributes[0]:
        raise SystemExit("The corpus has other operators than the checkpoint.")
    spec = replace(old.spec, arguments={**old.spec.arguments, "forecast_size": True})
    model = build_model(spec)
    ours = {f"forecast.{name}": weight for name, weight in forecast.state_dict().items()}
    model.load_state_dict({**old.model.state_dict(), **ours})
    metrics = {**old.meta.metrics, "validation/forecast_per_graph": nats}
    meta = replace(old.meta, metrics=metrics)
    contents = CheckpointContents(spec, model.state_dict(), old.schema, old.run_config, meta)
    save_checkpoint(out, contents)


if __name__ == "__main__":
    main()
