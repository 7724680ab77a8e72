"""The systolic array by hand and against SCALE-Sim's recorded reports."""

import json

import pytest

from layerdag.errors import ConfigError
from layerdag.simulator.compute._systolic import (
    Dataflow,
    Gemm,
    SystolicArray,
    SystolicReport,
    bandwidth_bound_cycles,
)


def test_one_fold_by_hand():
    # 2 x 2 array, output stationary: 3 + 2 + 2 - 2 = 5 cycles, the last has index 4.
    report = SystolicArray(2, 2, Dataflow.OUTPUT_STATIONARY).run(Gemm(2, 2, 3))
    assert (report.cycles, report.folds) == (4, 1)
    assert report.mapping_efficiency == 1.0
    assert (report.ifmap_reads, report.filter_reads, report.ofmap_writes) == (6, 6, 4)


@pytest.mark.parametrize(
    ("dataflow", "folds", "cycles", "words", "busy"),
    [
        # C = A (5 x 9) times B (9 x 7) on 2 x 3 cells. Output stationary: 5 on rows, 7 on columns,
        # 3 x 3 folds of 9 + 2 + 3 - 2 cycles; A is read for each of 3 column folds, B for 3 rows'.
        (Dataflow.OUTPUT_STATIONARY, 9, 9 * 12 - 1, (45 * 3, 63 * 3, 35), 35 / 54 * 9 / 12),
        # Weights (9 on rows, 7 on columns): 5 x 3 folds of 5 + 4 + 3 - 2; partial sums 5 times.
        (Dataflow.WEIGHT_STATIONARY, 15, 15 * 10 - 1, (45 * 3, 63, 35 * 5), 63 / 90 * 5 / 12),
        # Inputs (9 on rows, 5 on columns): 5 x 2 folds of 7 + 4 + 3 - 2.
        (Dataflow.INPUT_STATIONARY, 10, 10 * 12 - 1, (45, 63 * 2, 35 * 5), 45 / 60 * 7 / 14),
    ],
)
def test_folds_cycles_and_accesses_by_hand(
    dataflow: Dataflow, folds: int, cycles: int, words: tuple[int, int, int], busy: float
):
    report = SystolicArray(2, 3, dataflow).run(Gemm(5, 7, 9))
    assert (report.folds, report.cycles) == (folds, cycles)
    assert (report.ifmap_reads, report.filter_reads, report.ofmap_writes) == words
    assert report.overall_utilization == pytest.approx(5 * 7 * 9 / (cycles * 6))
    assert report.compute_utilization == pytest.approx(busy)


def test_partly_filled_folds_cost_as_much_as_full_ones():
    array = SystolicArray(4, 4, Dataflow.WEIGHT_STATIONARY)
    assert array.run(Gemm(10, 5, 5)).cycles == array.run(Gemm(10, 8, 8)).cycles
    assert array.run(Gemm(10, 5, 5)).mapping_efficiency == 25 / 64


def test_convolution_is_lowered_without_padding():
    # 7 x 7 image, 3 x 3 filter, stride 2: 3 x 3 outputs; window 9 * 4.
    assert Gemm.of_convolution((7, 7), (3, 3), channels=4, filters=5, stride=2) == Gemm(9, 5, 36)
    # 9 wide, filter 2, step 2: three and a half further steps count as four.
    assert Gemm.of_convolution((2, 9), (2, 2), channels=1, filters=1, stride=2).m == 5
    with pytest.raises(ConfigError, match="does not fit"):
        Gemm.of_convolution((2, 7), (3, 3), channels=1, filters=1, stride=1)


def test_slow_memory_bounds_the_cycles():
    assert bandwidth_bound_cycles(100, (500, 900), 50, (10.0, 1.0)) == 100
    assert bandwidth_bound_cycles(100, (500, 2001), 50, (10.0, 1.0)) == 201
    assert bandwidth_bound_cycles(100, (5, 5), 300, (10.0, 1.0)) == 300


def test_empty_products_and_arrays_are_refused():
    with pytest.raises(ConfigError, match="empty"):
        Gemm(0, 1, 1)
    with pytest.raises(ConfigError, match="cannot compute"):
        SystolicArray(0, 1, Dataflow.INPUT_STATIONARY)
    with pytest.raises(ConfigError, match="0 cells"):
        SystolicArray(1, 0, Dataflow.INPUT_STATIONARY)


@pytest.mark.parametrize("dataflow", Dataflow)
def test_an_array_of_one_cell_takes_a_cycle_for_each_multiply_add(dataflow):
    report = SystolicArray(1, 1, dataflow).run(Gemm(2, 3, 4))
    folds, time = {"os": (6, 4), "ws": (12, 2), "is": (8, 3)}[dataflow.value]
    fill = 1 if dataflow is Dataflow.OUTPUT_STATIONARY else 2
    assert report.cycles == folds * (time + fill + 1 - 2) - 1


def recorded(case: dict) -> tuple[SystolicArray, Gemm, SystolicReport]:
    array = SystolicArray(case["arch"]["rows"], case["arch"]["cols"], Dataflow(case["dataflow"]))
    layer = case["layer"]
    gemm = Gemm(*case["gemm_mnk"])
    if case["kind"] == "conv":
        lowered = Gemm.of_convolution(
            (layer["ih"], layer["iw"]),
            (layer["fh"], layer["fw"]),
            layer["c"],
            layer["n"],
            layer["stride"],
        )
        assert lowered == gemm
    return array, gemm, array.run(gemm)


@pytest.mark.slow
def test_reports_equal_those_of_scale_sim(shared_data):
    cases = json.loads((shared_data / "scalesim" / "cases.json").read_text())["cases"]
    assert len(cases) > 50
    for case in cases:
        array, gemm, report = recorded(case)
        expected, sram = case["expect"], case["expect"]["sram"]
        total = report.cycles + expected["stall_cycles"]
        assert total == expected["total_cycles"], case["id"]
        used = 100 * gemm.macs / (total * array.rows * array.columns)
        assert used == pytest.approx(expected["overall_util_pct"])
        assert 100 * report.mapping_efficiency == pytest.approx(expected["mapping_efficiency_pct"])
        assert 100 * report.compute_utilization == pytest.approx(expected["compute_util_pct"])
        assert report.ifmap_reads == sram["ifmap_reads"]
        assert report.filter_reads == sram["filter_reads"]
        slip = array.dataflow is Dataflow.OUTPUT_STATIONARY
        extra = report.folds * (array.rows + array.columns) if slip else 0
        assert report.ofmap_writes + extra == sram["ofmap_writes"]
