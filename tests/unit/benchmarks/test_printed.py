"""The table of faults is that of the page."""

from benchmark_faults import declared, printed


def _row(figure: str, duty: str, outcome: str, threshold: float | None) -> dict:
    return {
        "fault": "labels_swapped",
        "figure": figure,
        "duty": duty,
        "outcome": outcome,
        "threshold": threshold,
        "strengths": [0.1, 0.5],
        "shifts": [0.0, 1.0],
        "half": 0.5,
        "monotone": True,
    }


def test_a_fault_has_a_row_with_what_saw_it_what_missed_it_and_what_moved():
    must, still = declared.Duty.MUST.value, declared.Duty.STILL.value
    rows = [
        _row("tstr:spearman", must, "seen", 0.5),
        _row("tstr:mape", must, "seen", 0.5),
        _row("copied", must, "seen", 0.1),
        _row("nodes", must, "missed", None),
        _row("edges", still, "false move", 0.5),
        _row("layers", still, "", None),
    ]
    others = [
        {**_row("nodes", still, "", None), "fault": fault.name}
        for fault in declared.FAULTS
        if fault.name != "labels_swapped"
    ]
    holdout = [{"figure": "nodes", "mean": 1.0, "half": 0.5, "error": 0.1}]
    lines = list(printed.lines({"faults": [*rows, *others], "holdout": holdout}))
    assert (
        "| labels_swapped | 3 of 4 | 0.1: `copied`; 0.5: `tstr:spearman,mape` | `nodes` | "
        "1 of 2: `edges` |"
    ) in lines
    assert any(line.split()[:3] == ["nodes", "1", "[0.5,"] for line in lines)
