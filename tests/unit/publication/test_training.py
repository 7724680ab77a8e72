"""Public graphs beside samples: as many of each, in the words of the samples."""

from dataclasses import replace

import pytest
import torch
from raw_graphs import chain
from traced_jobs import write_jobs

from layerdag.datasets.dataset import GraphDataset
from layerdag.errors import DataError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.publication import training as recipe, weights_audit as _shadows
from layerdag.publication.settings import STUDENT, TRAINING
from layerdag.publication.training import (
    public_graphs,
    run_of,
    start_model,
    start_of,
    student_data,
    train_or_resume,
    train_student,
    train_teacher,
    training_settings,
    with_public,
)
from layerdag.publication.weights_audit import shadow_losses
from layerdag.training.checkpoint import LOG, InitialWeights, Origin


@pytest.fixture
def samples(kept) -> GraphDataset:
    return student_data(kept, seed=0)


@pytest.fixture(scope="session")
def public() -> list[AttributedGraph]:
    return [chain(f"p{i:02d}", "abc" + "ab" * (i % 5), label=1.0) for i in range(17)]


def test_samples_are_repeated_until_they_are_as_many(samples, public):
    mixed = with_public(samples, public)
    assert len(samples.graphs["train"]) == 8
    assert len(mixed.graphs["train"]) == 2 * 8 + 17
    assert mixed.names["train"][-17:] == tuple(graph.name for graph in public)
    assert mixed.graphs["val"] is samples.graphs["val"]  # selection is by samples alone
    assert mixed.schema is samples.schema
    assert mixed.fingerprint != samples.fingerprint
    assert mixed.split == samples.split


def test_public_graphs_with_other_words_are_left_out(samples):
    strange = chain("strange", "xyz", label=1.0)
    assert with_public(samples, [strange]) is samples
    assert with_public(samples, []) is samples
    both = with_public(samples, [strange, chain("known", "abc", label=1.0)])
    assert both.names["train"][-1] == "known"


def test_of_a_large_folder_some_are_drawn(settings, tmp_path, monkeypatch):
    assert public_graphs(settings) == ()
    asked = replace(settings, public=write_jobs(tmp_path / "public", 6), max_nodes=2000)
    assert len(public_graphs(asked)) == 6
    monkeypatch.setattr(recipe, "MOST_PUBLIC", 2)
    names = [graph.name for graph in public_graphs(asked)]
    assert len(set(names)) == 2
    assert names == [graph.name for graph in public_graphs(asked)]


@pytest.mark.usefixtures("drawn")
def test_target_and_shadow_models_learn_them(settings, real, samples, public, work, monkeypatch):
    target = train_student(settings, samples, work, 60.0, public)
    assert target.meta.data_fingerprint == with_public(samples, public).fingerprint
    learned: list[int] = []

    def noted(samples: GraphDataset, public: list[AttributedGraph]) -> GraphDataset:
        learned.append(len(public))
        return with_public(samples, public)

    monkeypatch.setattr(_shadows, "with_public", noted)
    beside = replace(real, public=tuple(public))
    shadow_losses(settings, beside, target, samples, work, 60.0)
    assert learned == [17] * (1 + settings.shadows)


START = InitialWeights({}, Origin("pretrained", "f", 5, "d"))


def test_a_warm_start_is_tuned_shortly_and_gently(settings):
    tuned, fresh = (training_settings(settings, 0.2, start) for start in (START, None))
    assert (tuned.max_steps, fresh.max_steps) == (1, 10)
    assert tuned.optimizer.learning_rate < fresh.optimizer.learning_rate
    assert tuned.patience < fresh.patience
    assert tuned.max_seconds == fresh.max_seconds == 1.0  # never none
    assert tuned.seed == 3


def test_flow_graphs_start_from_random_weights(settings, data, work):
    run = run_of(settings, data, work.path / "student")
    assert run.start is None
    assert start_of(run) == "random weights"
    assert run.split == data.split
    given = run_of(settings, data, work.path / "student", run.spec)
    assert given.spec is run.spec


def test_the_start_of_a_run_has_its_first_weights(settings, data, work):
    run = run_of(settings, data, work.path / "student")
    random = start_model(run, 5)
    assert not random.training
    weights = {name: torch.zeros_like(value) for name, value in random.state_dict().items()}
    given = start_model(replace(run, start=replace(START, weights=weights)), 5)
    assert all(not value.any() for value in given.state_dict().values())
    again = start_model(run, 5).state_dict()
    assert all(again[name].equal(value) for name, value in random.state_dict().items())


