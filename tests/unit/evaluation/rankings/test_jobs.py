"""What is known of a job before it runs."""

from dataclasses import replace

from random_jobs import random_job

from layerdag.evaluation.rankings import ranked_job


def test_plan_and_kind_are_what_the_conditions_say() -> None:
    said = {"world_size": "4", "strategy": "pp", "family": "gpt", "phase": "training"}
    graph = random_job(0, 2)
    job = ranked_job(graph, said)
    assert job is not None
    assert (job.plan, job.kind, job.nodes) == ("pp x 4", ("gpt", "training"), graph.num_nodes)
    assert job.workload.num_ranks == 4


def test_the_conditions_of_the_graph_count_where_none_are_given() -> None:
    job = ranked_job(replace(random_job(0, 2), conditions={"world_size": "2"}))
    assert job is not None
    assert job.plan == "any plan x 2"


def test_a_job_gets_as_many_ranks_as_its_stages_need() -> None:
    job = ranked_job(random_job(0, 3), {"world_size": "2"})
    assert job is not None
    assert job.workload.num_ranks == 3


def test_a_job_of_one_rank_has_no_place_in_a_ranking() -> None:
    assert ranked_job(random_job(0, 1), {"world_size": "1"}) is None


def test_a_job_without_messages_and_collectives_does_not_communicate() -> None:
    graph = random_job(0, 2, layers=4)
    job = ranked_job(graph)
    assert job is not None
    assert job.communicates
    kinds = ["COMP"] * graph.num_nodes
    words = {**graph.categories, "type": kinds, "peer": ["none"] * graph.num_nodes}
    silent = ranked_job(replace(graph, categories=words))
    assert silent is not None
    assert not silent.communicates
