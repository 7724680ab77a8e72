"""Whole studies: order, best plans, the Pareto front, the journal."""

import dataclasses
import json
from collections import Counter
from pathlib import Path

import pytest
import yaml
from small_studies import TINY, cluster, study

import layerdag as ld
from layerdag.cli.main import main
from layerdag.errors import ConfigError, LayerdagError, UsageError
from layerdag.hardware.devices import DEVICES, USUAL_SHARES, Device
from layerdag.simulator.compute import RooflineCompute
from layerdag.simulator.config import Topology
from layerdag.workloads.exploration import (
    USUALLY_MEASURED,
    Exploration,
    PlanOutcome,
    Point,
    evaluate_plan,
    explore,
    points_of,
)
from layerdag.workloads.study import NetworkDimension, StudiedCluster, Study, read_study
from layerdag.workloads.transformer.memory import peak_memory


@pytest.fixture(scope="module")
def found() -> Exploration:
    return explore(study())


def outcome(name: str, seconds: float | None, cost: float, memory: float) -> PlanOutcome:
    """Return an outcome of the tiny model on cluster ``name``."""
    return PlanOutcome(
        model="tiny", cluster=name, ranks=4, settings={"data": 4}, memory_gib=memory,
        fits=seconds is not None, step_s=seconds, cost=cost,
    )  # fmt: skip


def explored(*outcomes: PlanOutcome, priced: bool = True) -> Exploration:
    clusters = {"near": cluster(cost_per_hour=3.6 if priced else 0.0)}
    return Exploration(read_study(study(clusters=clusters)), outcomes, {})


def test_outcomes_are_ordered_by_cluster_and_time_and_the_best_by_time(found):
    assert len(found.outcomes) == 16
    for name in ("near", "far"):
        times = [o.step_s for o in found.outcomes if o.cluster == name and o.step_s]
        assert times == sorted(times)
    assert [o.cluster for o in found.outcomes] == ["far"] * 8 + ["near"] * 8
    best = found.best()
    assert {o.cluster for o in best} == {"near", "far"}
    for one in best:
        assert one.step_s == min(o.step_s for o in found.simulated if o.cluster == one.cluster)
    assert [o.step_s for o in best] == sorted(o.step_s for o in best)


def test_the_front_holds_what_nothing_beats_in_both_figures():
    one, two, three, worse = (
        outcome("near", 1.0, 9.0, 50.0), outcome("near", 2.0, 4.0, 60.0),
        outcome("near", 3.0, 3.0, 10.0), outcome("near", 2.5, 4.0, 70.0),
    )  # fmt: skip
    unknown = outcome("near", None, 0.0, 1.0)
    assert explored(worse, three, one, unknown, two).pareto_front() == (one, two, three)


def test_without_prices_memory_is_the_second_figure():
    one, two = outcome("near", 1.0, 0.0, 50.0), outcome("near", 2.0, 0.0, 40.0)
    worse = outcome("near", 3.0, 0.0, 40.0)
    assert explored(worse, two, one, priced=False).pareto_front() == (one, two)


def test_plans_that_are_too_large_or_fail_come_last():
    small = {"near": cluster(memory_gib=0.0032)}
    fits = [o.fits for o in explore(study(clusters=small)).outcomes]
    assert True in fits
    assert False in fits
    assert fits == sorted(fits, reverse=True)


def test_finished_points_are_taken_from_the_journal(tmp_path, monkeypatch, found):
    journal = tmp_path / "runs" / "journal.jsonl"
    explore(study(), journal=journal)
    lines = journal.read_text().splitlines()
    assert len(lines) == 16
    journal.write_text("\n".join(lines[:10]) + "\n" + lines[10][:40])  # cut off in the 11th
    tried = []

    def counted(*point):
        tried.append(point)
        return evaluate_plan(*point)

    monkeypatch.setattr("layerdag.workloads.exploration.evaluate_plan", counted)
    again = explore(study(), journal=journal)
    assert len(tried) == 6
    assert [dataclasses.replace(o, key="") for o in again.outcomes] == [
        dataclasses.replace(o, key="") for o in found.outcomes
    ]
    whole = explore(study(), journal=journal)
    assert whole.outcomes == again.outcomes
    assert (again.from_journal, whole.from_journal) == (10, len(whole.outcomes))
    assert len(tried) == 6


