"""Which graphs teach which target."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from raw_graphs import chain

from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset
from layerdag.errors import CheckpointError, DataError, UsageError
from layerdag.surrogates.files import save_surrogate
from layerdag.surrogates.surrogate import FittedSurrogate, KnownTargets, SeenCodes

GRAPHS = [
    chain("both", "ab", time=1.0, memory=10.0),
    chain("time", "aab", time=2.0),
    chain("memory", "aaab", memory=30.0),
    chain("neither", "b"),
]
DATA = GraphDataset.build("toy", "flow", {"train": GRAPHS})


def known(*names: str) -> KnownTargets:
    return KnownTargets.from_dags(DATA.graphs["train"], DATA.schema, names, ())


def test_graphs_with_any_target_are_kept_and_each_target_has_its_own():
    found = known("time", "memory")
    assert [dag.num_nodes for dag in found.dags] == [2, 3, 4]
    np.testing.assert_array_equal(found.target_B["time"], [1.0, 2.0, np.nan])
    dags, memory_B = found.with_target("memory")
    assert ([dag.num_nodes for dag in dags], memory_B.tolist()) == ([2, 4], [10.0, 30.0])
    assert known("memory").target_B["memory"].tolist() == [10.0, 30.0]


def test_a_target_that_no_graph_has_or_that_is_no_number_is_told():
    with pytest.raises(DataError, match=r"No graph has a number 'power'.*--labels"):
        known("time", "power")
    first, *others = DATA.graphs["train"]
    strange = first.with_conditions({"time": float("inf")})
    with pytest.raises(UsageError, match="1 graphs have a 'time' that is not finite"):
        KnownTargets.from_dags([strange, *others], DATA.schema, ["time"], ())


@pytest.mark.parametrize("family", ["boosting", "stacked"])
def test_families_without_a_network_say_what_to_take_instead(family):
    with pytest.raises(UsageError, match=r"no network .* take 'message_passing', or"):
        FittedSurrogate.fit(DATA, family, target="time", shared=True)
    with pytest.raises(UsageError, match=r"'message_passing' has no setting 'trees'"):
        FittedSurrogate.fit(DATA, "message_passing", settings={"trees": 3}, shared=True)


KINDS = "abc"
FAMILIES = [chain(f"g{i}", KINDS[: 1 + i % 3] * 3, label=1.0) for i in range(12)]
FAMILY_DATA = GraphDataset.build("toy", "flow", {"train": FAMILIES, "test": FAMILIES[:1]})


def dag(letters: str) -> DAG:
    return FAMILY_DATA.schema.encode(chain("g", letters))


@pytest.fixture
def seen() -> SeenCodes:
    """Return what graphs of 3 to 9 nodes with the kinds a and b were like."""
    return SeenCodes.from_dags([dag("aba"), dag("b" * 9)])


def test_graphs_are_familiar_unless_sizes_or_kinds_of_several_nodes_were_not_there(seen):
    assert seen.outside(dag("aabb"), FAMILY_DATA.schema) == ""
    assert seen.outside(dag("ab" * 10), FAMILY_DATA.schema) == "20 nodes, fitted on 3 to 9"
    told = seen.outside(dag("acca"), FAMILY_DATA.schema)
    assert told == "50% of the nodes have a 'kind' that no graph of the fit has"
    assert "; " in seen.outside(dag("c" * 10), FAMILY_DATA.schema)
    large = SeenCodes(1, 100, seen.codes)
    assert large.outside(dag("a" * 30 + "c"), FAMILY_DATA.schema) == ""


def test_it_comes_back_from_plain_data(seen):
    assert SeenCodes.from_dict(asdict(seen)) == seen


@pytest.mark.parametrize(
    "data", [None, {}, {"fewest": 1, "most": "x", "codes": []}, {"fewest": 1, "most": 2}]
)
def test_anything_else_is_none(data):
    assert SeenCodes.from_dict(data) is None


CHAINS = [chain(f"g{i}", "ab" * (1 + i % 7) + "b" * (i % 3), label=5.0 + i % 7) for i in range(40)]
CHAIN_DATA = GraphDataset.build("toy", "flow", {"train": CHAINS[:30], "test": CHAINS[30:]})
NOISY = [
    chain(f"n{i}", "ab" * (1 + i % 7) + "b" * (i % 3), label=(5.0 + i % 7) * (1 + i % 5 / 10))
    for i in range(70)
]
CALIBRATED = GraphDataset.build(
    "toy", "flow", {"train": NOISY[:30], "val": NOISY[30:50], "test": NOISY[50:]}
)


@pytest.fixture(scope="module")
def fitted() -> FittedSurrogate:
    return FittedSurrogate.fit(CHAIN_DATA)


@pytest.fixture(scope="module")
def calibrated() -> FittedSurrogate:
    return FittedSurrogate.fit(CALIBRATED)


def test_it_predicts_for_graphs_in_every_form_and_scores_on_a_split(fitted):
    from_dags = fitted.predict(CHAIN_DATA.graphs["test"])
    assert from_dags.tolist() == fitted.predict(CHAINS[30:]).tolist()
    found = fitted.score(CHAIN_DATA)
    assert found["pearson"] > 0.9
    error_B = np.abs(from_dags - [dag.conditions["label"] for dag in CHAIN_DATA.graphs["test"]])
    assert found["mae"] == pytest.approx(error_B.mean())


def test_scores_on_codes_of_another_schema_are_the_same(fitted):
    other = GraphDataset.build("other", "flow", {"train": CHAINS[5:], "test": CHAINS[30:]})
    renamed = [chain(graph.name, "z", label=1.0) for graph in CHAINS[:1]]
    wider = GraphDataset.build("wider", "flow", {"train": [*renamed, *CHAINS], "test": CHAINS[30:]})
    assert wider.schema.attributes != CHAIN_DATA.schema.attributes
    assert fitted.score(wider) == fitted.score(other) == fitted.score(CHAIN_DATA)


def test_it_comes_back_from_its_folder(fitted, tmp_path):
    fitted.save(tmp_path / "s")
    back = FittedSurrogate.load(tmp_path / "s")
    assert back.predict(CHAINS).tolist() == fitted.predict(CHAINS).tolist()
    assert (back.target, back.excluded, back.notes) == ("label", (), fitted.notes)
    with pytest.raises(UsageError, match="overwrite"):
        back.save(tmp_path / "s")


def test_excluded_attributes_are_not_seen_when_predicting():
    blind = FittedSurrogate.fit(CHAIN_DATA, exclude=("kind",))
    swapped = [chain("g", "".join("ba"[letter == "b"] for letter in "aabb"))]
    assert blind.predict([chain("g", "aabb")]).tolist() == blind.predict(swapped).tolist()


def test_an_unknown_family_is_refused_with_the_nearest():
    with pytest.raises(
        UsageError, match=r"no family of surrogates 'boost'\. Did you mean 'boosting'"
    ):
        FittedSurrogate.fit(CHAIN_DATA, "boost")


def test_a_model_that_was_saved_without_a_schema_is_refused(fitted, tmp_path):
    save_surrogate(fitted.model, tmp_path / "bare", {"target": "label"})
    with pytest.raises(UsageError, match="was saved without a schema, so graphs cannot be encoded"):
        FittedSurrogate.load(tmp_path / "bare")


def test_intervals_come_from_the_validation_part_and_survive_saving(calibrated, tmp_path):
    assert calibrated.calibration is not None
    assert calibrated.calibration.error_S.size == 20
    found = calibrated.predict_intervals(CHAINS, level=0.8)
    assert found.value_B.tolist() == calibrated.predict(CHAINS).tolist()
    assert (found.low_B < found.value_B).all()
    assert (found.value_B < found.high_B).all()
    calibrated.save(tmp_path / "s")
    back = FittedSurrogate.load(tmp_path / "s").predict_intervals(CHAINS, level=0.8)
    assert back.low_B.tolist() == found.low_B.tolist()
    assert "20 validation graphs" in (tmp_path / "s" / "README.md").read_text()


def test_without_validation_graphs_there_are_no_intervals_and_the_reason_is_told(fitted):
    assert fitted.calibration is None
    with pytest.raises(UsageError, match="fewer than 9 validation graphs with 'label'"):
        fitted.predict_intervals(CHAINS)
    assert fitted.evaluate(CHAIN_DATA).coverage == ()


def test_an_evaluation_agrees_with_the_scores_and_measures_coverage(calibrated):
    found = calibrated.evaluate(CALIBRATED)
    assert found.graphs == 20
    for name, value in calibrated.score(CALIBRATED).items():
        assert found.scores[name].value == pytest.approx(value)
    assert [one.level for one in found.coverage] == [0.5, 0.8, 0.9, 0.95]
    assert found.coverage[-1].covered > 0.5


def test_groups_are_values_of_a_condition(calibrated):
    assert calibrated.evaluate(CALIBRATED, by="label").groups is not None
    with pytest.raises(UsageError, match="part has a condition 'unheard'"):
        calibrated.evaluate(CALIBRATED, by="unheard")


def test_graphs_unlike_the_training_graphs_are_told(fitted, tmp_path):
    fitted.save(tmp_path / "s")
    back = FittedSurrogate.load(tmp_path / "s")
    familiar, large = back.out_of_distribution([chain("g", "abab"), chain("g", "ab" * 50)])
    assert familiar == ""
    assert large == "100 nodes, fitted on 2 to 16"


def two_targets() -> GraphDataset:
    """Return graphs with a label and, most of them, a number named "memory"."""
    graphs = [
        replace(
            graph,
            conditions={**graph.conditions, **({} if i % 5 == 0 else {"memory": i % 7 + 0.5})},
        )
        for i, graph in enumerate(NOISY)
    ]
    parts = {"train": graphs[:30], "val": graphs[30:50], "test": graphs[50:]}
    return GraphDataset.build("toy", "flow", parts)


def test_several_targets_share_a_folder_and_stay_what_each_alone_would_be(tmp_path):
    data = two_targets()
    both = FittedSurrogate.fit(data, target=("label", "memory"))
    assert both.targets == ("label", "memory")
    assert both.others[0].notes["train"] == 24
    both.save(tmp_path / "s")
    back = FittedSurrogate.load(tmp_path / "s")
    for name in both.targets:
        alone = FittedSurrogate.fit(data, target=name)
        assert back.for_target(name).predict(NOISY).tolist() == alone.predict(NOISY).tolist()
        assert back.for_target(name).calibration is not None
    assert back.notes == both.notes
    both.save(tmp_path / "s", overwrite=True)
    assert "| further targets | memory" in (tmp_path / "s" / "README.md").read_text()


SMALL = {"width": 8, "rounds": 1}


@pytest.fixture(scope="module")
def shared() -> FittedSurrogate:
    names = ("label", "memory")
    return FittedSurrogate.fit(
        two_targets(), "message_passing", target=names, settings=SMALL, shared=True
    )


def test_targets_that_share_a_network_are_calibrated_each_and_saved_with_its_weights_once(
    shared, tmp_path
):
    assert [one.notes["train"] for one in (shared, *shared.others)] == [30, 24]
    shared.save(tmp_path / "s")
    assert [path.parent.name for path in tmp_path.rglob("*.safetensors")] == ["s"]
    back = FittedSurrogate.load(tmp_path / "s")
    assert back.for_target("memory").model.shares_arrays(back.model)
    for name in shared.targets:
        one, wanted = back.for_target(name), shared.for_target(name)
        assert one.predict(NOISY).tolist() == wanted.predict(NOISY).tolist()
        assert one.calibration is not None
        assert one.notes == wanted.notes
    assert "| memory, outputs of the same network |" in (tmp_path / "s/README.md").read_text()
    back.save(tmp_path / "s", overwrite=True)
    back.for_target("memory").save(tmp_path / "alone")
    alone = FittedSurrogate.load(tmp_path / "alone")
    assert alone.predict(NOISY).tolist() == shared.for_target("memory").predict(NOISY).tolist()


def test_files_of_shared_networks_alone_are_of_the_new_format(shared, tmp_path):
    alone = FittedSurrogate.fit(two_targets(), "message_passing", settings=SMALL)
    facts = {}
    for name, one in (("shared", shared), ("alone", alone)):
        one.save(tmp_path / name)
        facts[name] = json.loads((tmp_path / name / "surrogate.json").read_text())
    assert (facts["shared"]["format"], facts["alone"]["format"]) == (2, 1)
    assert facts["shared"]["config"]["outputs"] == ["label", "memory"]
    assert set(facts["alone"]["config"]) == {"sizes", "scale", "settings"}  # as ever


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"output": 5}, "there is no output 5"),
        ({"outputs": ["label", "power"]}, "not those of the network"),
        ({"scale": {}}, "is damaged"),
    ],
)
def test_an_output_that_the_network_does_not_have_is_told(shared, tmp_path, changes, words):
    shared.save(tmp_path / "s")
    path = tmp_path / "s" / "target-2" / "surrogate.json"
    facts = json.loads(path.read_text())
    facts["config"] |= changes
    path.write_text(json.dumps(facts))
    with pytest.raises(CheckpointError, match=words):
        FittedSurrogate.load(tmp_path / "s")
    with pytest.raises(CheckpointError, match=r"weights lie in the folder above; load .*/s\.$"):
        FittedSurrogate.load(tmp_path / "s" / "target-2")


def test_a_target_that_it_does_not_predict_is_refused_with_the_nearest(fitted):
    assert fitted.for_target("label") is fitted
    with pytest.raises(UsageError, match=r"not predict 'lable'\. Did you mean 'label'"):
        fitted.for_target("lable")
    with pytest.raises(UsageError, match="name at least one target"):
        FittedSurrogate.fit(CHAIN_DATA, target=())


def test_folders_of_further_targets_hold_nothing_of_others(tmp_path):
    both = FittedSurrogate.fit(two_targets(), target=("label", "memory"))
    both.save(tmp_path / "s")
    (tmp_path / "s" / "target-2" / "thesis.tex").write_text("precious")
    with pytest.raises(UsageError, match=r"thesis\.tex"):
        both.save(tmp_path / "s", overwrite=True)
    (tmp_path / "s" / "target-2" / "thesis.tex").unlink()
    (tmp_path / "s" / "target-9").write_text("precious")
    with pytest.raises(UsageError, match="the file 'target-9'"):
        both.save(tmp_path / "s", overwrite=True)


@pytest.mark.parametrize("count", ["many", 7, None])
def test_a_damaged_number_of_targets_is_told(fitted, tmp_path, count):
    fitted.save(tmp_path / "s")
    facts = json.loads((tmp_path / "s" / "surrogate.json").read_text())
    facts["notes"]["further_targets"] = count
    (tmp_path / "s" / "surrogate.json").write_text(json.dumps(facts))
    with pytest.raises(CheckpointError):
        FittedSurrogate.load(tmp_path / "s")
