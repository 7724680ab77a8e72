import pytest

from layerdag.cli import main
from layerdag.cli._main import ROOM_OF


def test_unknown_verb_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["destroy"]) == 2
    assert "destroy" in capsys.readouterr().err


def test_a_misspelled_verb_is_told_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["traine"]) == 2
    assert "Did you mean 'train'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["info", "traces", "--jsn"],
            "'layerdag info' does not take '--jsn'. Did you mean '--json'?",
        ),
        (
            ["info", "traces", "--zzz=3"],
            "'layerdag info' does not take '--zzz=3'. 'layerdag info --",
        ),
        (["workload", "gpt2", "--out", "x", "more"], "'layerdag workload' does not take 'more'. '"),
    ],
)
def test_a_word_that_a_verb_does_not_take_is_told_the_nearest_flag(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert sentence in capsys.readouterr().err


def test_help_is_a_verb_like_any_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["help", "info"])
    assert stop.value.code == 0
    assert "layerdag info" in capsys.readouterr().out


def test_help_lists_every_verb_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert all(verb in shown for verb in ROOM_OF)
    assert "example:" in shown


@pytest.mark.parametrize("verb", sorted(set(ROOM_OF) - {"train", "sample"}))
def test_help_of_a_verb_shows_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert stop.value.code == 0
    assert f"layerdag {verb}" in capsys.readouterr().out.split("example:")[1]


def test_missing_file_is_one_line_and_code_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "no/such/prefix"]) == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "no/such/prefix: there is no folder" in message
