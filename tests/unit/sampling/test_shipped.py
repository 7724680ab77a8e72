"""The checkpoint of LLM training steps that ships with the package."""

import pytest

import layerdag as ld
from layerdag.errors import VocabularyError
from layerdag.sampling import pretrained_checkpoint

ASKED = {
    "family": "llama3", "hidden": 4096.0, "sequence": 2048.0, "micro_batch_size": 1.0,
    "tensor": "2", "pipeline": "1", "data": "2", "micro_batches": "1", "zero": "0",
    "sequence_parallel": "no", "recompute": "none",
}  # fmt: skip


def test_it_is_small_enough_to_ship() -> None:
    files = [*pretrained_checkpoint("llm").iterdir()]
    assert sum(path.stat().st_size for path in files) <= 5_000_000


@pytest.mark.parametrize("layers", [12.0, 40.0])
def test_a_step_has_the_layers_and_the_ranks_that_were_asked_for(layers: float) -> None:
    (sample,) = ld.sample(
        "llm", num=1, conditions={**ASKED, "layers": layers}, temperature=0.1, best_of=1
    )
    workload = sample.workload()
    assert workload.num_ranks == 4
    names = workload.traces[0].names()
    assert names.count("attention.F") == layers
    real = ld.workload(
        "llama3-8b",
        tensor=2,
        data=2,
        sequence=2048,
    ).traces[0]  # of 32 layers; every layer has the same products
    wanted, _ = real.integers("num_ops")
    found, _ = workload.traces[0].integers("num_ops")
    core = int(wanted[real.names().index("attention.0.F0")])
    assert int(found[names.index("attention.F")]) == pytest.approx(core, rel=0.02)


def test_a_request_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(VocabularyError, match="world_size = tensor x pipeline x data"):
        ld.sample("llm", num=1, conditions={**ASKED, "world_size": "64"}, best_of=1)
