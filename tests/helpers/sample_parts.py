"""Small samples in parts, made by untrained models."""

import hashlib
from pathlib import Path

from layerdag.sampling.parts import PartSettings, write_parts
from layerdag.sampling.settings import GenerationSettings
from layerdag.training.checkpoint import LoadedCheckpoint

TEN = GenerationSettings(num=10, seed=7, best_of=1, max_nodes=8, batch_size=4)


def written(
    checkpoint: LoadedCheckpoint,
    out: Path,
    file_format: str = "tar",
    settings: GenerationSettings = TEN,
    **parts,
) -> Path:
    """Write samples in parts of four and return their folder."""
    how = PartSettings(**{"file_format": file_format, "part_size": 4, **parts})
    write_parts(checkpoint, settings, out, how)
    return out


def contents(folder: Path) -> dict[str, str]:
    """Return a hash of every file below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(f.relative_to(folder)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