def test_a_stopped_training_says_that_the_same_command_goes_on(settings, data, work, monkeypatch):
    run = run_of(settings, data, work.path / "student")
    stopped = replace(train_or_resume(run, settings, 60.0), reason="SIGTERM", step=3)
    monkeypatch.setattr(recipe, "train", lambda *_, **__: stopped)
    with pytest.raises(KeyboardInterrupt, match="stopped at step 3; the same command goes on"):
        train_or_resume(run, settings, 60.0)


def test_the_name_of_a_checkpoint_folder_stays_with_the_owner(settings, data, work, monkeypatch):
    jobs = data.replaced(schema=replace(data.schema, kind="trace"))

    class Warm:
        spec = run_of(settings, data, work.path / "student").spec
        start = replace(START, origin=replace(START.origin, name="acme-secret-base"))

    monkeypatch.setattr(recipe, "warm_start", lambda *_, **__: Warm)
    shipped = run_of(settings, jobs, work.path / "student")
    own = run_of(replace(settings, init="acme-secret-base"), jobs, work.path / "student")
    none = run_of(replace(settings, init=None), jobs, work.path / "student")
    assert start_of(shipped) == "acme-secret-base"  # what warm_start says of "pretrained"
    assert start_of(own) == "another checkpoint"
    assert none.start is None


def test_its_data_are_the_samples_with_a_schema_of_their_own(data, kept):
    samples = student_data(kept, seed=0)
    assert {name for part in samples.names.values() for name in part} == {s.name for s in kept}
    assert len(samples.graphs["val"]) == 2
    assert not samples.graphs["test"]
    table, real = samples.schema.condition_table, data.schema.condition_table
    assert repr(table) != repr(real)
    assert student_data(kept, seed=0).fingerprint == samples.fingerprint


def test_numbers_in_its_conditions_are_those_of_the_published_table(kept):
    exact = [replace(s, dag=s.dag.with_conditions({"label": 1.23456 + i}))
             for i, s in enumerate(kept)]  # fmt: skip
    samples = student_data(exact, seed=0)
    found = sorted(float(str(dag.conditions["label"])) for part in samples.graphs.values()
                   for dag in part)  # fmt: skip
    assert found == [float(f"{1.23456 + i:.3g}") for i in range(len(kept))]


def test_too_few_samples_are_refused_with_what_to_do(kept):
    with pytest.raises(DataError, match=r"7 samples are published.*at least 8; .*--num"):
        student_data(kept[:7], seed=0)


def test_it_is_trained_once_and_anew_for_other_samples(settings, kept, work, monkeypatch):
    samples = student_data(kept, seed=0)
    first = train_student(settings, samples, work, 60.0)
    assert work.stages["student"]["fingerprint"] == samples.fingerprint
    assert first.meta.data_fingerprint == samples.fingerprint
    other = student_data(kept[1:], seed=0)
    second = train_student(settings, other, work, 60.0)
    assert second.meta.data_fingerprint == other.fingerprint
    monkeypatch.setattr(recipe, "train", None)  # no call any more
    again = train_student(settings, other, work, 60.0)
    assert again.meta.data_fingerprint == other.fingerprint
    assert (work.path / STUDENT / "best").is_dir()


def test_a_finished_training_is_noted_and_not_repeated(settings, data, work, monkeypatch):
    first = train_teacher(settings, data, work, 60.0)
    noted = work.stages["train"]
    assert noted["steps"] == 2
    assert noted["start"] == "random weights"
    assert noted["fingerprint"] == data.fingerprint
    assert (settings.private / TRAINING / LOG).is_file()
    monkeypatch.setattr(recipe, "train", None)  # no call any more
    again = train_teacher(settings, data, work, 60.0)
    assert again.meta.step == first.meta.step
    for mine, theirs in zip(again.model.parameters(), first.model.parameters(), strict=True):
        assert mine.equal(theirs)


def test_a_run_that_was_stopped_is_gone_on_with(settings, data, work, monkeypatch):
    train_teacher(settings, data, work, 60.0)
    work.note("train", {"fingerprint": data.fingerprint})  # all that stands before the end
    resumed: list[object] = []
    train = recipe.train

    def spied(*arguments: object, **keywords: object) -> object:
        resumed.append(keywords["resume_from"])
        return train(*arguments, **keywords)

    monkeypatch.setattr(recipe, "train", spied)
    train_teacher(settings, data, work, 60.0)
    assert resumed == [settings.private / TRAINING / "last"]


def test_what_a_killed_run_left_is_discarded_if_it_cannot_be_used(settings, data, work):
    last = settings.private / TRAINING / "last"
    train_teacher(settings, data, work, 60.0)
    del work.stages["train"]
    next(last.glob("*.safetensors")).write_bytes(b"cut off")
    assert train_teacher(settings, data, work, 60.0).meta.step <= 10
    assert work.stages["train"]["steps"] == 2
