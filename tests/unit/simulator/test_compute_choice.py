"""Compute models by name: every form of the grammar, and a sentence for every other."""

import dataclasses

import numpy as np
import pytest
from simulator_traces import comp, ring, system, workload

from layerdag.errors import ConfigError
from layerdag.hardware.devices import DEVICES, shares_of
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.compute import (
    MeasuredCompute,
    PredictedCompute,
    ReferenceCompute,
    RooflineCompute,
)
from layerdag.simulator.compute_choice import CHOICES, compute_model, model_files
from layerdag.simulator.learned import OperatorTrees
from layerdag.simulator.run import simulate
from layerdag.simulator.systolic import Gemm, RoofMap, SystolicArray, SystolicCompute
from layerdag.surrogates.files import save_surrogate
from layerdag.traces.chakra.workload import write_workload


def finish(node, name: str) -> int:
    result = simulate(workload([node], [node]), Cluster(ring(2), system()), compute=name)
    return int(result.rank_finish_ns[0])


def product(m: int, n: int, k: int):
    shapes = f"[[{m}, {k}], [{k}, {n}]]"
    io = (None, shapes, None, None, None, None)
    return dataclasses.replace(comp(0, 9), name="aten::mm", io=io)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("reference", ReferenceCompute),
        ("measured", MeasuredCompute),
        ("measured:scale=0.5", MeasuredCompute),
        *((device, RooflineCompute) for device in DEVICES),
        ("h100:efficiency=0.4,launch=2000", RooflineCompute),
        ("systolic:128x128", SystolicCompute),
        ("systolic:8x16,dataflow=os,clock=1.4,bandwidth=900", SystolicCompute),
        *(
            (f"systolic:128x128,map={name}", SystolicCompute)
            for name in ("tpu-v4", "tpu-v4-regions", "tpu-v4-ranges", "tpu-v6e", "tpu-v6e-ranges")
        ),
    ],
)
def test_every_form_makes_its_model(name, kind):
    assert isinstance(compute_model(name, system()), kind)


def test_the_help_names_every_model():
    for word in ("reference", "measured", "systolic", "learned", *DEVICES):
        assert word in CHOICES


def test_arguments_change_times():
    assert finish(comp(0, 9), "measured") == 9000
    assert finish(comp(0, 9), "measured:scale=0.5") == 4500
    costed = comp(0, 9, num_ops=67_000_000, tensor_size=8)
    assert finish(costed, "h100:efficiency=1") == 1000
    assert finish(costed, "h100") == int(1000 / shares_of("h100").compute)  # what steps reach
    assert finish(costed, "h100:efficiency=0.5,launch=7") == 2007


def test_a_systolic_array_by_hand():
    # 5 x 9 by 9 x 7 on 2 x 3 cells, by the table of the module: 9, 15 and 10 folds.
    node = product(5, 7, 9)
    assert finish(node, "systolic:2x3,dataflow=os") == 9 * 12 - 1
    assert finish(node, "systolic:2x3") == 15 * 10 - 1
    assert finish(node, "systolic:2x3,dataflow=is") == 10 * 12 - 1
    assert finish(node, "systolic:2x3,clock=0.5") == 2 * (15 * 10 - 1)
    # TPU v4: one fold of 128 + 256 + 128 - 2 - 1 = 509 cycles, but 98,304 bytes at 29.47 per cycle.
    roof = 3.408e-5 * 98304 / 29.47 + 1.471
    assert finish(product(128, 128, 128), "systolic:128x128,map=tpu-v4") == int(roof * 1000)
    assert finish(product(128, 128, 128), "systolic:128x128,map=tpu-v4-ranges") == int(
        (0.002762 * 509 - 0.062665) * 1000
    )


