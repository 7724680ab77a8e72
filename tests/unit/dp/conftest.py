import pytest
from private_jobs import PrivateJobs, private_jobs


@pytest.fixture(scope="module")
def mine(tmp_path_factory) -> PrivateJobs:
    return private_jobs(tmp_path_factory.mktemp("base"))