def test_another_price_or_network_is_another_point(tmp_path):
    journal = tmp_path / "journal.jsonl"
    for price in (1.0, 2.0):
        clusters = {"near": cluster(cost_per_hour=price)}
        costs = [o.cost for o in explore(study(clusters=clusters), journal=journal).simulated]
        assert all(cost > 0 for cost in costs)
    assert sum(1 for line in journal.read_text().splitlines() if line) == 16


@pytest.mark.usefixtures("ready_processes")
def test_worker_processes_find_the_same(found):
    assert explore(study(), processes=2).outcomes == found.outcomes


def test_a_summary_is_json_and_holds_every_outcome(found):
    summary = json.loads(json.dumps(found.summary(), allow_nan=False))
    assert (summary["points"], summary["simulated"]) == (16, len(found.simulated))
    assert len(summary["outcomes"]) == 16
    assert summary["too_large"] == sum(not o.fits for o in found.outcomes)
    assert "key" not in summary["best"][0]


def test_a_study_without_a_possible_plan_says_why():
    with pytest.raises(
        UsageError, match=r"No plan .* of 2 the reason is: tensor x pipeline x context = 3"
    ):
        explore(study(plans={"tensor": [3]}))
    with pytest.raises(UsageError, match="processes is 0"):
        explore(study(), processes=0)


def test_each_model_has_its_own_best_and_its_own_front():
    """A small model is no reason to leave out a large one."""
    small = dataclasses.replace(outcome("near", 1.0, 1.0, 1.0), model="a")
    large = dataclasses.replace(outcome("near", 9.0, 9.0, 9.0), model="b")
    found = explored(small, large)
    assert found.best() == (small, large)
    assert found.pareto_front() == (small, large)


def test_of_equal_times_the_cheaper_one_is_on_the_front():
    dear, cheap = outcome("near", 1.0, 5.0, 1.0), outcome("near", 1.0, 4.0, 2.0)
    assert explored(dear, cheap).pareto_front() == (cheap,)


def test_a_study_whose_plans_are_all_too_large_has_no_best():
    found = explore(study(clusters={"near": cluster(memory_gib=1e-5)}))
    assert len(found.outcomes) == 8
    assert (found.simulated, found.best(), found.pareto_front()) == ((), (), ())
    assert found.summary()["too_large"] == 8


def tried(plans: dict, **changes: object) -> tuple[Point, PlanOutcome]:
    """Return the only point of a study of the near cluster, and what became of it."""
    made: Study = read_study(study(plans=plans, clusters={"near": cluster(**changes)}))
    [point] = points_of(made).possible
    return point, evaluate_plan(point, made.clusters["near"])


def test_times_are_those_of_the_simulated_step():
    point, found = tried({"tensor": 2, "micro_batches": 2})
    device = Device("own", dict.fromkeys(("f64", "f32", "bf16", "i8"), 1e12), 1e11)
    near = read_study(study()).clusters["near"].simulated
    compute = RooflineCompute(device, USUAL_SHARES.compute, memory_efficiency=USUAL_SHARES.memory)
    result = ld.simulate(point.job.workload(), near, compute=compute)
    assert found.step_s == result.makespan_ns / 1e9
    assert found.compute_s == pytest.approx(result.compute_ns.mean() / 1e9)
    assert found.exposed_s == pytest.approx(found.step_s - found.compute_s)
    assert found.tokens_per_s == pytest.approx(16 * 32 / found.step_s)
    assert found.cost == pytest.approx(3.6 * 4 * found.step_s / 3600)
    assert (found.fits, found.error) == (True, "")


def test_a_study_tells_what_it_assumes_and_what_no_measured_step_reached():
    """Llama-3-70B on 64 H100: the data sheet alone promises more than anybody measured."""
    links = [
        {"topology": "Switch", "ranks": 8, "gb_per_s": 450},
        {"topology": "Switch", "ranks": 8, "gb_per_s": 50},
    ]
    pods = {"device": "h100", "memory_gib": 80, "network": links}
    plan = {"zero": 3, "recompute": "full"}
    reached = {}
    for efficiency in (None, 1.0):
        described = {
            "model": "llama3-70b", "step": {"batch": 256, "sequence": 4096}, "plans": plan,
            "clusters": {"pods": {**pods, "efficiency": efficiency}},
        }  # fmt: skip
        found = explore(described)
        reached[efficiency] = found.best()[0].utilization
        told = " ".join(found.summary()["assumptions"])
        assert "not modeled: host time" in told
        assert ("data sheet of h100 at 100 %" in told) == (efficiency == 1.0)
        assert ("more than" in told) == (reached[efficiency] > USUALLY_MEASURED)
        assert 0.3 < found.best()[0].forecast_utilization < 0.5
    assert reached[None] < USUALLY_MEASURED + 0.1 < reached[1.0]


