"""When drawing ends, what a second run takes up, and what the counts say."""

import json
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from traced_jobs import invented, write_jobs

from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.discovery import FoundJobs
from layerdag.errors import UsageError
from layerdag.publication import drawing as _draw
from layerdag.publication.cross_fitting import dataset_of
from layerdag.publication.drawing import KEPT, AcceptedSamples, draw_samples
from layerdag.publication.settings import ReleaseSettings, read_jobs
from layerdag.publication.workspace import DRAWN, HASHES, PrivateWorkspace
from layerdag.sampling.generated import GeneratedGraph
from layerdag.sampling.settings import GenerationSettings
from layerdag.schema.schema import GraphSchema

Real = tuple[ReleaseSettings, FoundJobs, GraphDataset]
COPY = "copy of a real graph"


class Model:
    """Stands in for a model, and notes each batch that it is asked for."""

    def __init__(self, *, copies: GraphDataset | None = None, labels: bool = True) -> None:
        self.asked: list[GenerationSettings] = []
        self.copies, self.labels = copies, labels

    def generate(
        self, model: object, schema: GraphSchema, settings: GenerationSettings
    ) -> Iterator[GeneratedGraph]:
        if settings.labels == "predicted" and not self.labels:
            raise UsageError("There is no label to predict.")
        self.asked.append(settings)
        for sample in invented(model, schema, settings):
            train = self.copies.graphs["train"] if self.copies else ()
            yield replace(sample, dag=train[0]) if train else sample


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> Real:
    folder = tmp_path_factory.mktemp("draw")
    settings = ReleaseSettings(write_jobs(folder / "traces", 12), folder / "out", num=3, seed=40)
    jobs = read_jobs(settings)
    return settings, jobs, dataset_of(jobs, 0)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch) -> None:
    monkeypatch.setattr(_draw, "BATCH", 4)


@pytest.fixture
def work(tmp_path) -> PrivateWorkspace:
    return PrivateWorkspace(tmp_path, {}, is_resumed=False)


def draw(
    real: Real, work: PrivateWorkspace, model: Model, seconds: float = 60.0, **settings: Any
) -> AcceptedSamples:
    """Draw with a stand-in for the model."""
    checkpoint: Any = SimpleNamespace(model=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_draw, "generate", model.generate)
        asked = replace(real[0], **settings)
        return draw_samples(asked, real[1], real[2], checkpoint, work, seconds)


def drawn(*outcomes: str) -> AcceptedSamples:
    samples: Any = tuple(SimpleNamespace(name=f"s{i}") for i in range(len(outcomes)))
    return AcceptedSamples(samples, outcomes, 0, 0.5, 1.0)


def test_what_is_kept_comes_in_order_and_no_more_than_asked_for():
    found = drawn(KEPT, COPY, KEPT, "breaks a rule on graphs", KEPT)
    assert [sample.name for sample in found.kept()] == ["s0", "s2", "s4"]
    assert [sample.name for sample in found.kept(2)] == ["s0", "s2"]
    assert found.kept(9) == found.kept()


def test_samples_with_copies_leave_out_what_is_wrong_for_another_reason():
    found = drawn(KEPT, COPY, "cut off at the largest size", "breaks a rule on traces", KEPT)
    assert [sample.name for sample in found.with_copies] == ["s0", "s1", "s4"]


def test_the_price_counts_all_that_was_drawn():
    assert drawn(KEPT, COPY, COPY, KEPT, COPY).price == 2.5
    assert drawn(KEPT).price == 1.0
    assert drawn(COPY, COPY).price is None
    assert drawn().price is None


def test_drawing_ends_with_the_batch_in_which_enough_are_kept(real, work):
    model = Model()
    found = draw(real, work, model, num=3)
    assert len(found.kept()) >= 3
    assert len(found.samples) == 4 * len(model.asked)
    before_last = found.outcomes[:-4]
    assert before_last.count(KEPT) < 3


def test_each_batch_has_seeds_of_its_own(real, work):
    """Batch k begins at seed + 4 k, so that no two samples of a release share a seed."""
    model = Model()
    found = draw(real, work, model, num=9)
    assert [plan.seed for plan in model.asked] == [40 + 4 * k for k in range(len(model.asked))]
    seeds = [sample.seed for sample in found.samples]
    assert len(set(seeds)) == len(seeds)
    assert len(model.asked) >= 3


