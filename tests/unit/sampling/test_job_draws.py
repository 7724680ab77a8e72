"""Which graphs are drawn side by side."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from costed_jobs import costed_job, costed_jobs, schema_of_jobs
from random_jobs import random_job
from raw_graphs import chain
from sample_parts import TEN, path_of
from tiny_checkpoints import chain_checkpoint

from layerdag.codec.folding import NONE
from layerdag.codec.vocabulary import SEND, is_communication
from layerdag.dag.dag import DAG
from layerdag.errors import CheckpointError, ConfigError
from layerdag.models.base import DAGModel, SampleRequest
from layerdag.sampling import job_draws, request_sizes as batches
from layerdag.sampling.draw_policy import DrawPolicy
from layerdag.sampling.generation import generate, generate_batched, sample_checked
from layerdag.sampling.job_draws import SILENT, USUAL, JobDraws
from layerdag.sampling.request_sizes import batches_of_like_size, requested_nodes, size_error
from layerdag.sampling.settings import GenerationSettings
from layerdag.schema.schema import GraphSchema
from layerdag.training.checkpoint import checkpoint_schema, pretrained_checkpoint


def settings(**more: object) -> GenerationSettings:
    return GenerationSettings(**{"guidance": 1.0, "best_of": 1, **more})


@pytest.fixture
def room_for_a_thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MAX_POSITIONS", 1000)


def rows(*sizes: float) -> list[dict[str, float]]:
    return [{"num_nodes": size} for size in sizes]


@pytest.mark.usefixtures("room_for_a_thousand")
def test_graphs_of_like_size_are_drawn_together_as_many_as_fit():
    found = batches_of_like_size(rows(400, 10, 500, 20, 900, 2000, 30), settings())
    assert found == [[1, 3, 6], [0, 2], [4], [5]]


@pytest.mark.usefixtures("room_for_a_thousand")
@pytest.mark.parametrize(
    ("more", "length"),
    [({}, 10), ({"best_of": 2}, 5), ({"guidance": 2.0}, 5), ({"best_of": 99}, 1)],
)
def test_candidates_and_guidance_take_rows(more, length):
    found = batches_of_like_size(rows(*[100.0] * 20), settings(**more))
    assert {len(batch) for batch in found} == {length}


def test_a_batch_size_that_is_given_counts():
    found = batches_of_like_size(rows(9, 8, 7, 6, 5), settings(batch_size=2))
    assert found == [[4, 3], [2, 1], [0]]


@pytest.mark.usefixtures("room_for_a_thousand")
@pytest.mark.parametrize("row", [{}, {"num_nodes": float("nan")}, {"num_nodes": "many"}])
def test_graphs_of_unknown_size_are_drawn_a_few_at_a_time(row):
    assert {len(b) for b in batches_of_like_size([row] * 9, settings())} == {3}
    limited = settings(max_nodes=10)
    assert len(batches_of_like_size([row] * 9, limited)) == 1


@pytest.mark.parametrize("kind", ["flow", "trace", "costed"])
@pytest.mark.parametrize("positions", [1, 100_000])
def test_graphs_and_their_order_are_those_of_small_batches(request, kind, positions, monkeypatch):
    monkeypatch.setattr(batches, "MAX_POSITIONS", positions)
    checkpoint = request.getfixturevalue(kind)
    schema = checkpoint_schema(checkpoint)
    wanted = GenerationSettings(num=10, seed=7, best_of=2, max_nodes=TEN.max_nodes)
    found = list(generate_batched(checkpoint.model, schema, wanted))
    for one, other in zip(found, generate(checkpoint.model, schema, wanted), strict=True):
        assert (one.name, one.seed, one.truncated) == (other.name, other.seed, other.truncated)
        assert torch.equal(one.dag.x_NA, other.dag.x_NA)
        assert torch.equal(one.dag.u_NA, other.dag.u_NA)
        assert torch.equal(one.dag.edge_index_2E, other.dag.edge_index_2E)
        assert one.dag.conditions == other.dag.conditions


ONE, TWO = {"world_size": "1"}, {"world_size": "2"}


def schema(ranks: str) -> GraphSchema:
    jobs = [replace(job, conditions={"world_size": ranks}) for job in costed_jobs([8, 16] * 10)]
    return schema_of_jobs(jobs, 2)


SCHEMA = schema("2")
QUIET = {"op": "aten::mm", "type": "COMP", "collective": "none", "group": "none"}


def job(**last: str) -> DAG:
    """Return a job with other words of its last node, an all-reduce."""
    plain = costed_job(8)
    words = {k: [*column[:-1], last.get(k, column[-1])] for k, column in plain.categories.items()}
    return SCHEMA.encode(replace(plain, categories=words))


def test_a_contradiction_is_a_fault_and_silence_several():
    jobs = [job(), job(group="none"), job(group="none", op="aten::mm"), job(**QUIET)]
    faults = JobDraws(SCHEMA, settings()).faults(jobs, [TWO], 4)
    # The quiet node has bytes and no FLOPs, which is filled in for real jobs, too.
    assert faults == [0, 1, 2, SILENT]


def test_each_graph_is_judged_by_its_own_number_of_ranks():
    draws = JobDraws(SCHEMA, settings())
    assert draws.faults([job(), job(**QUIET)] * 2, [ONE, TWO], 2) == [1, 0, 0, SILENT]
    assert draws.faults([job(), job()], [ONE, TWO]) == [1, 0]


def test_silence_and_collectives_are_faults_only_where_training_jobs_had_none(monkeypatch):
    assert JobDraws(schema("1"), settings()).faults([job()], [ONE]) == [0]
    assert {"collective_of_one_rank"}.isdisjoint(USUAL)
    monkeypatch.setattr(job_draws, "has_communication", lambda schema: False)
    assert JobDraws(SCHEMA, settings()).faults([job(**QUIET)], [TWO]) == [0]


REQUEST = SampleRequest(
    numeric_BC=torch.full((1, 1), torch.nan),
    category_BM=torch.zeros((1, 0), dtype=torch.int64),
    seeds=(0,),
)


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[DAGModel, GraphSchema]:
    """Return a model whose sampling fails, with the schema of its data."""
    loaded = chain_checkpoint(tmp_path)

    def fails(request: SampleRequest) -> None:
        raise ValueError("probabilities are not finite")

    monkeypatch.setattr(loaded.model, "sample", fails)
    return loaded.model, GraphSchema.from_dict(loaded.schema)


def test_a_failure_of_sound_weights_comes_out_as_it_is(broken):
    with pytest.raises(ValueError, match="probabilities are not finite"):
        sample_checked(*broken, REQUEST)


def test_a_failure_of_weights_that_overflow_names_the_checkpoint(broken):
    model, _ = broken
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(3e38)
    with pytest.raises(CheckpointError, match="no probability is finite; use an earlier one"):
        sample_checked(*broken, REQUEST)


def test_a_package_without_its_checkpoint_says_so(tmp_path, monkeypatch):
    assert (pretrained_checkpoint() / "meta.json").is_file()
    monkeypatch.setattr("layerdag.training.checkpoint.files", lambda name: tmp_path)
    with pytest.raises(ConfigError, match="has no pretrained checkpoint; name a checkpoint's"):
        pretrained_checkpoint()


JOBS = [random_job(seed, 3, layers=5) for seed in range(12)]
JOBS_SCHEMA = schema_of_jobs(JOBS, 2)


def column(name: str, word: str) -> int:
    start = 0
    for attribute in JOBS_SCHEMA.attributes:
        if attribute.name == name:
            return start + attribute.values.index(word)
        start += attribute.num_codes
    raise AssertionError(name)


def together(first: tuple[str, str], second: tuple[str, str]) -> bool:
    possible = JobDraws(JOBS_SCHEMA, settings()).possible_codes([{}])
    assert possible is not None
    assert torch.equal(possible.pairs_FF, possible.pairs_FF.T)
    return bool(possible.pairs_FF[column(*first), column(*second)])


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (("type", "MESSAGE"), ("peer", NONE), False),
        (("type", "MESSAGE"), ("peer", "1"), True),
        (("type", "COMP"), ("peer", "1"), False),
        (("type", "COMP"), ("group", NONE), True),
        (("type", "COMM_COLL"), ("group", NONE), False),
        (("op", SEND), ("type", "MESSAGE"), True),
        (("op", SEND), ("type", "COMM_COLL"), False),
        (("op", SEND), ("type", "COMP"), False),
    ],
)
def test_what_decoding_would_repair_is_impossible(first, second, expected):
    assert together(first, second) is expected


def test_every_node_of_real_jobs_is_possible():
    ranks = [str(job.conditions.get("world_size", "")) for job in JOBS]
    possible = JobDraws(JOBS_SCHEMA, settings()).possible_codes(
        [{"world_size": word} for word in ranks]
    )
    assert possible is not None
    sizes = torch.tensor([a.num_codes for a in JOBS_SCHEMA.attributes])
    for row_F, job in zip(possible.graph_BF, JOBS, strict=True):
        code_NA = JOBS_SCHEMA.encode(job).x_NA + sizes.cumsum(0) - sizes
        assert row_F[code_NA].all()
        assert possible.pairs_FF[code_NA[:, :, None], code_NA[:, None, :]].all()


def test_stages_stay_below_the_number_of_ranks():
    possible = JobDraws(JOBS_SCHEMA, settings()).possible_codes([{"world_size": "2"}, {}])
    assert possible is not None
    two_F, unknown_F = possible.graph_BF
    assert two_F[[column("stage", "0"), column("stage", "1")]].all()
    assert not two_F[[column("stage", "2"), column("peer", "2")]].any()
    assert unknown_F.all()


def test_graphs_that_are_no_jobs_have_no_rules_and_a_single_rank_exchanges_nothing():
    possible = JobDraws(JOBS_SCHEMA, settings()).possible_codes([{"world_size": "1"}])
    assert possible is not None
    columns = [column("op", SEND), column("type", "MESSAGE"), column("type", "COMM_COLL")]
    assert not possible.graph_BF[0, columns].any()
    assert possible.graph_BF[0, column("type", "COMP")]
    flow = GraphSchema.fit("flow", [chain("g", "ab", label=1.0)] * 2)
    assert DrawPolicy(flow, settings()).possible_codes([{}]) is None


def test_candidates_of_a_graph_have_its_rules():
    possible = JobDraws(JOBS_SCHEMA, settings()).possible_codes([{"world_size": "2"}, {}])
    assert possible is not None
    none = torch.zeros(2, 0)
    request = SampleRequest(none, none.long(), (3, 4), possible=possible)
    drawn = request.of_graphs([0, 0, 1, 1])
    assert drawn.seeds == (3, 3, 4, 4)
    assert drawn.possible is not None
    assert torch.equal(drawn.possible.graph_BF, possible.graph_BF[[0, 0, 1, 1]])


def test_jobs_of_one_rank_may_communicate_where_no_training_job_had_more():
    schema = schema_of_jobs(costed_jobs([8, 16] * 10), 2)
    assert any(is_communication(word) for word in schema.attributes[0].values)
    possible = JobDraws(schema, settings()).possible_codes([{"world_size": "1"}])
    assert possible is not None
    assert possible.graph_BF.all()


@pytest.mark.parametrize(
    ("asked", "miss"),
    [
        (math.nan, 0.0),
        (20.0, 0.0),
        (21.9, 0.0),
        (18.2, 0.0),
        (18.1, math.log(20 / 18.1)),
        (40.0, math.log(2)),
        (10.0, math.log(2)),
    ],
)
def test_a_tenth_more_or_fewer_nodes_is_no_miss(asked, miss):
    assert size_error(path_of(20), {"num_nodes": asked}, 1000) == pytest.approx(miss)


def test_the_nodes_asked_for_are_between_one_and_the_most():
    assert size_error(path_of(20), {"num_nodes": 500.0}, 20) == 0.0
    assert size_error(path_of(20), {"num_nodes": 500.0}, 100) == pytest.approx(math.log(5))
    assert requested_nodes({"num_nodes": 0.2}, 10) == 1.0
    assert requested_nodes({"num_nodes": "many"}, 10) is None
