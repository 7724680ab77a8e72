"""Rounds of sampling need no host and can be recorded; rows are used again."""

from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from operator_counts import counted
from small_models import (
    request,
    sampling_as_on_a_gpu,
    sampling_in_torch,
    sampling_side_by_side,
    small_dags,
    small_model,
)
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from layerdag.dag.dag import DAG
from layerdag.models.config import EncoderConfig
from layerdag.models.draws import sample_if_possible
from layerdag.models.fast import tensor_sampler
from layerdag.models.fast.encoder import NewestTokens, WindowEncoder
from layerdag.models.fast.model import FastLayerDAG
from layerdag.models.fast.sampling_inputs import Extent, SamplingTask
from layerdag.models.fast.sampling_rounds import SamplingRounds
from layerdag.models.fast.sampling_rows import Feature, Phase
from layerdag.models.fast.tensor_sampler import TensorSampler

DAGS = small_dags(8)


def content(dags: tuple[DAG, ...]) -> list[tuple[object, ...]]:
    return [(d.x_NA.tolist(), d.edge_index_2E.tolist(), d.edge_type_E.tolist()) for d in dags]


def task_of(model: FastLayerDAG, **changes: Any) -> SamplingTask:
    with torch.inference_mode():
        return TensorSampler(model, request(6, **changes)).task


def without_content(value: Any) -> Any:
    """Return a dataclass with tensors of the same shapes on the device "meta"."""
    tensors = {f.name: getattr(value, f.name) for f in fields(value)}
    return replace(
        value, **{name: x.to("meta") for name, x in tensors.items() if isinstance(x, Tensor)}
    )


class HostTensors(TorchDispatchMode):
    """Notes operators of which a tensor lies on the host."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        tensors = tree_leaves((args, kwargs, out))
        if any(isinstance(x, Tensor) and x.device.type == "cpu" for x in tensors):
            self.names.append(str(func))
        return out


@pytest.mark.parametrize("guidance", [1.0, 1.5])
@pytest.mark.parametrize("options", [1, 4])
def test_a_round_needs_nothing_from_the_host(guidance, options):
    """Tensors without content can be read by nobody, and a copy from the host would be noted."""
    model = small_model(DAGS)
    task = task_of(model, guidance=guidance)
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            setattr(module, name, nn.Parameter(parameter.to("meta"), requires_grad=False))
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, buffer.to("meta"))
    task = replace(
        task,
        vectors=without_content(task.vectors),
        masks=without_content(task.masks),
        options=options,
        hold_every=8,
    )
    with torch.inference_mode():
        rounds = SamplingRounds(task, Extent(rows=6, tokens=16, edges=40, block=4))
        with HostTensors() as noted:
            rounds.round(2)
    assert noted.names == []


class Recording(TorchDispatchMode):
    """Repeats operators on the same memory, as a CUDA graph does."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out

    def again(self) -> None:
        with torch.inference_mode():
            for func, args, kwargs, out in self.calls:
                found = func(*args, **kwargs)
                for old, new in zip(_tensors(out), _tensors(found), strict=True):
                    if old.data_ptr() != new.data_ptr():
                        old.copy_(new)


def _tensors(out: Any) -> list[Tensor]:
    return [out] if isinstance(out, Tensor) else [x for x in out if isinstance(x, Tensor)]


@pytest.mark.parametrize("guidance", [1.0, 1.5])
def test_a_round_that_was_recorded_can_be_repeated(guidance, monkeypatch):
    recordings = []

    def recorded(work: Callable[[], None], *_: Any) -> tuple[None, Callable[[], None]]:
        with Recording() as recording:
            work()
        recordings.append(recording)
        return None, recording.again

    model = small_model(DAGS)
    asked = request(8, guidance=guidance, best_of=2, max_nodes=40)
    plain = model.sample(asked)
    sampling_as_on_a_gpu(monkeypatch.setattr, rows=6)
    monkeypatch.setattr(tensor_sampler, "record_cuda_graph", recorded)
    repeated = model.sample(asked)
    assert content(repeated.dags) == content(plain.dags)
    assert repeated.truncated == plain.truncated
    assert 2 < len(recordings) < 12  # anew for longer graphs and for fewer rows


def test_rows_of_finished_graphs_take_the_next_ones(monkeypatch):
    started = []
    start = TensorSampler._start

    def watched(sampler: TensorSampler, row_X: Any) -> None:
        first = sampler._next_sample
        start(sampler, row_X)
        started.append(sampler._next_sample - first)

    monkeypatch.setattr(TensorSampler, "_start", watched)
    sampling_as_on_a_gpu(monkeypatch.setattr, rows=5)
    model = small_model(DAGS)
    assert len(model.sample(request(12)).dags) == 12
    assert started[0] == 5
    assert sum(started) == 12
    assert max(started[1:]) < 5  # not one batch after the other


def test_a_graph_does_not_depend_on_those_beside_it(monkeypatch):
    model = small_model(DAGS)
    sampling_as_on_a_gpu(monkeypatch.setattr, rows=100)
    together = content(model.sample(request(9)).dags)
    sampling_as_on_a_gpu(monkeypatch.setattr, rows=2)
    assert content(model.sample(request(9)).dags) == together


def test_an_idle_row_stays_as_it_is():
    model = small_model(DAGS)
    task = task_of(model)
    with torch.inference_mode():
        rounds = SamplingRounds(task, Extent(rows=3, tokens=16, edges=60, block=4))
        row_X = torch.tensor([0, 2])
        rounds.graphs.start(row_X, row_X, row_X + 100, task.modules.tokens.start_A)
        for _ in range(6):
            rounds.round(2)
    graphs = rounds.graphs
    assert graphs.feature_BF[1].tolist() == [0] * len(Feature)
    assert int(graphs.phase_B[1]) == Phase.IDLE
    assert int(graphs.edges_B[1]) == 0
    assert graphs.x_BTA[1, :-1].count_nonzero() == 0
    assert (graphs.feature_BF[row_X, Feature.POSITION] > 0).all()


