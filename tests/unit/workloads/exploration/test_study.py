"""Studies as YAML files: what they hold, and what is refused."""

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
