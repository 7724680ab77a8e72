from pathlib import Path

import pytest

from layerdag.errors import TraceError, UsageError
from layerdag.traces.pytorch import import_ranks


def test_profiles_must_fit_the_host_traces() -> None:
    with pytest.raises(UsageError, match="2 host traces but 1 profiles"):
        import_ranks(["a.json", "b.json"], ["c.json"])
    with pytest.raises(UsageError, match="nothing to import"):
        import_ranks([])


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"a\.json"):
        import_ranks([tmp_path / "a.json"])


@pytest.mark.slow
def test_ranks_of_a_collected_run_become_one_matched_job(shared_data: Path) -> None:
    from layerdag.traces.analysis import match_communication

    folder = shared_data / "traces" / "collected_torch2.13_gloo"
    hosts = [folder / f"ddp_transformer__host.{rank}.json.xz" for rank in (0, 1)]
    devices = [folder / f"ddp_transformer__device.{rank}.json.xz" for rank in (0, 1)]
    job = import_ranks(hosts, devices)
    assert job.workload.num_ranks == 2
    assert match_communication(job.workload).mismatches == ()
    assert [result.joined_fraction for result in job.results] == [1.0, 1.0]
