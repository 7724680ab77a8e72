"""layerdag: generate, evaluate and use synthetic execution traces and flow graphs.

The names below are the ones most programs need; they are imported when they are first used, so that
``import layerdag`` costs nothing and reading a trace never waits for torch.
"""

import importlib

import lazy_loader

_find, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

_ROOMS = (
    "datasets", "evaluation", "models", "sampling", "serving", "simulator", "surrogates",
    "training",
)  # fmt: skip
_GUESSES = {
    "LayerDAG": "Generator, as in Generator.from_pretrained('corpus')",
    "Model": "Generator",
    "Dataset": "GraphDataset",
    "evaluate": "compare",
    "fit": "train",
    "load": "load_checkpoint or load_dataset",
    "load_data": "load_dataset",
    "load_model": "load_checkpoint",
}
"""Names that other libraries have, and what is meant here."""


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _GUESSES:
        from layerdag.errors import WrongNameError

        raise WrongNameError(f"There is no layerdag.{name}; use layerdag.{_GUESSES[name]}.")
    return _find(name)
