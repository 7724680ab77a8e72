"""Counts, sizes and groups equal those of STAGE."""

import json
from typing import Any

from stage_words import flags_of

from layerdag.workloads.stage.flags import StageFlags
from layerdag.workloads.stage.job import StageJob


def _stages(flags: StageFlags) -> list[dict[str, Any]]:
    """Return the figures of each stage, groups named by degree and peers by stage."""
    return [
        found.of_rank({degree: degree for degree in flags.degrees}, list(range(flags.pp)))
        for found in StageJob(flags).figures
    ]


def test_open_golden_configurations_of_stage_are_equal(shared_data):
    cases = json.loads((shared_data / "stage" / "cases.json").read_text())["cases"]
    assert len(cases) == 7
    for case in cases:
        made = StageJob(flags_of(case["args"])).summary()
        assert made["ranks"] == case["ranks"], case["id"]
        for name, ranks in case["comm_groups"].items():
            assert made["comm_groups"][name] == ranks, case["id"]
        for name, figures in case["per_rank"].items():
            assert made["per_rank"][name] == figures, (case["id"], name)


def test_figures_of_a_transcription_of_stage_are_equal(repository):
    """Of plans that the open configurations leave out; the file tells how it was made."""
    cases = json.loads((repository / "tests" / "golden" / "stage" / "figures.json").read_text())
    for case in cases["cases"]:
        assert _stages(flags_of(case["args"])) == case["stages"], case["what"]
