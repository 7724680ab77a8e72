"""``program``: from a module, or from a file, to its program."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from layerdag.codec.recognition import suffix_of
from layerdag.errors import LayerdagError, UsageError
from layerdag.programs.forward_program import Program
from layerdag.programs.host_traces import recording_of_host_trace, recording_of_trace
from layerdag.programs.naming import program_of
from layerdag.programs.recording import Recording, other_sizes, record, same_structure
from layerdag.traces.pytorch.ranks import PyTorchFile, pytorch_format

_PROGRAM = (".program.json", ".program.json.gz", ".program.json.xz")


def program(
    source: nn.Module | Sequence[nn.Module] | str | Path,
    inputs: Sequence[Any] = (),
    *,
    loss: Callable[[Any], Tensor] | None = None,
    name: str | None = None,
) -> Program:
    """Return the forward program of a module, of a trace, or of a program file.

    A module on a processor is run once, really, for each size that is tried; its weights, buffers
    and random numbers stay as they were. Sizes are named by comparing what it calls for a larger
    batch and for shorter inputs. Several modules are one model at several widths, which
    distinguishes widths that are equal by chance.

    Args:
        source: A module, several of one structure, a host trace of PyTorch
            (``ExecutionTraceObserver``), a Chakra trace that keeps the arguments of its calls (as
            ``layerdag collect`` and ``convert`` write it), or a ``.program.json``.
        inputs: What the module is called with; for several modules one such list for each.
        loss: Scalar of the module's output; by default the output itself.
        name: Of the program; the module's class or the file's name by default.

    Raises:
        UsageError: If tensors are not on a CPU, shapes depend on data, or an own
            ``autograd.Function`` hides operators, or a module cannot be run on its inputs.
        DataError: If a file holds no program.

    Example:
        >>> import torch, layerdag as ld
        >>> model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU())
        >>> ld.program(model, [torch.zeros(4, 8)], loss=torch.sum)
        Program('Sequential', 3 calls, B0=4, n0=8, w0=32)
    """
    if isinstance(source, str | Path):
        path = Path(source)
        if suffix_of(path) == ".et":
            found = program_of([recording_of_trace(path)])
        elif not path.name.endswith(_PROGRAM) and pytorch_format(path) is PyTorchFile.HOST:
            found = program_of([recording_of_host_trace(path)])
        else:
            found = Program.load(path)
        return found if name is None else replace(found, name=name)
    if isinstance(source, nn.Module):
        first = _recorded(source, inputs, loss, name)
        others = other_sizes(source, inputs, loss)
        return program_of([first, *(other for other in others if same_structure(first, other))])
    modules = list(source)
    if not modules or len(modules) != len(inputs):
        raise UsageError(
            f"{len(modules)} modules and {len(inputs)} lists of inputs are given; give one list of "
            "inputs for each module."
        )
    recordings = [_recorded(m, i, loss, name) for m, i in zip(modules, inputs, strict=True)]
    again = other_sizes(modules[0], inputs[0], loss)
    return program_of([*recordings, *(o for o in again if same_structure(recordings[0], o))])


def _recorded(
    module: nn.Module,
    inputs: Sequence[Any],
    loss: Callable[[Any], Tensor] | None,
    name: str | None,
) -> Recording:
    try:
        return record(module, inputs, loss, name)
    except LayerdagError:
        raise
    except Exception as error:  # a module's own refusals are of many classes
        raise UsageError(
            f"{name or type(module).__name__} cannot be run on its inputs: "
            f"{type(error).__name__}: {error}; give the inputs that the module takes."
        ) from error
