#!/usr/bin/env python
"""Draw a real job of the corpus's test split beside sampled ones: the picture of README.

    python benchmarks/picture.py --out docs/images/real-and-sampled.png

The real job is the one of median size of its family and strategy; the samples are seeds 0, 1, ...
of the checkpoint under that job's own conditions and the defaults of ``layerdag sample``, whatever
they look like.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from layerdag.dag.dag import DAG
from layerdag.datasets.corpus import load_corpus
from layerdag.report.gather import kind_of
from layerdag.sampling.generation import sample_like
from layerdag.sampling.settings import GenerationSettings
from layerdag.schema.schema import GraphSchema
from layerdag.training.checkpoint import checkpoint_path, load_checkpoint
from layerdag.viz.drawing import write_picture

KINDS = (
    "matrix product",
    "communication",
    "element-wise",
    "reduction",
    "data movement",
    "optimizer",
)


def main() -> None:
    """Sample and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", default="pretrained")
    parser.add_argument("--data", default="data")
    parser.add_argument("--family", default="gpt")
    parser.add_argument("--strategy", default="ddp")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--out", default="docs/images/real-and-sampled.png")
    args = parser.parse_args()
    data = load_corpus(args.data, families=(args.family,), strategies=(args.strategy,))
    test = sorted(data.graphs["test"], key=lambda dag: dag.num_nodes)
    real = test[len(test) // 2]
    checkpoint = load_checkpoint(checkpoint_path(args.checkpoint))
    schema = GraphSchema.from_dict(checkpoint.schema)
    rows = [real.conditions] * args.samples
    settings = GenerationSettings()
    samples = [s.dag for s in sample_like(checkpoint.model, schema, rows, settings)]
    titles = [f"real {args.family}, {args.strategy}: {real.num_nodes} nodes"]
    titles += [f"sampled, seed {i}: {dag.num_nodes} nodes" for i, dag in enumerate(samples)]
    drawn = [_colored(real, data.schema), *(_colored(dag, schema) for dag in samples)]
    write_picture(Path(args.out), drawn, titles)
    print(args.out)


def _colored(dag: DAG, schema: GraphSchema) -> DAG:
    """Return the DAG with the kind of work as its only attribute, which gives the color."""
    graph = schema.decode(dag)
    kinds = zip(graph.categories["op"], graph.categories["type"], strict=True)
    code_N = np.array([KINDS.index(kind_of(*pair)) for pair in kinds])
    x_NA = torch.from_numpy(code_N)[:, None]
    return replace(dag, x_NA=x_NA, u_NA=torch.zeros(x_NA.shape))


if __name__ == "__main__":
    main()
