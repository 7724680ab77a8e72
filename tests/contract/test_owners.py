"""Each idea has one owner: no other file keeps a second table of it or defines its names again.

To give an idea an owner append a row to ``OWNERS``.
"""

import ast
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

import pytest
from imports import PACKAGE, dotted, sources

from layerdag.codec.formats import ENDINGS
from layerdag.hardware.collectives import COLLECTIVES
from layerdag.hardware.devices import ACCELERATORS
from layerdag.hardware.dtypes import SPELLINGS, WEIGHT_FORMATS
from layerdag.hardware.hlo_operators import HLO_OPERATORS
from layerdag.hardware.operators import OPERATORS


@dataclass(frozen=True)
class Owner:
    """An idea, where it lives, and what a second copy of it would look like.

    Attributes:
        idea: What is owned.
        file: The owner, below ``layerdag/``.
        words: Words that only a table of the idea lists together: a dict, set, tuple or list of
            three or more of them in another file is a second table. Words of everyday Python, such
            as "sum", are no evidence and are left out.
        names: Classes, functions and constants that no other file may define.
        allowed: Files that list some of the words for another purpose, and for which one.
    """

    idea: str
    file: str
    words: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()
    allowed: Mapping[str, str] = field(default_factory=dict)


OWNERS = (
    Owner(
        "dtypes",
        "hardware/dtypes.py",
        frozenset(
            word
            for word in (*SPELLINGS, *WEIGHT_FORMATS)
            if any(letter.isdigit() for letter in word)
        ),
        ("DType", "DTYPES", "find_dtype", "number_class", "item_bytes", "element_bytes"),
        {
            "capturing/fake_tensors.py": "dtypes whose tensors PyTorch cannot fake",
            "plan.py": "precisions of a recorded step",
            "traces/pytorch/operators.py": "dtypes of Python's numbers",
            "workloads/accuracy.py": "peak rates of a sheet by the format of products",
            "workloads/step_efficiency.py": "efficiency factors by the format of products",
            "workloads/transformer/step_time.py": "codes of formats of products",
        },
    ),
    Owner(
        "devices",
        "hardware/devices.py",
        frozenset(name for row in ACCELERATORS for name in row.names),
        ("ACCELERATORS", "DataSheet", "DATA_SHEETS", "COMPUTE_CAPABILITY", "data_sheet"),
    ),
    Owner(
        "operators",
        "hardware/operators.py",
        frozenset(name for name in OPERATORS if "_" in name or "mm" in name),
        (
            "OperatorKind",
            "find_operator",
            "base_name",
            "operator_kind",
            "operator_family",
        ),
        {
            "models/spec.py": "initializers of weights",
            "validation/operators.py": "kernels of optimizers by which parameters are counted",
            "validation/step_rules.py": "kernels of optimizers that a rule follows",
        },
    ),
    Owner(
        "collectives",
        "hardware/collectives.py",
        frozenset(
            word
            for row in COLLECTIVES
            for word in (row.name, row.kernel, row.hlo)
            if row.measured or "_" in word
        ),
        ("COLLECTIVES", "CollectiveType", "CommunicationOperator", "COMMUNICATION_OPERATORS"),
    ),
    Owner(
        "kernels",
        "hardware/kernels.py",
        names=(
            *("KERNEL_AXES", "KernelRoofline", "FittedKernels", "KernelTable"),
            *("kernel_work", "fitted_kernels", "fits_of", "installed_table"),
        ),
    ),
    Owner(
        "operations of StableHLO",
        "hardware/hlo_operators.py",
        frozenset(name for name in HLO_OPERATORS if "_" in name),
        ("HloKind", "HLO_OPERATORS", "LIBRARY_CALLS"),
    ),
    Owner(
        "plans",
        "plan.py",
        frozenset(
            (
                *("fsdp", "tensor", "pipeline", "zero", "sequence_parallel", "virtual_stages"),
                *("expert_tensor", "recompute", "bucket_bytes", "1f1b", "gpipe", "zb-h1"),
            )
        ),
        ("Plan", "Step", "StepSettings", "Precision", "SERVED_PRECISIONS"),
        {
            "report/exploration.py": "axes of heat maps",
            "workloads/measured_steps.py": "columns of a table",
        },
    ),
    Owner(
        "statistics",
        "statistics.py",
        names=(
            *("Interval", "bootstrap_weights", "weighted_mean", "pearson", "spearman", "kendall"),
            *("auroc", "resampled_wins", "SampleSizeRequirement", "chance_half_width"),
        ),
    ),
    Owner("attacks on samples", "privacy/membership_attacks.py", names=("Attack", "AttackPool")),
    Owner(
        "results of attacks",
        "privacy/membership.py",
        names=("AttackResult", "attack_by_scores", "detection_rates"),
    ),
    Owner("operators of a step", "capturing/recorder.py", names=("OperatorRecorder",)),
    Owner("pipeline stages of a program", "programs/stages.py", names=("stage_modules",)),
    Owner(
        "layers and micro-batches of pipeline stages",
        "workloads/transformer/schedule.py",
        names=("stage_tasks", "layers_of_stage", "layers_of_chunks"),
    ),
    Owner(
        "parameters shared by ranks", "capturing/parallel.py", names=("TensorPlan", "parallelize")
    ),
    Owner(
        "kinds of graphs",
        "kinds/registry.py",
        frozenset(("trace", "program", "flow")),
        ("graph_kind", "kind_of_graph"),
    ),
    Owner(
        "values that several programs share",
        "schema/shared_table.py",
        names=("SharedTable", "draw_value", "rounded_up"),
    ),
    Owner("file formats", "codec/formats.py", frozenset(ENDINGS), ("Format", "format_of_file")),
    Owner(
        "manifests of samples",
        "samples/manifest.py",
        names=("SampleRun", "PartIndex", "read_manifest", "sample_name"),
    ),
    Owner(
        "reading of samples",
        "samples/reader.py",
        names=("iter_samples", "part_samples", "count_samples"),
    ),
    Owner(
        "folders of samples while they are filled",
        "samples/writer.py",
        names=("SampleFolder", "open_sample_folder", "open_run"),
    ),
    Owner("tables of cells", "runtime/tables.py", names=("Table", "iter_lines")),
)


