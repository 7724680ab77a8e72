"""Small fast models and batches for the tests beside this file."""

from collections.abc import Callable

import numpy as np
import torch
from random_graphs import random_dag

from layerdag.dag.dag import DAG, DAGBatch, GraphSizes
from layerdag.dag.statistics import GraphStatistics
from layerdag.models.base import PartialCheck, SampleRequest, SampleResult
from layerdag.models.config import ConditioningConfig, EncoderConfig, FastConfig, HeadsConfig
from layerdag.models.fast.encoder import (
    AttentionContext,
    TokenGraphs,
    attention_biases,
    has_own_positions,
)
from layerdag.models.fast.layout import AttentionBlocks, BatchLayout, Edges
from layerdag.models.fast.model import FastLayerDAG

SIZES = GraphSizes((5, 3, 4), edge_types=2, numeric_conditions=1, category_conditions=(3,))


def small_dags(count: int = 4, seed: int = 0) -> list[DAG]:
    rng = np.random.default_rng(seed)
    return [
        random_dag(
            rng,
            rng.integers(1, 5, size=4 + index).tolist(),
            list(SIZES.attributes),
            extra_edges=1.0,
            num_edge_types=SIZES.edge_types,
        )
        for index in range(count)
    ]


def collated(dags: list[DAG]) -> DAGBatch:
    return DAGBatch.from_dags(
        dags, torch.linspace(-1, 1, len(dags))[:, None], torch.arange(len(dags))[:, None] % 3
    )


def tokens_of(batch: DAGBatch, block: int) -> tuple[BatchLayout, TokenGraphs]:
    """Return what an encoder reads of a batch beside its tokens."""
    layout = BatchLayout.from_batch(batch)
    edges, blocks = Edges.from_batch(batch, layout), AttentionBlocks.from_layout(layout, block)
    in_degree_T = torch.zeros(layout.num_tokens, dtype=torch.int64)
    in_degree_T[layout.token_N] = edges.in_degree_N
    return layout, TokenGraphs(
        layout.graph_T, layout.position_T, edges.parent_E, edges.child_E, in_degree_T, blocks
    )


def context_of(batch: DAGBatch, block: int, heads: int = 2) -> tuple[BatchLayout, AttentionContext]:
    """Return what an encoder block of so many heads reads of a batch."""
    layout, tokens = tokens_of(batch, block)
    return layout, AttentionContext(tokens, *attention_biases(tokens.blocks, heads))


def small_model(
    dags: list[DAG],
    *,
    block: int = 4,
    dropout: float = 0.0,
    predict_out_degree: bool = True,
    heads: HeadsConfig | None = None,
    conditioning: ConditioningConfig | None = None,
) -> FastLayerDAG:
    torch.manual_seed(0)
    statistics = GraphStatistics.measure(dags, SIZES)
    config = FastConfig(
        width=32,
        depth=2,
        predict_out_degree=predict_out_degree,
        encoder=EncoderConfig(block=block, dropout=dropout),
        conditioning=conditioning or ConditioningConfig(),
        heads=heads or HeadsConfig(),
    )
    model = FastLayerDAG(SIZES, statistics, config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


_COMPILED = "layerdag.models.fast.compiled_sampler.CompiledSampler"
_IN_TORCH = "layerdag.models.fast.tensor_sampler"
_ENCODING = ("compiled_sampler", "row_encoder", "tensor_sampler")


def sampling_in_torch(patch: Callable[..., object]) -> None:
    """Let models sample in torch, whose decisions tests can watch."""
    patch(f"{_COMPILED}.supports", lambda modules: False)


def sampling_side_by_side(patch: Callable[..., object]) -> None:
    """Let models sample as with an encoder of users: in torch, by ``Encoder.step`` for all rows."""
    for part in _ENCODING:
        patch(f"layerdag.models.fast.{part}.has_own_positions", lambda encoder: False)


def sampling_as_on_a_gpu(patch: Callable[..., object], rows: int = 4) -> None:
    """Let models sample in whole rounds, so many graphs side by side."""
    sampling_in_torch(patch)
    patch(f"{_IN_TORCH}.is_recorded", lambda encoder, device: has_own_positions(encoder))
    patch(f"{_IN_TORCH}.record_cuda_graph", lambda work, generator, device: (work(), work))
    patch(f"{_IN_TORCH}.TensorSampler._rows_in_memory", lambda sampler: rows)


def request(count: int, **changes: object) -> SampleRequest:
    plain: dict[str, object] = {
        "numeric_BC": torch.zeros(count, 1),
        "category_BM": torch.zeros(count, 1, dtype=torch.int64),
        "seeds": tuple(range(100, 100 + count)),
        "max_nodes": 30,
    }
    return SampleRequest(**(plain | changes))


def content(result: SampleResult) -> list[tuple[object, ...]]:
    """Return all that was drawn, to be compared."""
    names = ("x_NA", "u_NA", "edge_index_2E", "edge_type_E", "layer_N")
    graphs = [tuple(getattr(dag, name).tolist() for name in names) for dag in result.dags]
    return list(zip(graphs, result.truncated, strict=True))


class OddKinds(PartialCheck):
    """Refuses every third kind after two of the same, and graphs that end with kind 0."""

    def start(self, rows: int) -> None:
        self.kind_B, self.before_B = torch.zeros(2, rows, dtype=torch.int64)

    def add(self, x_BA, row_X, parent_X, type_X) -> torch.Tensor:
        assert (parent_X >= 0).all()
        self.kind_B, self.before_B = x_BA[:, 0], self.kind_B
        return ~((self.kind_B == self.before_B) & (self.kind_B % 3 == 0))

    def may_end(self) -> torch.Tensor:
        return self.kind_B != 0

    def select(self, row_R: torch.Tensor) -> None:
        self.kind_B, self.before_B = self.kind_B[row_R], self.before_B[row_R]
