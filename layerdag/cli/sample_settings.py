"""What ``layerdag sample`` was asked to do as one tree of dataclasses, from the composed YAML.

Beside ``layerdag.cli.settings``, because sampling takes seconds to import and training needs none.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from layerdag.cli.compose import to_plain_dict
from layerdag.errors import UsageError
from layerdag.graph.attributed_graph import LABEL
from layerdag.programs.targets import Targets
from layerdag.runtime.reading import Limits
from layerdag.runtime.settings import build_settings
from layerdag.samples.manifest import PART_FORMATS
from layerdag.sampling.parts import PartSettings
from layerdag.sampling.settings import GenerationSettings


@dataclass(frozen=True, kw_only=True)
class SampleCommand:
    """Everything that ``layerdag sample`` was asked to do; ``parts`` is None for whole samples."""

    generation: GenerationSettings
    parts: PartSettings | None
    checkpoint: str = "programs"
    out: Path
    overwrite: bool = False
    format: str = "auto"
    device: str = "auto"
    threads: int = 1
    dry_run: bool = False


def sample_config(config: DictConfig) -> SampleCommand:
    """Return the tree of a composed ``sample.yaml``, whose keys all stand at the top.

    Raises:
        ConfigError: If a setting is unknown or of another type.
        UsageError: If a value is out of bounds, or of parts and another format is asked for.
    """
    plain = to_plain_dict(config)
    own, parts = _taken(plain, SampleCommand), _taken(plain, PartSettings)
    return build_settings(
        SampleCommand,
        {**own, "parts": _parts(own["format"], parts), "generation": _generation(plain)},
    )


def _taken(plain: dict[str, Any], cls: type[Any]) -> dict[str, Any]:
    return {each.name: plain.pop(each.name) for each in fields(cls) if each.name in plain}


def _generation(plain: dict[str, Any]) -> GenerationSettings:
    limits = build_settings(Limits, _taken(plain, Limits))
    label = plain.pop("label")
    conditions = plain["conditions"] if label is None else {**plain["conditions"], LABEL: label}
    wanted, degrees = (
        {name: value for name, value in plain.pop(group).items() if value is not None}
        for group in ("wanted", "plan")
    )
    targets = None  # of programs
    if wanted or degrees:
        targets = build_settings(Targets, {**wanted, "plan": degrees}, "wanted")
    return build_settings(
        GenerationSettings,
        {**plain, "conditions": conditions, "targets": targets, "limits": limits},
    )


def _parts(file_format: object, settings: dict[str, Any]) -> PartSettings | None:
    """Return how samples are cut into parts; None for a file or folder of each."""
    if file_format in PART_FORMATS:
        return build_settings(PartSettings, {"file_format": file_format, **settings})
    usual, found = PartSettings(), build_settings(PartSettings, settings)
    for name in settings:
        value = getattr(found, name)
        if value != getattr(usual, name):
            raise UsageError(
                f"{name}={value} is of samples in parts; ask for format=tar or format=parquet, "
                "or leave it out."
            )
    return None
