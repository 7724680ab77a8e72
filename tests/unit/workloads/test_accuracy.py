"""Predicted steps against the public measured ones that the package ships."""

import csv
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import layerdag as ld
from layerdag.cli.commands.accuracy import lines
from layerdag.cli.main import main
from layerdag.errors import UsageError
from layerdag.hardware.devices import DATA_SHEETS, FITTED_SHARES, USUAL_SHARES, data_sheet
from layerdag.workloads.accuracy import PUBLIC_STEPS
from layerdag.workloads.measured_steps import read_steps
from layerdag.workloads.step_efficiency import (
    StackedSteps,
    calibrated,
    fit_shares,
    read_efficiency,
    shipped_efficiency,
    write_efficiency,
)
from layerdag.workloads.transformer.memory import peak_memory
from layerdag.workloads.transformer.step_time import step_demand, step_time


@pytest.fixture(scope="module")
def public() -> StackedSteps:
    return StackedSteps.of(read_steps(PUBLIC_STEPS).steps)


def rows_of(path, count=6, **changes):
    """Write some public rows with other cells; return the path."""
    with PUBLIC_STEPS.open(newline="") as file:
        rows = [{**row, **changes} for row in csv.DictReader(file)][:count]
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    return path


def test_shipped_shares_are_those_of_the_shipped_rows(tmp_path, public):
    """Anybody can fit them again; shares of devices in the simulator are the same numbers."""
    write_efficiency(fit_shares(public), tmp_path / "again.json")
    again = public.predicted(read_efficiency(tmp_path / "again.json"))
    np.testing.assert_allclose(again, public.predicted(shipped_efficiency()), rtol=0.01)
    for name, shares in FITTED_SHARES.items():
        fitted = shipped_efficiency().of(data_sheet(name))
        found = (round(min(fitted.bf16, 1), 2), round(min(fitted.memory, 1), 2))
        assert (shares.compute, shares.memory) == found, name
    others = list(FITTED_SHARES.values())
    assert pytest.approx(np.mean([one.compute for one in others]), abs=0.02) == USUAL_SHARES.compute


@pytest.mark.slow  # three refits of all shares: 13 s
def test_rows_that_fitted_nothing_are_predicted_within_the_bars():
    """Half of the plans fit all shares, ten rows calibrate, the other half is judged."""
    found = ld.accuracy(calibrate=10, refit=True, draws=3)
    groups = {tuple(group.group.values()): group for group in found.groups}
    for device in ("a100_40", "a100_80", "h100_sxm"):
        group = groups["llm-foundry", device]
        assert group.step.median <= 0.05
        assert group.step.p90 <= 0.12
        assert group.step.median < group.constant_mfu.median < group.sheet.median
        assert group.tau_mfu >= 0.6
    titan = groups["torchtitan", "h100_sxm_96"]
    assert titan.step.median <= 0.12
    assert titan.memory.median <= 0.10


def test_a_device_that_nothing_was_fitted_to_has_the_shares_of_its_kin(public):
    other = np.array([step.sheet.name != "gb300" for step in public.steps])
    shares = fit_shares(public.take(np.flatnonzero(other)))
    assert set(shares.kin(DATA_SHEETS["gb300"])) == {"b200_sxm", "gb200"}
    part = public.take(np.flatnonzero(~other))
    off = np.abs(part.predicted(shares) / part.seconds - 1)
    assert np.median(off) <= 0.20
    assert np.quantile(off, 0.9) <= 0.45


def test_rows_of_a_slower_machine_calibrate_it_and_nothing_else(public):
    slow = [dataclasses.replace(s, step_s=1.15 * s.step_s) for s in public.steps if
            (s.source, s.sheet.name) == ("llm-foundry", "a100_40")]  # fmt: skip
    mine = StackedSteps.of(slow)
    shares = calibrated(shipped_efficiency(), mine.take(range(10)))
    held = mine.take(range(10, len(slow)))
    before, after = (
        np.median(np.abs(held.predicted(s) / held.seconds - 1))
        for s in (shipped_efficiency(), shares)
    )
    assert after < before / 2
    sheet = DATA_SHEETS["h100_sxm"]
    assert shares.of(sheet, "torchtitan") == shipped_efficiency().of(sheet, "torchtitan")


def test_parts_of_a_step_add_up_and_more_of_a_device_is_never_slower(public):
    step = public.steps[0]
    demand, shares = step_demand(step.job, step.node), shipped_efficiency().of(step.sheet)
    made = step_time(demand, step.sheet, shares)
    assert sum(dataclasses.astuple(made)) == pytest.approx(made.total)
    for name in ("bf16", "bytes_per_s", "link_bytes_per_s", "network_bytes_per_s"):
        more = dataclasses.replace(step.sheet, **{name: 2 * getattr(step.sheet, name)})
        assert step_time(demand, more, shares).total <= made.total


def test_a_host_that_launches_faster_shortens_what_waits_for_it(public):
    """A mixture of many small micro-batches waits for the host, a dense model does not."""
    gained = {}
    for step in public.steps:
        if step.sheet.name == "b200_sxm" and step.source == "megatron-bridge":
            demand, shares = step_demand(step.job, step.node), shipped_efficiency().of(step.sheet)
            grace = dataclasses.replace(step.sheet, host=DATA_SHEETS["gb200"].host)
            times = [step_time(demand, sheet, shares).total for sheet in (step.sheet, grace)]
            gained[step.job.shape.name, step.job.step.micro_batches] = times[0] / times[1]
    assert gained["qwen3-30b-a3b", 64] > 1.3
    assert 1 <= gained["llama3-405b", 32] < 1.01


def test_what_is_allocated_is_more_than_states_and_less_than_is_reserved(public):
    for step in public.steps[::20]:
        held = peak_memory(step.job)
        states = held.parameters + held.gradients + held.optimizer
        assert states < held.allocated < held.reserved()
        assert held.reserved(step.sheet.memory_gib) <= held.reserved()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"device": "h100_sxn"}, "Did you mean 'h100_sxm'"),
        ({"precision": "fp7"}, "no precision 'fp7'"),
        ({"recompute": "some"}, "no recompute 'some'"),
        ({"layers": "many"}, "layers is 'many'"),
        ({"devices": "7"}, "not the 7 devices"),
        ({"notes": "hybrid Mamba2"}, "no plain transformer"),
    ],
    ids=str,
)
def test_no_row_is_dropped_in_silence(tmp_path, changes, reason):
    with pytest.raises(UsageError, match=reason):
        ld.accuracy(rows_of(tmp_path / "t.csv", **changes))


def test_the_command_says_what_it_did_not_understand(tmp_path, capsys):
    table = rows_of(tmp_path / "t.csv", recompute="", zeroo="3", source="own")
    assert main(["accuracy", str(table), "--by", "device", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    notes = " ".join(told["notes"])
    assert "recompute is empty in 6 rows and taken as none" in notes
    assert "'zeroo' Did you mean 'zero'" in notes
    assert "'own' names no known software" in notes
    assert told["groups"][0]["rows"] == len(told["predictions"]) == 6
    assert main(["accuracy", str(table), "--calibrate", str(table), "--out",
                 str(tmp_path / "s.json")]) == 0  # fmt: skip
    assert main(["accuracy", str(table), "--calibrate", str(tmp_path / "s.json")]) == 0


def test_the_page_has_the_figures_of_the_command():
    written = Path("docs/reference/accuracy.md").read_text(encoding="utf-8")
    table = lines(ld.accuracy())
    for line in table[: table.index("")]:
        assert line.rstrip() in written, "write the table of 'layerdag accuracy' into the page"