def test_a_map_is_fitted_to_a_csv(tmp_path, rng):
    truth = RoofMap(3e-5, 1.2, 30.0)
    array = compute_model("systolic:16x16", system())._array
    assert isinstance(array, SystolicArray)
    sizes = rng.integers(64, 1024, (60, 3))
    gemms = [Gemm(*row) for row in sizes.tolist()]
    latency = [truth.microseconds(array.cycles(gemm), gemm) for gemm in gemms]
    path = tmp_path / "mine.csv"
    rows = np.column_stack([sizes, latency])
    np.savetxt(path, rows, delimiter=",", header="m,n,k,latency_us", comments="")
    found = finish(product(*sizes[0]), f"systolic:16x16,map={path}")
    assert found == pytest.approx(latency[0] * 1000, rel=0.02)
    np.savetxt(path, -rows, delimiter=",", header="m,n,k,latency_us", comments="")
    with pytest.raises(ConfigError, match="must all be positive"):
        compute_model(f"systolic:16x16,map={path}", system())


def test_a_learned_model_is_fitted_to_another_workload(tmp_path):
    nodes = [
        dataclasses.replace(
            comp(i, i % 5 + 1, num_ops=10 ** (i % 5), tensor_size=8), name="aten::add"
        )
        for i in range(200)
    ]
    write_workload(workload(nodes), tmp_path / "other")
    assert isinstance(compute_model(f"learned:{tmp_path / 'other'}", system()), PredictedCompute)
    node = dataclasses.replace(comp(0, 99, num_ops=1000, tensor_size=8), name="aten::add")
    assert finish(node, f"learned:{tmp_path / 'other'}") == pytest.approx(4000, rel=0.1)


def test_a_surrogate_of_operators_is_read_from_its_folder(tmp_path):
    nodes = [dataclasses.replace(comp(i, 7, tensor_size=8), name="aten::add") for i in range(40)]
    save_surrogate(OperatorTrees.fit(workload(nodes).traces), tmp_path / "o")
    node = dataclasses.replace(comp(0, 99, tensor_size=8), name="aten::add")
    assert finish(node, f"surrogate:{tmp_path / 'o'}") == pytest.approx(7000, rel=0.01)
    names = [path.name for path in model_files(f"surrogate:{tmp_path / 'o'}")]
    assert names == ["surrogate.json", "weights.safetensors"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("referense", "unknown compute model 'referense'. Did you mean 'reference'"),
        ("h200x", "Did you mean 'h200'"),
        ("measured:h10", "there is no device 'h10'. Did you mean 'h100'"),
        ("reference:2", "'2' is not of the form NAME=VALUE"),
        ("measured:scale=x", "scale is 'x'; give a number"),
        ("measured:scale=0", "it must be positive"),
        ("measured:speed=2", "unknown argument 'speed'"),
        ("reference:scale=2", "unknown argument 'scale'"),
        ("h100:efficiency=2", "efficiency is 2.0"),
        ("h100:efficiency=.5,efficiency=.6", "given twice"),
        ("surrogate", "write surrogate:FOLDER"),
        ("surrogate:missing", "there is no such file"),
        ("systolic", "'' is no size; write ROWSxCOLUMNS"),
        ("systolic:128", "'128' is no size"),
        ("systolic:0x4", "an array of 0 x 4 cells"),
        ("systolic:4x4,dataflow=xs", "dataflow is 'xs'"),
        ("systolic:4x4,clock=0", "the clock is 0.0 GHz"),
        ("systolic:4x4,bandwidth=0", "the bandwidth is 0.0 GB/s"),
        ("systolic:4x4,map=tpu-v5", "unknown map 'tpu-v5'. Did you mean 'tpu-v4'"),
        ("systolic:4x4,map=tpu-v4", "was fitted to systolic:128x128,dataflow=ws"),
        ("systolic:128x128,map=tpu-v4,clock=1", "give a clock or a map"),
        ("systolic:4x4,map=missing.csv", "missing.csv"),
        ("systolic:4x4,elementwise=missing.csv", "missing.csv"),
        ("systolic:4x4,rows=2", "unknown argument 'rows'"),
        ("systolic:4x4,clock", "'clock' is given twice or is not of the form"),
        ("learned", "write learned:PREFIX"),
        ("learned:missing/run", "compute model 'learned': missing/run"),
    ],
)
def test_what_is_no_model_is_one_sentence(name, message):
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        compute_model(name, system())
