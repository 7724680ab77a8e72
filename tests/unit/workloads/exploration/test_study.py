"""Studies as YAML files: what they hold, and what is refused."""

import dataclasses
from pathlib import Path

import pytest
import yaml
from small_studies import TINY, cluster, study

from layerdag.errors import ConfigError, LayerdagError
from layerdag.simulator import Topology
from layerdag.simulator.compute import DEVICES
from layerdag.workloads.exploration import Link, StudiedCluster, read_study

GIB = 2**30


def test_a_file_holds_models_step_plans_and_clusters(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(
        yaml.safe_dump(study(model=["gpt2", "llama3-8b"]), sort_keys=False)
    )
    found = read_study(tmp_path / "study.yaml")
    assert [shape.name for shape in found.models] == ["gpt2", "llama3-8b"]
    assert (found.step.batch, found.step.sequence, found.step.phase) == (16, 32, "training")
    assert found.plans.tensor == (1, 2, 3)
    assert found.plans.micro_batches == (2,)
    assert found.plans.context == (1,)
    assert list(found.clusters) == ["near", "far"]
    assert found.clusters["far"].ranks == 4


def test_a_network_has_decimal_gigabytes_where_the_simulator_has_binary_ones() -> None:
    simulated = read_study(study()).clusters["far"].simulated
    first, second = simulated.network.dimensions
    assert (first.topology, first.npus, first.latency_ns) == (Topology.SWITCH, 2, 500.0)
    assert (second.topology, second.latency_ns) == (Topology.FULLY_CONNECTED, 1000.0)
    assert first.bytes_per_ns == pytest.approx(100.0)
    assert second.bytes_per_ns == pytest.approx(1.0)
    assert simulated.system.all_reduce == ("ring", "ring")


def test_own_rates_replace_those_of_a_device() -> None:
    own = StudiedCluster((Link("Ring", 2, 1.0),), device="h100", memory_gb_per_s=1000.0)
    assert own.rates.flops == DEVICES["h100"].flops
    assert own.rates.bytes_per_s == 1e12
    faster = StudiedCluster((Link("Ring", 2, 1.0),), device="h100", tflops=2.0)
    assert set(faster.rates.flops.values()) == {2e12}
    assert faster.rates.bytes_per_s == DEVICES["h100"].bytes_per_s


def test_memory_that_does_not_fit_is_reached_over_the_slower_link() -> None:
    made = StudiedCluster(
        (Link("Ring", 2, 1.0),), tflops=1.0, memory_gb_per_s=1000.0, memory_gib=60.0,
        expanded_gib=40.0, expanded_gb_per_s=100.0,
    )  # fmt: skip
    assert made.capacity == 100 * GIB
    assert made.compute(60 * GIB)._device.bytes_per_s == 1e12
    # Three quarters at 1000 GB/s, a quarter at 100 GB/s: .75 / 1000 + .25 / 100 s per GB.
    slowed = made.compute(80 * GIB)._device.bytes_per_s
    assert slowed == pytest.approx(1e9 / (0.75 / 1000 + 0.25 / 100))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"modle": "gpt2"}, "unknown key 'modle'. Did you mean 'model'?"),
        ({"clusters": {}}, "'clusters' is missing"),
        ({"clusters": ["near"]}, "'clusters' must map names to descriptions"),
        ({"step": {"batch": 16, "sequence": "long"}}, "'step.sequence' must be a whole number"),
        ({"step": {"sequence": 16}}, "'step' is incomplete"),
        ({"plans": {"tensr": [1]}}, "Unknown setting 'plans.tensr'. Did you mean 'plans.tensor'?"),
        ({"plans": {"tensor": [1.5]}}, "'plans.tensor' must be a whole number"),
        ({"model": "gpt-2"}, "gpt2"),
        ({"clusters": {"a": cluster(device="h1000")}}, "clusters.a: there is no device 'h1000'"),
        ({"clusters": {"a": cluster(tflops=None)}}, "give a device, or both tflops and memory_gb"),
        ({"clusters": {"a": cluster(network=[])}}, "clusters.a: network must have at least one"),
        ({"clusters": {"a": cluster(network="ring")}}, "clusters.a.network must be a list"),
        ({"clusters": {"a": cluster(memory_gib=0)}}, "memory_gib is 0.0; it must be a positive"),
        ({"clusters": {"a": cluster(cost_per_hour=-1)}}, "must not be negative"),
        ({"clusters": {"a": cluster(expanded_gib=9)}}, "expanded_gib needs expanded_gb_per_s"),
        ({"clusters": {"a": cluster(collectives="rings")}}, "rings"),
        (
            {"clusters": {"a": cluster(network=[{"topology": "Mesh", "ranks": 2, "gb_per_s": 1}])}},
            "there is no topology 'Mesh'",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(changes: dict, told: str) -> None:
    with pytest.raises(LayerdagError) as caught:
        read_study(study(**changes))
    assert told in str(caught.value)


def test_a_file_that_is_no_study_is_one_sentence(tmp_path: Path) -> None:
    for content, told in (
        ("a: [", "cannot be read as YAML"),
        ("- 1", "is a mapping with the keys"),
    ):
        (tmp_path / "study.yaml").write_text(content)
        with pytest.raises(ConfigError, match=told):
            read_study(tmp_path / "study.yaml")
    with pytest.raises(ConfigError, match=r"absent\.yaml"):
        read_study(tmp_path / "absent.yaml")


def test_a_shape_of_ones_own_is_a_model() -> None:
    assert read_study(study(model=[TINY])).models == (TINY,)


@pytest.mark.parametrize(
    ("topology", "told"),
    [
        ("ring", "Did you mean 'Ring'"),
        ("Torus", "Known: "),
    ],
)
def test_a_topology_is_one_of_the_simulators(topology: str, told: str) -> None:
    with pytest.raises(ConfigError, match=f"there is no topology '{topology}'") as caught:
        Link(topology, 2, 1.0).dimension()
    assert told in str(caught.value)
    assert all(known.value in str(caught.value) for known in Topology)


def test_ranks_of_all_dimensions_multiply_and_memory_adds_up() -> None:
    links = (Link("Ring", 2, 1.0), Link("Switch", 3, 1.0), Link("FullyConnected", 4, 1.0))
    made = StudiedCluster(
        links, device="h100", memory_gib=60.0, expanded_gib=4.5, expanded_gb_per_s=1.0
    )
    assert made.ranks == 2 * 3 * 4
    assert made.capacity == 64.5 * GIB


def test_memory_that_fits_is_as_fast_as_it_is() -> None:
    made = StudiedCluster((Link("Ring", 2, 1.0),), device="h100", memory_gib=80.0)
    for used in (0, 1, 80 * GIB):
        assert made.compute(used)._device == DEVICES["h100"]


def test_more_memory_beyond_the_local_one_is_never_faster() -> None:
    made = StudiedCluster(
        (Link("Ring", 2, 1.0),), device="h100", memory_gib=10.0, expanded_gib=100.0,
        expanded_gb_per_s=50.0,
    )  # fmt: skip
    speeds = [made.compute(used * GIB)._device.bytes_per_s for used in (10, 11, 20, 50, 110)]
    assert speeds == sorted(speeds, reverse=True)
    assert len(set(speeds)) == len(speeds)
    assert speeds[-1] > 50e9


def test_single_values_are_lists_of_one_and_what_is_not_named_is_not_split() -> None:
    plans = read_study(study(plans={"tensor": 4, "recompute": "full", "sequence_parallel": True}))
    assert plans.plans.tensor == (4,)
    assert plans.plans.recompute == ("full",)
    assert plans.plans.sequence_parallel == (True,)
    assert (plans.plans.pipeline, plans.plans.zero, plans.plans.schedule) == ((1,), (0,), ("1f1b",))


@pytest.mark.parametrize("empty", [{"models": ()}, {"clusters": {}}])
def test_a_study_of_nothing_is_refused(empty: dict) -> None:
    found = read_study(study())
    with pytest.raises(ConfigError, match="at least one model and one cluster"):
        dataclasses.replace(found, **empty)


def test_a_description_and_its_file_are_the_same_study(tmp_path: Path) -> None:
    described = study(model=["gpt2"])
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(described))
    assert read_study(tmp_path / "s.yaml") == read_study(str(tmp_path / "s.yaml"))
    assert read_study(tmp_path / "s.yaml") == read_study(described)


def test_a_fault_in_a_file_is_told_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(study(model="gpt2", plans={"tensor": ["two"]})))
    with pytest.raises(ConfigError, match=r"s\.yaml: .*plans\.tensor"):
        read_study(path)
