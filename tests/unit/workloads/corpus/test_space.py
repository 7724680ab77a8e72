"""What a corpus is drawn from, as a file says it."""

from pathlib import Path

import pytest

from layerdag.errors import ConfigError
from layerdag.workloads.corpus import CorpusSpace, Machine, read_space


def test_what_a_file_leaves_out_is_as_without_one(tmp_path: Path) -> None:
    file = tmp_path / "space.yaml"
    file.write_text("tensor: 4\nmodels: {mine: gpt3-13b}\nmachine: {node_ranks: 4}\n")
    space = read_space(file)
    assert space.tensor == (4,)
    assert space.models == {"mine": "gpt3-13b"}
    assert space.machine == Machine(node_ranks=4)
    assert space.layers == CorpusSpace().layers
    assert read_space() == CorpusSpace()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"tensors": [1]}, "tensors"),
        ({"tensor": []}, "'tensor' is empty"),
        ({"models": {}, "zero": [3]}, "ZeRO stages 0 and 1"),
        ({"models": ["gpt2"]}, "must map families to models"),
        ({"machine": {"node_ranks": "many"}}, "node_ranks"),
        ({"layers": [8, 12], "test_layers": 12}, "'layers' and 'test_layers' both have 12"),
    ],
)
def test_what_is_not_possible_is_refused_by_name(content: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read_space(content)


@pytest.mark.parametrize("text", ["- a\n- b\n", "tensor: [1\n"])
def test_a_file_that_is_no_mapping_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"space\.yaml"):
        read_space(file)


def test_ranks_fill_nodes_before_they_need_the_network_between() -> None:
    machine = Machine(node_ranks=8, node_gb_per_s=450.0, gb_per_s=50.0)
    assert [link.ranks for link in machine.cluster(4).network] == [4]
    assert [link.ranks for link in machine.cluster(8).network] == [8]
    wide = machine.cluster(32)
    assert [(link.ranks, link.gb_per_s) for link in wide.network] == [(8, 450), (4, 50)]
    with pytest.raises(ConfigError, match="12 ranks do not fill nodes of 8"):
        machine.cluster(12)
