import pytest
from random_jobs import random_job

from layerdag._runtime import Limits, format_size, require_few_bytes, require_few_ranks
from layerdag.errors import DataError, UsageError
from layerdag.graph import GraphSizes, GraphStatistics
from layerdag.sampling import as_workload
from layerdag.sampling.files import SampleFiles, asked_ranks, expected_volume

STATISTICS = GraphStatistics(
    graphs=2,
    attributes=((10, 10),),
    edge_types=(5,),
    in_degrees=(((0, 10),), ((0, 10),)),
    out_degrees=(((0, 10),), ((0, 10),)),
    layer_sizes=((1, 20),),
    layer_counts=((10, 2),),
)


def volume(rows, num, *, ranks=None, max_nodes=1000, file_format="et"):
    return expected_volume(
        rows, STATISTICS, num=num, ranks=ranks, max_nodes=max_nodes, file_format=file_format
    )


def test_the_sizes_of_these_tests_fit() -> None:
    assert len(GraphSizes((2,)).attributes) == len(STATISTICS.attributes)


def test_jobs_are_a_file_a_rank() -> None:
    found = volume([{"world_size": "2", "num_nodes": 100.0}, {"world_size": 4.0}], 20)
    assert (found.graphs, found.least_ranks, found.most_ranks) == (20, 2, 4)
    assert found.files == 10 * (2 + 4) + 1
    # The second has the mean of the training graphs, 10 nodes.
    assert found.bytes == 10 * (200 + 40) * 135
    assert found.describe() == "20 jobs of 2 to 4 ranks: about 61 files and 324.0 kB"


def test_ranks_and_nodes_that_were_asked_for_count() -> None:
    found = volume([{"world_size": "2", "num_nodes": 1e9}], 1, ranks=8, max_nodes=50)
    assert (found.most_ranks, found.bytes) == (8, 8 * 50 * 135)


def test_flow_graphs_are_one_file_each_and_the_manifest() -> None:
    found = volume([{"num_nodes": 10.0}], 7, file_format="graphml")
    assert (found.files, found.bytes) == (8, 7 * 10 * 550)
    assert found.describe().startswith("7 graphs: about 8 files")


@pytest.mark.parametrize("value", ["x", "1" * 5000, float("nan"), float("inf"), -3.0, 0.0, "1e400"])
def test_a_world_size_that_is_no_number_of_ranks_is_one_sentence(value) -> None:
    with pytest.raises(DataError, match="no number of ranks"):
        asked_ranks({"world_size": value})


def test_numbers_of_nodes_that_are_none_count_as_the_mean() -> None:
    assert volume([{"num_nodes": "many"}], 1).bytes == 10 * 135
    assert volume([{"num_nodes": float("inf")}], 1).bytes == 10 * 135


def test_a_job_of_forty_million_ranks_is_refused_before_it_is_unfolded() -> None:
    job = random_job(0, 2, layers=4)
    with pytest.raises(UsageError, match=r"40,000,000 ranks are more than max_ranks, 4,096"):
        as_workload(job, 40_000_000)
    with pytest.raises(UsageError, match=r"max_ranks, 8"):
        as_workload(job, 10, Limits(max_ranks=8))


def test_the_estimate_of_a_sample_is_near_its_files(tmp_path) -> None:
    for file_format in ("et", "graphml", "json"):
        files = SampleFiles.of(random_job(1, 3, layers=8), file_format, 6, Limits())
        folder = tmp_path / file_format
        folder.mkdir()
        files.write(folder)
        written = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        assert written / 3 < files.num_bytes < written * 3


def test_limits_name_the_setting() -> None:
    with pytest.raises(UsageError, match=r"x: about 2.0 GB are more than max_bytes, 1.0 kB"):
        require_few_bytes(2 * 10**9, Limits(max_bytes=1000), "x")
    require_few_bytes(1000, Limits(max_bytes=1000), "x")
    require_few_ranks(4096, Limits(), "x")
    with pytest.raises(UsageError, match="at least 1"):
        Limits(max_ranks=0)


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0.0 kB"), (999_999, "1,000.0 kB"), (5 * 10**12, "5.0 TB")]
)
def test_sizes_are_told_in_the_unit_that_fits(size: int, words: str) -> None:
    assert format_size(size) == words
