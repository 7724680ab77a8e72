from dataclasses import replace
from pathlib import Path

from private_jobs import GUARANTEE, private_jobs

from layerdag.cli.output import after_tuning, before_tuning, privacy_card
from layerdag.training import TrainResult
from layerdag.training.private import Privacy, PrivateResult

RESULT = PrivateResult(
    TrainResult("budget", 40, 1.0, {}, Path("my run/best"), Path("my run/last")), GUARANTEE
)


def test_the_card_has_the_promise_and_its_limits() -> None:
    card = privacy_card(RESULT)
    assert "| epsilon | 3 |" in card
    assert "| delta | 0.001 |" in card
    assert "| measured lower bound of epsilon | not measured |" in card
    assert "not about those of the checkpoint" in card


def test_the_end_says_the_promise_and_how_to_sample() -> None:
    told = after_tuning(RESULT)
    assert "2,884 parameters tuned: (epsilon = 3, delta = 0.001)" in told
    assert "layerdag sample checkpoint='my run/best'" in told
    audited = replace(RESULT, guarantee=replace(GUARANTEE, lower_bound=0.4))
    assert "epsilon is 0.40 or more" in after_tuning(audited)


def test_the_beginning_counts_units_and_what_was_left_out(tmp_path: Path) -> None:
    run = private_jobs(tmp_path).run(tmp_path / "run", Privacy(epsilon=1.0))
    told = before_tuning(replace(run, left_out=("job-7: has a strange word",)))
    assert "12 graphs of 12 runs, in the words, bins and conditions of base" in told
    assert "left out: 1 graphs, the first: job-7: has a strange word" in told
    assert "for the owner of the graphs alone" in told
