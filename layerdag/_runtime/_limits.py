"""The most that may be written.

A job is written as one file per rank, and a checkpoint or trace from outside can state any number
of ranks that share one program.
"""

from dataclasses import dataclass

from layerdag.errors import UsageError

# Bytes of a node, measured on jobs of the corpus and samples of the pretrained checkpoint.
NODE_BYTES = {
    "param": 4_000,
    "et": 135,
    "graphml": 550,
    "json": 135,
    "feeder-json": 500,
    "parquet": 12,
}


@dataclass(frozen=True)
class Limits:
    """The most that may be written.

    Attributes:
        max_ranks: Ranks of a job, which are its files.
        max_bytes: Bytes of all files together, as estimated.

    Raises:
        UsageError: If one is below 1.
    """

    max_ranks: int = 4096
    max_bytes: int = 16_000_000_000

    def __post_init__(self) -> None:
        for name, value in (("max_ranks", self.max_ranks), ("max_bytes", self.max_bytes)):
            if value < 1:
                raise UsageError(f"'{name}' must be at least 1, found {value}.")


def written_bytes(nodes: int, file_format: str) -> int:
    """Return about how many bytes so many nodes take, those of all ranks together."""
    return nodes * NODE_BYTES[file_format]


def require_few_ranks(num_ranks: int, limits: Limits, what: str) -> None:
    """Refuse a job of more ranks than allowed, before it is unfolded.

    Raises:
        UsageError: Names the job and the setting.
    """
    if num_ranks > limits.max_ranks:
        raise UsageError(
            f"{what}: {num_ranks:,} ranks are more than max_ranks, {limits.max_ranks:,}; ask for "
            "fewer, or raise max_ranks."
        )


def require_few_bytes(num_bytes: int, limits: Limits, what: str) -> None:
    """Refuse to write more than allowed.

    Raises:
        UsageError: Names what was to be written and the setting.
    """
    if num_bytes > limits.max_bytes:
        raise UsageError(
            f"{what}: about {format_size(num_bytes)} are more than max_bytes, "
            f"{format_size(limits.max_bytes)}; ask for less, or raise max_bytes."
        )


def format_size(size: int) -> str:
    """Return a size in the unit that people use for it."""
    for factor, unit in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB")):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size / 1000:,.1f} kB"
