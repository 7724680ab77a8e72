"""Codes that nodes of a job cannot have together, or not on so many ranks."""

import pytest
import torch
from costed_jobs import costed_jobs
from random_jobs import random_job
from raw_graphs import chain

from layerdag.codec import NONE, SEND, is_communication
from layerdag.datasets.schema import GraphSchema
from layerdag.sampling.drawing import possible_codes

JOBS = [random_job(seed, 3, layers=5) for seed in range(12)]
SCHEMA = GraphSchema.fit("trace", JOBS, num_bins=2)


def column(name: str, word: str) -> int:
    """Return the feature column of a word."""
    start = 0
    for attribute in SCHEMA.attributes:
        if attribute.name == name:
            return start + attribute.values.index(word)
        start += attribute.num_codes
    raise AssertionError(name)


def together(first: tuple[str, str], second: tuple[str, str]) -> bool:
    possible = possible_codes(SCHEMA, [{}])
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
def test_what_decoding_would_repair_is_impossible(
    first: tuple[str, str], second: tuple[str, str], expected: bool
) -> None:
    assert together(first, second) is expected


def test_every_node_of_real_jobs_is_possible() -> None:
    ranks = [str(job.conditions.get("world_size", "")) for job in JOBS]
    possible = possible_codes(SCHEMA, [{"world_size": word} for word in ranks])
    assert possible is not None
    sizes = torch.tensor([a.num_codes for a in SCHEMA.attributes])
    for row_F, job in zip(possible.graph_BF, JOBS, strict=True):
        code_NA = SCHEMA.encode(job).x_NA + sizes.cumsum(0) - sizes
        assert row_F[code_NA].all()
        assert possible.pairs_FF[code_NA[:, :, None], code_NA[:, None, :]].all()


def test_stages_stay_below_the_number_of_ranks() -> None:
    possible = possible_codes(SCHEMA, [{"world_size": "2"}, {}])
    assert possible is not None
    two_F, unknown_F = possible.graph_BF
    assert two_F[[column("stage", "0"), column("stage", "1")]].all()
    assert not two_F[[column("stage", "2"), column("peer", "2")]].any()
    assert unknown_F.all()


def test_a_single_rank_exchanges_nothing() -> None:
    possible = possible_codes(SCHEMA, [{"world_size": "1"}])
    assert possible is not None
    columns = [column("op", SEND), column("type", "MESSAGE"), column("type", "COMM_COLL")]
    assert not possible.graph_BF[0, columns].any()
    assert possible.graph_BF[0, column("type", "COMP")]


def test_graphs_that_are_no_jobs_have_no_rules() -> None:
    flow = GraphSchema.fit("flow", [chain("g", "ab", label=1.0)] * 2)
    assert possible_codes(flow, [{}]) is None


def test_candidates_of_a_graph_have_its_rules() -> None:
    possible = possible_codes(SCHEMA, [{"world_size": "2"}, {}])
    assert possible is not None
    assert torch.equal(possible.repeated(2).graph_BF[1], possible.graph_BF[0])
    assert torch.equal(possible.repeated(2).graph_BF[2], possible.graph_BF[1])


def test_jobs_of_one_rank_may_communicate_where_no_training_job_had_more() -> None:
    schema = GraphSchema.fit("trace", costed_jobs([8, 16] * 10), num_bins=2)
    assert any(is_communication(word) for word in schema.attributes[0].values)
    possible = possible_codes(schema, [{"world_size": "1"}])
    assert possible is not None
    assert possible.graph_BF.all()