def test_a_node_with_many_parents_holds_up_its_own_row_alone():
    model = small_model(DAGS)
    task = task_of(model)
    with torch.inference_mode():
        rounds = SamplingRounds(task, Extent(rows=2, tokens=16, edges=60, block=4))
        row_X = torch.arange(2)
        rounds.graphs.start(row_X, row_X, row_X + 100, task.modules.tokens.start_A)
        for _ in range(4):
            rounds.round(2)
        before_B = rounds.graphs.feature_BF[:, Feature.POSITION].clone()
        rounds.graphs.phase_B[0] = int(Phase.OPEN)
        rounds.candidates.rank_P[0], rounds.candidates.degree_P[0] = 0, 100
        rounds.candidates.last_P[0] = 1
        for _ in range(2):
            rounds.round(1)
        after_B = rounds.graphs.feature_BF[:, Feature.POSITION]
    assert after_B[0] == before_B[0]
    assert after_B[1] > before_B[1] or rounds.graphs.phase_B[1] == Phase.IDLE


def test_a_code_is_drawn_even_where_none_is_possible():
    logits_XK = torch.tensor([[-torch.inf] * 3, [torch.nan] * 3, [-torch.inf, -torch.inf, 0.0]])
    assert sample_if_possible(logits_XK, torch.full((3, 2), 0.99)).tolist() == [
        [0, 0],
        [0, 0],
        [2, 2],
    ]


def test_rounds_are_recorded_on_a_gpu_with_the_window_encoder_alone():
    encoder, gpu = small_model(DAGS).encoder, torch.device("cuda")
    assert tensor_sampler.is_recorded(encoder, gpu)
    assert not tensor_sampler.is_recorded(encoder, torch.device("cpu"))

    class Other(WindowEncoder):
        pass

    assert not tensor_sampler.is_recorded(Other(32, 1, EncoderConfig()), gpu)


def test_a_round_leaves_out_what_no_row_needs(monkeypatch):
    """With nodes of many parents there are rounds in which no row encodes a token."""
    sampling_in_torch(monkeypatch.setattr)
    monkeypatch.setattr(tensor_sampler, "PARENTS_PER_ROUND", 1)
    calls = Counter()
    for name in ("start_nodes", "add_parents", "keep_candidates", "round_as_needed"):
        method = getattr(SamplingRounds, name)

        def watched(*args: Any, name: str = name, method: Any = method) -> Any:
            calls[name] += 1
            return method(*args)

        monkeypatch.setattr(SamplingRounds, name, watched)
    (dag,) = small_model(DAGS).sample(request(1, seeds=(103,))).dags
    assert calls["start_nodes"] == dag.num_nodes + 1
    assert calls["keep_candidates"] == dag.num_nodes
    assert calls["add_parents"] == dag.num_edges
    assert calls["round_as_needed"] > calls["start_nodes"]


def test_an_encoder_that_has_one_position_takes_one_step_for_each(monkeypatch):
    sampling_side_by_side(monkeypatch.setattr)
    positions = []
    step = WindowEncoder.step

    def watched(encoder: WindowEncoder, x_RD: Tensor, newest: NewestTokens, memory: Any) -> Any:
        positions.append(newest.position)
        return step(encoder, x_RD, newest, memory)

    monkeypatch.setattr(WindowEncoder, "step", watched)
    longest = max(dag.num_nodes for dag in small_model(DAGS).sample(request(4)).dags)
    assert positions == list(range(longest + 1))


@pytest.mark.parametrize("guidance", [1.0, 1.5])
def test_the_first_candidate_is_the_node_that_is_drawn_alone(guidance, monkeypatch):
    model, asked = small_model(DAGS), request(4, guidance=guidance, max_nodes=25)
    sampling_in_torch(monkeypatch.setattr)
    alone = content(model.sample(asked).dags)
    plain, kinds = TensorSampler.__init__, []

    def with_five(self: TensorSampler, *args: Any) -> None:
        plain(self, *args)
        self.task = replace(self.task, options=5)
        self.rounds = SamplingRounds(self.task, self.rounds.extent)
        self._next_sample = 0
        self._start(np.arange(4))

    def first(rounds: SamplingRounds, done_B: Tensor, ancestry_P: Tensor) -> Tensor:
        kinds.append(rounds.candidates.kind_P.view(-1, 5).unique(dim=1).shape[1])
        return torch.zeros_like(done_B, dtype=torch.int64)

    monkeypatch.setattr(TensorSampler, "__init__", with_five)
    monkeypatch.setattr(SamplingRounds, "_choices", first)
    assert content(model.sample(asked).dags) == alone
    assert max(kinds) > 1  # the others are no copies of the first


def test_a_recording_that_does_nothing_is_an_error_and_no_endless_loop(monkeypatch):
    sampling_as_on_a_gpu(monkeypatch.setattr)
    monkeypatch.setattr(tensor_sampler, "record_cuda_graph", lambda *_: (None, lambda: None))
    with pytest.raises(RuntimeError, match="rounds of sampling on cpu draw no nodes"):
        small_model(DAGS).sample(request(4))


def test_the_host_waits_for_no_operator_of_a_round():
    model = small_model(DAGS)
    with torch.inference_mode():
        rounds = SamplingRounds(task_of(model), Extent(rows=6, tokens=16, edges=60, block=4))
        with counted() as counts:
            rounds.round(2)
    assert counts.waits == {}
