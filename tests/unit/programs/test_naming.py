"""Which expression names a size."""

import pytest
import torch
from small_programs import images, language
from torch import Tensor, nn

from layerdag.errors import DataError
from layerdag.programs.execution import run_fake
from layerdag.programs.naming import program_of
from layerdag.programs.recording import record
from layerdag.programs.sources import program


def shapes(results: list[object]) -> list[tuple[int, ...]]:
    return [tuple(result.shape) for result in results if isinstance(result, Tensor)]


@pytest.mark.parametrize(("batch", "length"), [(4, 6), (8, 8), (24, 6)])
def test_a_resized_program_has_the_shapes_of_the_model_of_that_size(batch, length):
    """Also where the batch is the length (8) or the width (24) of what was recorded."""
    found = program(*language(batch, length)).resize(B0=10, n0=5, r0=50)
    again = program(*language(10, 5, rows=50))
    assert shapes(run_fake(found)) == shapes(run_fake(again))


def test_two_widths_of_one_model_tell_sizes_apart():
    """In the first model the rows are four times the width, by chance."""
    models = [language(rows=96, width=24), language(rows=90, width=40)]
    found = program([m for m, _ in models], [i for _, i in models])
    assert (found.sizes["w0"], found.sizes["r0"]) == (24, 96)
    other = program(*language(rows=70, width=32))
    assert shapes(run_fake(found.resize(w0=32, r0=70))) == shapes(run_fake(other))


def test_convolutions_name_channels_and_groups():
    found = program(*images()).resize(B0=2, n0=20)
    again = program(*images(2, 20))
    assert shapes(run_fake(found)) == shapes(run_fake(again))
    assert found.sizes["w0"] == 12


def test_models_of_different_structure_are_refused():
    models = [language(layers=1), language(layers=2)]
    with pytest.raises(DataError, match="another size makes other calls"):
        program([m for m, _ in models], [i for _, i in models])


def test_one_recording_is_tried_at_other_batches():
    """The width is the batch, and only trying shows which of them a view names."""

    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x).reshape(x.shape[0] * 2, 3).reshape(-1, 6).sum()

    alone = program_of([record(Flat(), [torch.randn(6, 6)])])
    assert alone.sizes["B0"] == 6
    assert shapes(run_fake(alone.resize(B0=9)))[-2] == (9, 6)


def test_a_tied_weight_is_one_node():
    found = program(*language())
    weights = [node for node in found.nodes if node.operator == "parameter"]
    assert [node.names for node in weights] == [("token.weight",)]
    readers = [n.operator for n in found.nodes if found.nodes.index(weights[0]) in n.inputs]
    assert readers == ["aten.embedding.default", "aten.linear.default"]


class Experts(nn.Module):
    """Tokens on experts of a fixed capacity; the number of experts is a part of the code."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.router, self.heads = nn.Linear(width, 4, bias=False), heads

    def forward(self, x: Tensor) -> Tensor:
        half = torch.arange(x.shape[-1] // self.heads // 2)
        slots = torch.arange(x.shape[0] * x.shape[1] // 2)
        parts = [part.sum() for part in self.router(x).unbind(-1)]
        return torch.stack(parts).sum() + half.sum() + slots.sum()


def test_sizes_that_follow_from_two_entries_are_expressions_of_both():
    sizes = [(4, 6, 24, 2), (10, 8, 40, 4)]
    models = [Experts(width, heads) for _, _, width, heads in sizes]
    found = program(models, [[torch.zeros(b, t, w)] for b, t, w, _ in sizes])
    assert "B0*n0*1/2" in {size for node in found.nodes for size in node.slots}
    again = program(Experts(24, 2), [torch.zeros(2, 10, 24)])
    assert shapes(run_fake(found.resize(B0=2, n0=10))) == shapes(run_fake(again))


def test_what_no_model_of_several_varies_is_structure():
    """Four experts are four results of unbind; no table can make them five."""
    sizes = [(4, 6, 24, 2), (10, 8, 40, 4)]
    models = [Experts(width, heads) for _, _, width, heads in sizes]
    found = program(models, [[torch.zeros(b, t, w)] for b, t, w, _ in sizes])
    router = next(node for node in found.nodes if node.operator == "aten.linear.default")
    assert router.leaves[0].shape == (4, "a0.-1")
    assert 4 not in {n for name, n in found.sizes.items() if name != "B0"}
