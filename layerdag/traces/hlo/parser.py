"""Parse StableHLO and HLO text through jaxlib."""

import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerdag.errors import DataError
from layerdag.runtime.reading import read_whole
from layerdag.traces.hlo.hlo_text import in_other_words, needs_words, refuse_deep_nesting, spelled
from layerdag.traces.hlo.program import CompiledProgram
from layerdag.traces.hlo.walk import Walk

MAX_TEXT_BYTES = 256 << 20
_MLIR = re.compile(rb'\s*(?:(?://|#)[^\n]*\s*)*(?:module\b|func\.func\b|"builtin\.module")')
_HLO = re.compile(rb"\s*(?://[^\n]*\s*)*HloModule\b")
_DIALECTS = ("stablehlo", "sdy", "mhlo")
_COUNT = re.compile(r"\b(num_partitions|replica_count|num_replicas)=(\d+)")


def begins_program(data: bytes) -> bool:
    """Return whether a file that begins so holds StableHLO (MLIR) or HLO text."""
    start = data[: 1 << 16]
    return bool(_MLIR.match(start) or _HLO.match(start))


def read_program(path: str | Path) -> CompiledProgram:
    """Read a StableHLO module or an HLO module as text.

    HLO may be partitioned already (the output of XLA's SPMD pass); its three notations of replica
    groups and its fusions and loops are understood. Loops are unrolled.

    Raises:
        DataError: If the file is none, jaxlib is missing, the text cannot be parsed, a shape is
            dynamic, the trip count of a loop does not follow from constants, or the program has
            too many operations when it is unrolled.
    """
    data = read_whole(path, MAX_TEXT_BYTES)
    refuse_deep_nesting(data, str(path))
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise DataError(f"{path}: is no UTF-8 text; give StableHLO or HLO as text.") from None
    counts: dict[str, int] = {}
    if _HLO.match(data):
        counts = {name: int(number) for name, number in _COUNT.findall(text.partition("\n")[0])}
        text = _stablehlo(text, str(path))
    elif not _MLIR.match(data):
        raise DataError(f"{path}: begins like neither a StableHLO module nor an HLO module.")
    module = _parsed(text, str(path))
    try:
        return Walk(module, Path(path).name, counts).program()
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        # The parser takes operations of unknown dialects that are named as those of StableHLO.
        reason = " ".join(str(error).split())
        raise DataError(
            f"{path}: holds an operation without what StableHLO demands of it ({reason:.200})."
        ) from None


@dataclass(frozen=True)
class _Bindings:
    """Modules of jaxlib; all of them are typed as little as jaxlib is.

    Attributes:
        ir: MLIR.
        dialects: Those that need a class each, and those that XLA registers together.
        hlo: HLO modules.
        jax: Their conversion.
    """

    ir: Any
    dialects: tuple[Any, Any, Any, Any]
    hlo: Any
    jax: Any


def _jaxlib() -> _Bindings:
    """Return the bindings that are needed.

    Raises:
        DataError: If jaxlib is not there, or another one than the extra asks for.
    """
    try:
        named = [importlib.import_module(f"jaxlib.mlir.dialects.{n}") for n in _DIALECTS]
        together = importlib.import_module("jaxlib.mlir._mlir_libs._jax_mlir_ext")
        ir, hlo, jax = (importlib.import_module(f"jaxlib.{n}") for n in ("mlir.ir", "_hlo", "_jax"))
    except ImportError as error:
        raise DataError(
            "StableHLO and HLO are parsed by jaxlib, which is missing or of another version "
            f"({error}); install it with: pip install 'layerdag[hlo]'."
        ) from None
    stablehlo, sdy, mhlo = named
    return _Bindings(ir, (together, stablehlo, sdy, mhlo), hlo, jax)


def _parsed(text: str, source: str) -> Any:
    """Return the module.

    Raises:
        DataError: If it cannot be parsed, with the first message of the parser.
    """
    found = _jaxlib()
    ir = found.ir
    together, stablehlo, sdy, mhlo = found.dialects
    context = ir.Context()
    registry = ir.DialectRegistry()
    together.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    stablehlo.register_dialect(context)
    sdy.register_dialect(context)
    mhlo.register_mhlo_dialect(context)
    context.allow_unregistered_dialects = True
    try:
        return ir.Module.parse(text, context=context)
    except (ir.MLIRError, ValueError) as error:
        lines = [line for line in str(error).splitlines() if "error:" in line]
        reason = (lines or [str(error)])[0].replace('error: "-":', "line ").strip()
        raise DataError(f"{source}: cannot be parsed as StableHLO ({reason:.300}).") from None


def _stablehlo(text: str, source: str) -> str:
    """Return an HLO module as StableHLO."""
    found = _jaxlib()
    try:
        module = found.hlo.hlo_module_from_text(spelled(text))
        shapes = found.hlo.HloPrintOptions()
        shapes.print_operand_shape, shapes.print_metadata = True, False
        printed = module.to_string(shapes) if needs_words(text) else ""
        if printed:
            module = found.hlo.hlo_module_from_text(in_other_words(printed))
        computation = found.hlo.XlaComputation(module.as_serialized_hlo_module_proto())
        converted = found.jax.mlir.xla_computation_to_mlir_module(computation)
    except Exception as error:  # XLA's errors have types of several modules
        reason = " ".join(str(error).split())
        raise DataError(f"{source}: cannot be parsed as HLO ({reason:.300}).") from None
    return str(converted)
