"""The stand-ins for PyTorch's symbolic shapes: for numbers they answer as the real module does."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given, strategies as st
from torch.fx.experimental import symbolic_shapes as real

from layerdag.cli import symbolic_shapes as stand_in

SIZES = st.lists(st.integers(0, 3), max_size=3)
TRUTHS = st.booleans()


@given(TRUTHS)
def test_truth_values_are_their_own_answer(asked):
    for name in ("guard_or_false", "guard_or_true", "expect_true", "statically_known_true"):
        assert stand_in._KNOWN[name](asked) is getattr(real, name)(asked) is asked


@given(st.lists(TRUTHS, min_size=1, max_size=4))
def test_truth_values_are_joined_alike(asked):
    for name in ("sym_and", "sym_or"):
        assert stand_in._KNOWN[name](*asked) is getattr(real, name)(*asked)


@given(SIZES, SIZES, st.integers(0, 3), st.integers(0, 3))
def test_sizes_are_equal_alike(one, other, first, second):
    for pair in ((first, second), (one, other), (tuple(one), other), (torch.Size(one), one)):
        assert stand_in._KNOWN["sym_eq"](*pair) is real.sym_eq(*pair)


@pytest.mark.parametrize("asked", [0, 3, True, 2.5])
def test_numbers_are_known_alike(asked):
    for name in ("has_guarding_hint", "is_nested_int", "has_free_symbols"):
        assert stand_in._KNOWN[name](asked) is getattr(real, name)(asked)
    kind = f"is_concrete_{type(asked).__name__}"
    assert stand_in._KNOWN[kind](asked) is getattr(real, kind)(asked)


@pytest.mark.parametrize("name", ["guarding_hint_or_throw", "optimization_hint"])
def test_a_whole_number_is_its_own_hint(name):
    assert stand_in._KNOWN[name](3) == getattr(real, name)(3) == 3


@pytest.mark.parametrize("asked", [None, 3, [1, (2, 3)], torch.zeros(2, 3)])
def test_numbers_hold_no_symbols(asked):
    for name in ("free_symbols", "free_unbacked_symbols"):
        assert stand_in._KNOWN[name](asked) == getattr(real, name)(asked) == set()
    for name in ("_iterate_exprs", "_iterate_nodes"):
        assert list(stand_in._KNOWN[name](asked)) == list(getattr(real, name)(asked)) == []
    assert stand_in._KNOWN["compute_unbacked_bindings"](None, asked) is None


def test_what_the_real_module_refuses_is_refused():
    for name in ("guard_or_false", "expect_true", "guarding_hint_or_throw", "optimization_hint",
                 "is_concrete_int", "is_concrete_bool"):  # fmt: skip
        for function in (stand_in._KNOWN[name], getattr(real, name)):
            with pytest.raises(AssertionError):
                function("three")
    for function in (stand_in._KNOWN["sym_eq"], real.sym_eq):
        with pytest.raises(AssertionError):
            function("three", 3)
    for function in (stand_in._KNOWN["sym_and"], real.sym_and):
        with pytest.raises(TypeError):
            function()


SCRIPT = """\
import sys
import torch
from layerdag.cli.compiler import postpone_compiler

postpone_compiler()
from torch.fx.experimental.symbolic_shapes import guard_or_false as before
from torch.utils._sympy.functions import Max
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode():
    made = torch.nn.functional.layer_norm(torch.ones(2, 3).relu() + torch.arange(3), (3,))
    made.to(torch.bfloat16).softmax(-1)
print(made.shape, "sympy.core" in sys.modules)
if sys.argv[1] == "symbols":
    import torch.fx.experimental.symbolic_shapes
    from torch.fx.experimental.symbolic_shapes import guard_or_true
    size = torch.fx.experimental.symbolic_shapes.ShapeEnv().create_unbacked_symint()
    print(before(size == 3), guard_or_true(size == 3), Max(2, 3) == 3)
else:
    import sympy.core.numbers
    print(sympy.core.numbers.Integer(3) + sympy.Symbol("x"), sympy is sys.modules["sympy"],
          sympy.core.__spec__.origin == sympy.core.__file__)
"""


@pytest.mark.parametrize(
    ("asked", "told"), [("symbols", "False True True"), ("algebra", "x + 3 True True")]
)
def test_whoever_asks_for_symbols_gets_the_real_modules(asked, told):
    words = [sys.executable, "-c", SCRIPT, asked]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["torch.Size([2, 3]) False", told], done.stderr
