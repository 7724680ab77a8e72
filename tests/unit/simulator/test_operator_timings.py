"""Calibration of measured kernels from operators that a user timed."""

from dataclasses import replace

import numpy as np
import pytest
from simulator_traces import comp, system, workload

from layerdag.errors import ConfigError
from layerdag.hardware.devices import DEVICES
from layerdag.hardware.kernels import KernelRoofline
from layerdag.simulator.compute_choice import compute_model, model_files
from layerdag.simulator.operator_timings import calibrate_operators, read_operators
from layerdag.traces.chakra.workload import write_workload

MINE = KernelRoofline(20.0, 0.3, 0.4)
"""A card that is slower than any that was fitted."""
HEADER = "operator,dtype,num_ops,tensor_size,us,m,n,k,batch"


def product_costs(m, n, k):
    return {"num_ops": 2 * m * n * k, "tensor_size": 2 * (m * k + k * n + m * n)}


def mine_us(costs):
    sheet = DEVICES["h100"]
    compute = costs["num_ops"] / sheet.flops["bf16"] * 1e6
    memory = costs["tensor_size"] / sheet.bytes_per_s * 1e6
    return float(MINE.microseconds(np.array([compute]), np.array([memory]))[0])


def lines(count, noise=0.0):
    rng = np.random.default_rng(0)
    for m, n, k in (2 ** rng.integers(6, 14, (count, 3))).tolist():
        costs = product_costs(m, n, k)
        us = mine_us(costs) * np.exp(noise * rng.normal())
        yield f"aten::mm,bfloat16,{costs['num_ops']},{costs['tensor_size']},{us},{m},{n},{k},1"


def table(tmp_path, *rows, header=HEADER):
    path = tmp_path / "mine.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def time_us(model, name, **values):
    trace = workload([replace(comp(0, 0, **values), name=name)]).traces[0]
    return int(model.durations_ns(trace, np.array([0]), np.array([False]))[0]) / 1000


def test_products_take_the_user_s_times_and_other_families_the_common_factor(tmp_path):
    path = table(tmp_path, *lines(60))
    fitted, shipped = (
        compute_model(f"measured:h100{more}", system()) for more in (f",operators={path}", "")
    )
    costs = product_costs(1000, 3000, 5000)
    sizes = {"m": 1000, "n": 3000, "k": 5000, "batch": 1, "dtype": "bfloat16"}
    assert time_us(fitted, "aten::mm", **costs, **sizes) == pytest.approx(mine_us(costs), rel=0.03)
    small = {"num_ops": 10**6, "tensor_size": 4 * 10**6, "dtype": "float"}
    longer = time_us(fitted, "aten::add", **small) / time_us(shipped, "aten::add", **small)
    assert 1.5 < longer < 8
    assert "1 family fitted" in fitted.note
    assert model_files(f"measured:h100,operators={path}") == [path]


def test_the_error_is_that_of_operators_left_out(tmp_path):
    exact, noisy = (
        calibrate_operators(read_operators(table(tmp_path, *lines(200, noise))), "h100")
        for noise in (0.0, 0.3)
    )
    assert exact.error < 0.02
    assert 0.15 < noisy.error < 0.3 < noisy.error_90 < 0.9
    repeated = calibrate_operators(
        read_operators(table(tmp_path, *lines(200), *lines(200))), "h100"
    )
    assert repeated.operators == exact.operators


@pytest.mark.parametrize(
    ("rows", "header", "told"),
    [
        ((), "operator,dtype,num_ops,us", "among them 'tensor_size'"),
        ((), f"{HEADER},width", "column 'width' is unknown"),
        ((), HEADER, "no operator has a time on a device"),
        (("aten::mm,float,1,1,0,1,1,1,1",), HEADER, "line 2: us is '0'; it must be a positive"),
        (("aten::mm,float,-1,1,1,1,1,1,1",), HEADER, "num_ops is '-1'; it must be a whole"),
        (("aten::mm,float,1",), HEADER, "line 2 has not as many cells"),
        (tuple(lines(5)), HEADER, "at least 10 are needed"),
    ],
)
def test_tables_that_cannot_be_used_are_one_sentence(tmp_path, rows, header, told):
    path = table(tmp_path, *rows, header=header)
    with pytest.raises(ConfigError, match="compute model 'measured': ") as error:
        compute_model(f"measured:h100,operators={path}", system())
    assert told in str(error.value)


def test_traces_without_times_on_a_device_are_refused(tmp_path):
    prefix = tmp_path / "t"
    write_workload(workload([comp(0, 5, num_ops=1, tensor_size=1, is_cpu_op=True)]), prefix)
    with pytest.raises(ConfigError, match="no operator has a time on a device"):
        read_operators(prefix)