def test_what_is_computed_again_is_no_utilization():
    point, plain = tried({"tensor": 2})
    _, again = tried({"tensor": 2, "recompute": "full"})
    useful = point.job.summary()["matrix_flops"]
    assert plain.utilization == pytest.approx(useful / (plain.step_s * 4 * 1e12))
    assert again.utilization == pytest.approx(useful / (again.step_s * 4 * 1e12))
    assert again.step_s > plain.step_s
    assert again.memory_gib < plain.memory_gib


def test_a_plan_that_needs_more_memory_than_there_is_has_no_time():
    point, found = tried({"tensor": 2}, memory_gib=1e-4)
    assert not found.fits
    assert found.step_s is None
    assert found.memory_gib == pytest.approx(peak_memory(point.job).allocated / 2**30)
    assert found.margin_gib == pytest.approx(1e-4 - found.memory_gib)


def test_expanded_memory_holds_more_and_takes_longer():
    _, local = tried({"tensor": 2}, memory_gib=1.0)
    wider = {"memory_gib": 1e-4, "expanded_gib": 1.0, "expanded_gb_per_s": 1.0}
    _, expanded = tried({"tensor": 2}, **wider)
    assert expanded.fits
    assert expanded.step_s > local.step_s
    assert expanded.compute_s > 2 * local.compute_s


def test_memory_that_is_just_enough_is_enough():
    point, _ = tried({"tensor": 2})
    exact = peak_memory(point.job).allocated / 2**30
    assert tried({"tensor": 2}, memory_gib=exact)[1].fits
    assert not tried({"tensor": 2}, memory_gib=exact * (1 - 1e-9))[1].fits


def test_what_the_simulator_refuses_is_an_error_and_no_time():
    _, found = tried({"tensor": 2}, collectives="inNetwork")
    assert found.step_s is None
    assert found.error


def test_measured_collectives_take_the_time_of_the_device():
    def exposed_s(**changes):
        return tried({"tensor": 2}, device="h100", **changes)[1].exposed_s

    # Messages of this tiny model take a ring no time but that of its hops.
    assert exposed_s(collectives="measured") > 2 * exposed_s(collectives="ring")


def test_a_plan_is_told_by_what_it_splits():
    _, found = tried({"tensor": 2, "zero": 3, "micro_batches": 2})
    assert found.plan == "data 2, tensor 2, micro-batches 2, ZeRO 3"

    def changed(**settings: object) -> PlanOutcome:
        return dataclasses.replace(found, settings={**found.settings, **settings})

    more = changed(
        data=1, tensor=1, pipeline=4, zero=0, recompute="full", sequence_parallel=True,
        schedule="gpipe", context=2, expert=2,
    )  # fmt: skip
    assert more.plan == (
        "pipeline 4, context 2, expert 2, micro-batches 2, recompute full, sequence parallel, gpipe"
    )
    rest = {"data": 1, "tensor": 1, "zero": 0, "micro_batches": 1}
    assert changed(**rest, schedule="gpipe").plan == "one rank"
    several = changed(**rest, pipeline=2, virtual_stages=2, schedule="interleaved")
    assert several.plan == "pipeline 2, 2 virtual stages"


def test_replicas_take_the_ranks_that_are_left():
    found = points_of(read_study(study()))
    plans = [point.job.plan for point in found.possible]
    assert {plan.ranks for plan in plans} == {4}
    degrees = {(plan.data, plan.tensor, plan.pipeline, plan.zero) for plan in plans}
    assert degrees == {
        (4, 1, 1, 0), (4, 1, 1, 3), (2, 2, 1, 0), (2, 2, 1, 3), (2, 1, 2, 0), (2, 1, 2, 3),
        (1, 2, 2, 0), (1, 2, 2, 3),
    }  # fmt: skip
    assert len(plans) == 2 * len(degrees)  # on each cluster


