"""AMP and HLS of the DGRL benchmark."""

from pathlib import Path

import pytest

import layerdag as ld
from layerdag.datasets.sources import load_dgrl
from layerdag.errors import DataError


def write(folder: Path, **tables: list[str]) -> Path:
    for name, rows in tables.items():
        (folder / f"{name.replace('_', '-')}.csv").write_text("\n".join(rows) + "\n")
    return folder


@pytest.fixture
def amp(tmp_path: Path) -> Path:
    """Twelve amplifiers of three parts; the first was not simulated."""
    rows = [f"{b},{int(b > 0)},{b}.5,1,2,3" for b in range(12)]
    return write(
        tmp_path,
        num_node_list=["3"] * 12,
        num_edge_list=["2"] * 12,
        edge=["0,1", "1,2"] * 12,
        node_feat=[row for b in range(12) for row in (f"8,0,{b}", "2,6,58", "9,1,102")],
        perform101=[",valid,gain,pm,bw,fom", *rows],
    )


def test_an_amplifier_has_sub_circuits_and_a_gain(amp: Path) -> None:
    data = ld.load_dataset(amp)
    graphs = [dag for part in data.graphs.values() for dag in part]
    assert len(graphs) == 12
    assert [a.name for a in data.schema.attributes] == ["subcircuit", "position", "value"]
    assert sorted(g.conditions["label"] for g in graphs if "label" in g.conditions) == [
        b + 0.5 for b in range(1, 12)
    ]


def test_another_figure_can_be_the_label(amp: Path) -> None:
    data = load_dgrl(amp, label="bw", num_graphs=10)
    assert {g.conditions.get("label") for g in data.graphs["train"]} <= {2.0, None}
    with pytest.raises(DataError, match="no label 'cortex'; known are gain, pm, bw, fom"):
        load_dgrl(amp, label="cortex")


def test_tables_that_do_not_fit_are_refused(amp: Path) -> None:
    write(amp, node_feat=["1,2"] * 36)
    with pytest.raises(DataError, match="has 2 columns, but AMP has 3"):
        load_dgrl(amp)
    write(amp, node_feat=["1,2,3"] * 35)
    with pytest.raises(DataError, match="but hold 35 and 24"):
        load_dgrl(amp)
    write(amp, node_feat=["1,2,3"] * 36, edge=["0,7", "1,2"] * 12)
    with pytest.raises(DataError, match="names node 7"):
        load_dgrl(amp)
    write(amp, perform101=["valid,pm", "1,2"])
    with pytest.raises(DataError, match="cannot be read"):
        load_dgrl(amp)


def test_hls_graphs_lose_the_edges_that_go_back(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        num_node_list=["2"] * 12,
        num_edge_list=["2"] * 12,
        edge=["0,1", "1,0"] * 12,
        edge_feat=["1,0", "2,1"] * 12,
        node_feat=[row for b in range(12) for row in (f"0,32,1,{b % 2},0,-1", "1,8,2,5,1,3")],
        graph_label=[f"{b}.25" for b in range(12)],
    )
    data = ld.load_dataset(folder)
    assert all(dag.num_edges == 1 for part in data.graphs.values() for dag in part)
    assert data.schema.attributes[0].name == "opcode"
    with pytest.raises(DataError, match="HLS has one label"):
        load_dgrl(folder, label="x")
    write(folder, edge_feat=["1"] * 24)
    with pytest.raises(DataError, match="edge-feat holds 24 rows of 1"):
        load_dgrl(folder)


def test_amp_as_published(shared_data: Path) -> None:
    data = load_dgrl(shared_data / "flowgraphs" / "dgrl_amp", num_graphs=300)
    assert sum(map(len, data.graphs.values())) == 300
