"""Which parts a process writes."""

import pytest

from layerdag.errors import UsageError
from layerdag.sampling import Shard


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("num_parts", [1, 2, 10])
def test_every_part_belongs_to_one_share(count: int, num_parts: int) -> None:
    shares = [Shard.of(f"{index}/{count}").parts(num_parts) for index in range(count)]
    assert sorted(part for share in shares for part in share) == list(range(num_parts))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_without_a_word_it_is_everything() -> None:
    assert list(Shard.of(None).parts(3)) == [0, 1, 2]
    assert Shard.of(Shard(1, 2)) == Shard(1, 2)


def test_auto_is_the_place_of_the_process_under_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert Shard.of("auto") == Shard(2, 8)


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE"])
def test_auto_without_torchrun_is_one_sentence(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.delenv(name)
    with pytest.raises(UsageError, match="start it with torchrun, or name the share: shard=0/4"):
        Shard.of("auto")


@pytest.mark.parametrize("word", ["", "1", "1/", "/2", "-1/2", "1/2/3", "a/b", "0.5/2", "1 / 2"])
def test_other_words_are_one_sentence(word: str) -> None:
    with pytest.raises(UsageError, match="write i/n, such as 0/4"):
        Shard.of(word)


@pytest.mark.parametrize("word", ["2/2", "0/0", "9/4"])
def test_a_share_outside_of_its_number_is_one_sentence(word: str) -> None:
    with pytest.raises(UsageError, match=f"shard={word}: shares"):
        Shard.of(word)