def test_what_cannot_be_split_is_counted_by_its_reason():
    found = points_of(read_study(study()))
    # tensor 3 with one and with two stages, two ZeRO stages, on two clusters
    assert found.left_out == {
        "tensor x pipeline x context = 3 do not divide 4 ranks.": 4,
        "tensor x pipeline x context = 6 do not divide 4 ranks.": 4,
    }
    wide = study(plans={"pipeline": [1, 4]}, step={"batch": 2, "sequence": 32})
    assert list(points_of(read_study(wide)).left_out) == [
        "tiny: a number of 2 sequences cannot be split evenly over 4 data ranks x micro-batches; "
        "choose numbers that divide."
    ]


def test_values_are_tried_once_and_every_model_meets_every_cluster():
    twice = points_of(read_study(study(plans={"tensor": [2, 2, 2]}))).possible
    assert len(twice) == 2
    found = points_of(read_study(study(model=["gpt2", "gpt2-xl"], plans={})))
    assert [(point.job.shape.name, point.cluster) for point in found.possible] == [
        ("gpt2", "near"), ("gpt2-xl", "near"), ("gpt2", "far"), ("gpt2-xl", "far")
    ]  # fmt: skip


def test_reasons_come_with_the_most_frequent_first():
    plans = {"tensor": [3, 8], "pipeline": [1, 3], "zero": [0, 1]}
    counts = list(points_of(read_study(study(plans=plans))).left_out.values())
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) == 2 * 2 * 2 * 2


def test_the_step_is_that_of_the_study_with_the_micro_batches_of_the_plan():
    step = {"batch": 16, "sequence": 64, "precision": "fp32", "causal": "half"}
    found = points_of(read_study(study(step=step, plans={"micro_batches": [1, 4]})))
    near = [point.job.step for point in found.possible if point.cluster == "near"]
    assert [step.micro_batches for step in near] == [1, 4]
    assert {(s.batch, s.sequence, s.precision, s.causal) for s in near} == {
        (16, 64, "fp32", "half")
    }


def test_images_have_as_many_tokens_as_they_have():
    found = points_of(read_study(study(model="vit-b16", plans={})))
    for point in found.possible:
        assert point.job.shape.image is not None
        assert point.job.step.sequence == point.job.shape.image.tokens != 32


STUDIES = sorted((Path(__file__).resolve().parents[3] / "examples" / "studies").glob("*.yaml"))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_can_be_read_and_has_plans_on_every_cluster(path):
    study = read_study(path)
    tried = Counter(point.cluster for point in points_of(study).possible)
    assert set(tried) == set(study.clusters)


GIB = 2**30


def test_a_file_holds_models_step_plans_and_clusters(tmp_path):
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


def test_a_network_has_decimal_gigabytes_where_the_simulator_has_binary_ones():
    simulated = read_study(study()).clusters["far"].simulated
    first, second = simulated.network.dimensions
    assert (first.topology, first.npus, first.latency_ns) == (Topology.SWITCH, 2, 500.0)
    assert (second.topology, second.latency_ns) == (Topology.FULLY_CONNECTED, 1000.0)
    assert first.bytes_per_ns == pytest.approx(100.0)
    assert second.bytes_per_ns == pytest.approx(1.0)
    assert simulated.system.all_reduce == ("ring", "ring")


def test_own_rates_replace_those_of_a_device():
    own = StudiedCluster((NetworkDimension("Ring", 2, 1.0),), device="h100", memory_gb_per_s=1000.0)
    assert own.rates.flops == DEVICES["h100"].flops
    assert own.rates.bytes_per_s == 1e12
    faster = StudiedCluster((NetworkDimension("Ring", 2, 1.0),), device="h100", tflops=2.0)
    assert set(faster.rates.flops.values()) == {2e12}
    assert faster.rates.bytes_per_s == DEVICES["h100"].bytes_per_s


