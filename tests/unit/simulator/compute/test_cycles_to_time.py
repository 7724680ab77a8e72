"""Published maps from cycles of a 128 x 128 array to microseconds, coefficient by coefficient."""

import pytest

from layerdag.simulator.compute._cycles_to_time import (
    TPU_V4_BATCH,
    TPU_V4_RANGES,
    TPU_V4_REGIONS,
    TPU_V4_ROOF,
    TPU_V6E_BATCH,
    TPU_V6E_RANGES,
    TPU_V6E_ROOF,
    BatchReduction,
    CyclesToTime,
    RangeMap,
)
from layerdag.simulator.compute._systolic import Gemm

MANY = 10**9
"""Cycles beyond any memory time of the products below."""

# (slope in us per cycle, offset in us, bytes per cycle) by region, (K > 1 block, N >= 16, M >= 16).
REGIONS = {
    (False, False, False): (5.652e-6, 1.419, 5.261),
    (False, False, True): (1.623e-5, 1.579, 20.38),
    (False, True, False): (7.745e-6, 1.599, 9.399),
    (False, True, True): (1.653e-4, 1.468, 305.7),
    (True, False, False): (3.533e-5, 1.470, 24.73),
    (True, False, True): (1.270e-4, 1.646, 116.2),
    (True, True, False): (8.638e-5, 1.447, 78.92),
    (True, True, True): (1.241e-4, 4.277, 141.0),
}


def roof_us(line: tuple[float, float, float], cycles: int, gemm: Gemm) -> float:
    slope, offset, rate = line
    moved = 2 * (gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n)
    return slope * max(cycles, moved / rate) + offset


@pytest.mark.parametrize(("region", "line"), REGIONS.items())
@pytest.mark.parametrize("cycles", [1, MANY])
def test_every_region_has_its_published_line(
    region: tuple[bool, bool, bool], line: tuple[float, float, float], cycles: int
) -> None:
    deep, wide, tall = region
    for small, large in ((1, 2048), (1920, 15 * 128 + 1)):  # 15 blocks, and the 16th begun
        gemm = Gemm(large if tall else small, large if wide else small, 129 if deep else 128)
        expected = roof_us(line, cycles, gemm)
        assert TPU_V4_REGIONS.microseconds(cycles, gemm) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("roof", "line"),
    [(TPU_V4_ROOF, (3.408e-5, 1.471, 29.47)), (TPU_V6E_ROOF, (3.048e-5, 0.879, 39.07))],
)
@pytest.mark.parametrize("cycles", [1, 5000, MANY])
def test_a_roof_is_bounded_by_cycles_or_bytes(
    roof: CyclesToTime, line: tuple[float, float, float], cycles: int
) -> None:
    gemm = Gemm(96, 640, 200)
    assert roof.microseconds(cycles, gemm) == pytest.approx(roof_us(line, cycles, gemm), rel=1e-12)


@pytest.mark.parametrize(
    ("lines", "published"),
    [
        (TPU_V4_RANGES, [(0.002762, -0.062665), (0.000388, 2.05942), (0.000202, 29.7217)]),
        (TPU_V6E_RANGES, [(0.001389, 0.6048), (0.000068, 1.5468), (0.00004, 4.3847)]),
    ],
)
def test_the_largest_size_chooses_the_range(
    lines: RangeMap, published: list[tuple[float, float]]
) -> None:
    for size, (slope, offset) in zip(
        (128, 129, 1024, 1025), (published[i] for i in (0, 1, 1, 2)), strict=True
    ):
        for gemm in (Gemm(size, 1, 1), Gemm(1, size, 1), Gemm(1, 1, size)):
            assert lines.microseconds(1000, gemm) == pytest.approx(slope * 1000 + offset)


@pytest.mark.parametrize(
    ("batches", "exponent", "half"), [(TPU_V4_BATCH, 0.805, 21.0), (TPU_V6E_BATCH, 0.7769, 23.2)]
)
def test_a_batch_is_reduced_by_the_tiles_of_one_product(
    batches: BatchReduction, exponent: float, half: float
) -> None:
    tiles = (3 * 2) ** exponent  # 300 x 200: 3 x 2 tiles of 128
    separate = tiles / (tiles + half)
    expected = 5.0 * 8 * (separate + (1 - separate) / 8)
    assert batches.microseconds(8, 5.0, Gemm(300, 200, 77)) == pytest.approx(expected)
    assert batches.microseconds(1, 5.0, Gemm(300, 200, 77)) == pytest.approx(5.0)