def elements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the keys or elements of a literal, those of starred tuples among them."""
    parts = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", ())
    for part in parts:
        if isinstance(part, ast.Starred):
            yield from elements(part.value)
        elif part is not None:
            yield part


def words_of(node: ast.AST) -> set[str]:
    """Return the words of a literal: "mm", "aten::mm", aten.mm.default, or a text of several."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return set(node.value.split())
    found: set[str] = set()
    for part in elements(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            found.update(part.value.split())
        while isinstance(part, ast.Attribute):
            found.add(part.attr)
            part = part.value
    return found


def docstrings(tree: ast.AST) -> set[int]:
    """Return the lines on which texts begin that nothing reads."""
    return {
        node.value.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


@cache
def literals(tree: ast.AST) -> list[tuple[int, set[str], bool]]:
    """Return the line and words of each literal of three or more words, and whether it is text."""
    found = []
    texts = docstrings(tree)
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and node.lineno in texts:
            continue
        if is_text or isinstance(node, ast.Dict | ast.Set | ast.Tuple | ast.List):
            listed = {word.rpartition("::")[2] for word in words_of(node)}
            if len(listed) >= 3:
                found.append((node.lineno, listed, is_text))
    return found


def second_tables(tree: ast.AST, words: frozenset[str]) -> list[tuple[int, list[str]]]:
    """Return the lines of literals that hold three or more of some words, and which."""
    found = []
    for line, listed, is_text in literals(tree):
        held = listed & words
        if len(held) >= 3 and not (is_text and len(held) < len(listed) / 2):  # a sentence
            found.append((line, sorted(held)))
    return found


def definitions(tree: ast.Module) -> set[str]:
    found = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        found.update(target.id for target in targets if isinstance(target, ast.Name))
    return found


@cache
def trees() -> Mapping[str, ast.Module]:
    files = {dotted(path): path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}
    return {files[name]: tree for name, tree in sources().items()}


@pytest.mark.parametrize("owner", OWNERS, ids=lambda owner: owner.idea)
def test_an_idea_has_one_table(owner):
    found = {
        file: tables
        for file, tree in trees().items()
        if file != owner.file and (tables := second_tables(tree, owner.words))
    }
    others = {file: tables for file, tables in found.items() if file not in owner.allowed}
    assert not others, f"consult layerdag/{owner.file}"
    assert set(owner.allowed) <= set(found), "remove what needs no exception any more"


@pytest.mark.parametrize("owner", OWNERS, ids=lambda owner: owner.idea)
def test_the_names_of_an_idea_are_defined_once(owner):
    for file, tree in trees().items():
        if file != owner.file:
            again = definitions(tree) & set(owner.names)
            assert not again, f"{file} defines {again} of {owner.file} again"


@pytest.mark.parametrize("owner", OWNERS, ids=lambda owner: owner.idea)
def test_an_owner_has_what_it_owns(owner):
    module = importlib.import_module(f"layerdag.{owner.file[:-3].replace('/', '.')}")
    kept = [name for name in owner.names if not hasattr(module, name)]
    assert set(kept) <= {"element_bytes"}, "names that no module has may not come back"


@pytest.mark.parametrize(
    "text",
    [
        'A = {"aten::addmm": 1, "bmm": 2, "mm": 3}',
        'A = frozenset((*("addmm", "bmm"), "mm"))',
        'A = """addmm bmm mm"""',
        "A = (aten.addmm.default, aten.bmm.default, aten.mm.out)",
    ],
)
def test_a_second_table_is_found_however_it_is_written(text):
    words = frozenset(("addmm", "bmm", "mm"))
    assert next(held for _, held in second_tables(ast.parse(text), words)) == sorted(words)
    assert not second_tables(ast.parse('A = ("mm", "bmm")\n"""addmm bmm mm"""'), words)