def test_memory_that_does_not_fit_is_reached_over_the_slower_link():
    made = StudiedCluster(
        (NetworkDimension("Ring", 2, 1.0),), tflops=1.0, memory_gb_per_s=1000.0, memory_gib=60.0,
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
        ({"step": {"sequence": 16}}, "'step.batch' is missing"),
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
        ({"clusters": {"a": cluster(collectives="measured")}}, "none were on 'None'; known are"),
        (
            {"clusters": {"a": cluster(network=[{"topology": "Mesh", "ranks": 2, "gb_per_s": 1}])}},
            "there is no topology 'Mesh'",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(changes, told):
    with pytest.raises(LayerdagError) as caught:
        read_study(study(**changes))
    assert told in str(caught.value)


def test_a_file_that_is_no_study_is_one_sentence(tmp_path):
    for content, told in (
        ("a: [", "cannot be read as YAML"),
        ("- 1", "is a mapping with the keys"),
    ):
        (tmp_path / "study.yaml").write_text(content)
        with pytest.raises(ConfigError, match=told):
            read_study(tmp_path / "study.yaml")
    with pytest.raises(ConfigError, match=r"absent\.yaml"):
        read_study(tmp_path / "absent.yaml")


def test_a_shape_of_ones_own_is_a_model():
    assert read_study(study(model=[TINY])).models == (TINY,)


@pytest.mark.parametrize(
    ("topology", "told"), [("ring", "Did you mean 'Ring'"), ("Torus", "Known: ")]
)
def test_a_topology_is_one_of_the_simulators(topology, told):
    with pytest.raises(ConfigError, match=f"there is no topology '{topology}'") as caught:
        NetworkDimension(topology, 2, 1.0).dimension()
    assert told in str(caught.value)
    assert all(known.value in str(caught.value) for known in Topology)


def test_ranks_of_all_dimensions_multiply_and_memory_adds_up():
    links = (
        NetworkDimension("Ring", 2, 1.0),
        NetworkDimension("Switch", 3, 1.0),
        NetworkDimension("FullyConnected", 4, 1.0),
    )
    made = StudiedCluster(
        links, device="h100", memory_gib=60.0, expanded_gib=4.5, expanded_gb_per_s=1.0
    )
    assert made.ranks == 2 * 3 * 4
    assert made.capacity == 64.5 * GIB


def test_memory_that_fits_is_as_fast_as_it_is():
    made = StudiedCluster((NetworkDimension("Ring", 2, 1.0),), device="h100", memory_gib=80.0)
    for used in (0, 1, 80 * GIB):
        assert made.compute(used)._device == DEVICES["h100"]


def test_single_values_are_lists_of_one_and_what_is_not_named_is_not_split():
    plans = read_study(study(plans={"tensor": 4, "recompute": "full", "sequence_parallel": True}))
    assert plans.plans.tensor == (4,)
    assert plans.plans.recompute == ("full",)
    assert plans.plans.sequence_parallel == (True,)
    assert (plans.plans.pipeline, plans.plans.zero, plans.plans.schedule) == ((1,), (0,), ("1f1b",))


@pytest.mark.parametrize("empty", [{"models": ()}, {"clusters": {}}])
def test_a_study_of_nothing_is_refused(empty):
    found = read_study(study())
    with pytest.raises(ConfigError, match="at least one model and one cluster"):
        dataclasses.replace(found, **empty)
    with pytest.raises(ConfigError, match=r"plans\.micro_batches is an empty list"):
        read_study(study(plans={"micro_batches": []}))


def test_a_description_and_its_file_are_the_same_study(tmp_path):
    described = study(model=["gpt2"])
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(described))
    assert read_study(tmp_path / "s.yaml") == read_study(str(tmp_path / "s.yaml"))
    assert read_study(tmp_path / "s.yaml") == read_study(described)


def test_a_fault_in_a_file_is_told_with_the_file(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(study(model="gpt2", plans={"tensor": ["two"]})))
    with pytest.raises(ConfigError, match=r"s\.yaml: .*plans\.tensor"):
        read_study(path)


def test_a_product_of_lists_is_counted_before_it_is_tried():
    lists = {name: list(range(1, 1001)) for name in ("tensor", "pipeline", "context", "expert")}
    with pytest.raises(ConfigError, match="asks for 2,000,000,000,000 plans"):
        explore(study(plans=lists))


def test_where_nothing_fits_the_least_memory_is_told(tmp_path, capsys):
    small = {"small": cluster(memory_gib=1e-6)}
    described = study(model="gpt2", plans={"tensor": [1, 2]}, clusters=small)
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(described))
    found = explore(tmp_path / "s.yaml")
    (least,) = found.least_memory()
    assert least.memory_gib == min(outcome.memory_gib for outcome in found.outcomes)
    assert main(["explore", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "s.html")]) == 0
    told = capsys.readouterr().out
    assert f"no plan fits; the least need is {least.memory_gib:.1f} GiB ({least.plan})" in told


def test_more_nodes_than_memory_holds_are_not_simulated(monkeypatch):
    monkeypatch.setattr("layerdag.workloads.exploration.MAX_NODES", 10)
    found = explore(study(plans={}))
    assert not found.simulated
    assert {"at most 10 are simulated" in outcome.error for outcome in found.outcomes} == {True}