def test_settings_reach_the_model(real, work):
    model = Model()
    draw(real, work, model, temperature=0.5, max_nodes=77)
    plan = model.asked[0]
    assert (plan.num, plan.batch_size, plan.temperature, plan.max_nodes) == (4, 4, 0.5, 77)
    assert plan.labels == "predicted"


def test_a_model_without_labels_is_sampled_without(real, work):
    model = Model(labels=False)
    found = draw(real, work, model)
    assert len(found.kept()) >= 3
    assert all(plan.labels != "predicted" for plan in model.asked)


def test_without_a_single_sample_that_is_kept_drawing_ends_after_four_batches(real, work):
    model = Model(copies=real[2])
    found = draw(real, work, model, num=100)
    assert len(model.asked) == 4
    assert found.counts() == {COPY: 16}


def test_where_time_is_up_at_once_one_batch_is_drawn_nevertheless(real, work):
    model = Model()
    found = draw(real, work, model, seconds=0.0, num=50)
    assert len(model.asked) == 1
    assert len(found.samples) == 4


def test_a_batch_is_cut_where_the_next_samples_would_end_too_late(real, work, monkeypatch):
    """A clock on which a sample takes ten seconds: of a batch of 32 ten are drawn in 105."""
    now = [0.0]

    class Slow(Model):
        def generate(self, *args: Any) -> Iterator[GeneratedGraph]:
            now[0] += 10.0 * args[2].num
            yield from super().generate(*args)

    monkeypatch.setattr(_draw, "BATCH", 32)
    monkeypatch.setattr(_draw, "time", SimpleNamespace(monotonic=lambda: now[0]))
    cut = draw(real, work, Slow(), seconds=105.0, num=50)
    assert (len(cut.samples), now[0]) == (10, 100.0)
    whole = draw(real, work, Model(), num=51)
    seeds = [s.seed % 10_000 for s in whole.samples[:32]]
    assert seeds == list(range(40, 72))
    assert whole.outcomes[:10] == cut.outcomes


def test_a_second_run_reads_what_the_first_has_drawn(real, work):
    first = draw(real, work, Model())
    idle = Model()
    second = draw(real, work, idle)
    assert idle.asked == []
    assert second.outcomes == first.outcomes
    assert [s.seed for s in second.samples] == [s.seed for s in first.samples]


def test_a_run_that_ran_out_of_time_ends_there_again(real, work):
    first = draw(real, work, Model(), seconds=0.0, num=50)
    idle = Model()
    second = draw(real, work, idle, seconds=60.0, num=50)
    assert idle.asked == []
    assert second.outcomes == first.outcomes


def test_who_asks_for_more_gets_more_after_the_old_ones(real, work):
    first = draw(real, work, Model(), num=3)
    more = Model()
    second = draw(real, work, more, num=3 + len(first.kept()))
    assert len(more.asked) >= 1
    assert more.asked[0].seed == 40 + len(first.samples)
    assert second.outcomes[: len(first.outcomes)] == first.outcomes


def test_a_damaged_batch_alone_is_drawn_again(real, work):
    first = draw(real, work, Model(), num=9)
    file = work.path / DRAWN / "00001.npz"
    file.write_bytes(file.read_bytes()[:100])
    again = Model()
    second = draw(real, work, again, num=9)
    assert [plan.seed for plan in again.asked] == [44]
    assert second.outcomes == first.outcomes


def test_another_temperature_discards_what_was_drawn(real, work):
    draw(real, work, Model(), num=9, temperature=0.5)
    warmer = Model()
    draw(real, work, warmer, num=3, temperature=0.9)
    assert warmer.asked[0].temperature == 0.9
    assert warmer.asked[0].seed == 40
    assert len(list((work.path / DRAWN).glob("*.npz"))) == len(warmer.asked)


def test_the_owner_gets_the_hashes_of_real_graphs_and_a_note(real, work):
    found = draw(real, work, Model())
    hashes = json.loads((work.path / HASHES).read_text())
    assert hashes == sorted(set(hashes))
    assert hashes
    stage = dict(work.stages["sample"])
    assert stage.pop("seconds") >= 0
    assert stage == {
        "batches": len(found.samples) // 4, "num": 3, "drawn": len(found.samples),
    }  # fmt: skip
