"""Equality with the reference simulator, tick by tick, on its recorded cases (../shared/data)."""

import pytest
from benchmark_cases import differences

pytestmark = pytest.mark.slow

STRATA = ("aware", "coll1d", "collnd", "commgrp", "fuzz", "graph", "stage")


@pytest.mark.parametrize("stratum", STRATA)
def test_ticks_equal_those_of_the_reference(stratum, shared_data, tmp_path):
    folders = sorted((shared_data / "astra").glob(f"{stratum}-*"))
    assert folders
    assert [line for folder in folders for line in differences(folder, tmp_path)] == []
