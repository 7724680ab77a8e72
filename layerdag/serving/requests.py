"""Requests to a serving engine: when they come, how long they are, what they share.

They are made by a process (``Arrivals``) or read: from one's own CSV, and from published files.

Azure LLM inference (Patel et al. 2024): ``TIMESTAMP,ContextTokens,GeneratedTokens``. BurstGPT (Wang
et al. 2024): ``Timestamp``, ``Request tokens``, ``Response tokens``. Mooncake (Qin et al. 2024),
one JSON object a line: ``timestamp`` in ms, ``input_length``, ``output_length``, ``hash_ids`` of
blocks of 512 tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np

from layerdag.errors import ConfigError, DataError
from layerdag.runtime.json_shape import parse_json, plain_reason, require_shape
from layerdag.runtime.notes import Note, NoteCollector, NoteKind
from layerdag.runtime.reading import read_parsed
from layerdag.runtime.rng import numpy_generator
from layerdag.runtime.settings import did_you_mean
from layerdag.runtime.tables import numbers, read_table

MAX_REQUESTS = 10_000_000
MAX_TOKENS = 10_000_000
"""Longest prompt or answer."""


@dataclass(frozen=True, eq=False)
class Requests:
    """Requests in the order of their arrival.

    Attributes:
        arrival_s: Seconds since the start, ascending, float64 (N,).
        input_tokens: Tokens of the prompts, int64 (N,).
        output_tokens: Tokens of the answers, int64 (N,).
        hashes: Hashes of the prompt's blocks of ``hash_tokens`` tokens, from the first one on; two
            equal hashes are equal prefixes. Empty where nothing is known.
        hash_tokens: Tokens of such a block.

    Raises:
        ConfigError: If a length is not positive, a time is negative or out of order, or there is no
            request.
    """

    arrival_s: np.ndarray
    input_tokens: np.ndarray
    output_tokens: np.ndarray
    hashes: Sequence[Sequence[int]] = ()
    hash_tokens: int = 512

    def __post_init__(self) -> None:
        count = len(self.arrival_s)
        if not count or not len(self.input_tokens) == len(self.output_tokens) == count:
            raise ConfigError(
                f"requests: {count} arrivals, {len(self.input_tokens)} input and "
                f"{len(self.output_tokens)} output lengths; give at least one request, and one of "
                "each for every request."
            )
        if not (np.isfinite(self.arrival_s) & (self.arrival_s >= 0)).all():
            raise ConfigError("requests: arrivals must be seconds of at least 0.")
        if (np.diff(self.arrival_s) < 0).any():
            raise ConfigError("requests: arrivals must be in ascending order.")
        for name in ("input_tokens", "output_tokens"):
            lengths = getattr(self, name)
            if (lengths < 1).any():
                at = int(np.argmax(lengths < 1))
                raise ConfigError(
                    f"requests: request {at} has {name} {int(lengths[at])}; it must be at least 1."
                )
        if self.hashes and (len(self.hashes) != count or self.hash_tokens < 1):
            raise ConfigError(
                f"requests: {len(self.hashes)} lists of hashes of {self.hash_tokens} tokens for "
                f"{count} requests; give one list for each, and at least 1 token."
            )

    def __len__(self) -> int:
        return len(self.arrival_s)


@dataclass(frozen=True)
class _Form:
    arrival: str
    inputs: str
    outputs: str
    seconds: float = 1.0
    hashes: str = ""
    known: tuple[str, ...] = ()


_FORMS = (
    _Form("arrival_s", "input_tokens", "output_tokens", 1.0, "hash_ids"),
    _Form("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    _Form("Timestamp", "Request tokens", "Response tokens",
          known=("Model", "Total tokens", "Log Type", "Session ID", "Elapsed time")),
    _Form("timestamp", "input_length", "output_length", 1e-3, "hash_ids"),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class RequestFile:
    """Requests of a file, the first one at 0 s, with notes on what is not read or left out."""

    requests: Requests
    notes: tuple[Note, ...]


def read_requests(path: str | Path, most: int = 0, hash_tokens: int = 512) -> RequestFile:
    """Read requests from a CSV or JSONL file.

    Columns are ``arrival_s``, ``input_tokens``, ``output_tokens`` and, in JSONL, ``hash_ids`` of
    blocks of ``hash_tokens`` tokens, or those of Azure, BurstGPT or Mooncake. Of these the
    first ``most`` are read, 0 for all.

    Raises:
        DataError: If columns are missing or a value is no length or time; names the row.
    """
    columns = _read_lines(path) if str(path).endswith((".jsonl", ".json")) else read_columns(path)
    form = next((f for f in _FORMS if f.arrival in columns and f.inputs in columns), None)
    if form is None or form.outputs not in columns:
        expected = "; ".join(f"{f.arrival}, {f.inputs}, {f.outputs}" for f in _FORMS)
        raise DataError(
            f"{path}: has the columns {', '.join(columns)}; a file of requests has one of these "
            f"sets: {expected}."
        )
    notes = NoteCollector(str(path))
    read = (form.arrival, form.inputs, form.outputs, form.hashes, *form.known)
    for name in columns:
        if name not in read:
            notes.add(NoteKind.ATTRIBUTE, name, "not read; requests have a time, lengths, hashes")
    arrival_s = _times(path, form, columns[form.arrival])
    lengths = [_lengths(path, name, columns[name]) for name in (form.inputs, form.outputs)]
    empty = (lengths[0] < 1) | (lengths[1] < 1)
    if empty.any():
        notes.add(
            NoteKind.SIZE, "0 tokens", "requests without prompt or answer are left out",
            where=f"row {int(np.argmax(empty)) + 1}", count=int(empty.sum()),
        )  # fmt: skip
    kept = np.flatnonzero(~empty)
    if not len(kept):
        raise DataError(f"{path}: no request has a prompt and an answer; give one at least.")
    order = kept[np.argsort(arrival_s[kept], kind="stable")]
    order = order[:most] if most else order
    hashes: Sequence[Sequence[int]] = ()
    if form.hashes and form.hashes in columns:
        hashes = [_hashes(path, at, columns[form.hashes][at]) for at in order.tolist()]
    first = arrival_s[order]
    try:
        made = Requests(first - first[0], lengths[0][order], lengths[1][order], hashes, hash_tokens)
    except ConfigError as error:
        raise DataError(f"{path}: {error}") from None
    return RequestFile(made, notes.notes)


def _read_lines(path: str | Path) -> Mapping[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    count = 0
    for at, line in enumerate(read_parsed(path).decode("utf-8", errors="replace").splitlines()):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
            require_shape(row, dict)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{path}: line {at + 1} is no JSON object ({plain_reason(error)}); give one a line."
            ) from None
        if count and set(row) != set(columns):
            other = sorted(set(row) ^ set(columns))[0]
            raise DataError(
                f"{path}: line {at + 1}: '{other}' is not in every line; give all lines the same "
                "keys."
            )
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
        count += 1
    if not count:
        raise DataError(f"{path}: has no lines; give at least one request.")
    return columns


def _times(path: str | Path, form: _Form, column: Sequence[Any]) -> np.ndarray:
    """Return seconds; dates are counted from the first one."""
    texts = [str(value) for value in column]
    if any("-" in text[1:] and ":" in text for text in texts[:1]):
        seconds = np.empty(len(texts))
        for at, text in enumerate(texts):
            # Azure writes seven decimals of a second, which datetime does not take.
            head, point, tail = text.strip().partition(".")
            digits = "".join(c for c in tail if c.isdigit())
            try:
                whole = datetime.fromisoformat(head[:19]).timestamp()
            except ValueError:
                raise DataError(
                    f"{path}: row {at + 1}: {form.arrival} is '{text:.40}', which is no time; "
                    "write seconds or a date such as 2023-11-16 18:15:46.680."
                ) from None
            seconds[at] = whole + (float(f"0.{digits}") if point and digits else 0.0)
        return seconds - seconds.min()
    return numbers(path, form.arrival, texts) * form.seconds


def _lengths(path: str | Path, name: str, column: Sequence[Any]) -> np.ndarray:
    """Return whole numbers of tokens, int64."""
    found = numbers(path, name, [str(value) for value in column])
    wrong = (found != np.rint(found)) | (found < 0) | (found > MAX_TOKENS)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise DataError(
            f"{path}: row {at + 1}: {name} is {found[at]:g}; give a whole number of tokens, at "
            f"most {MAX_TOKENS:,}."
        )
    return found.astype(np.int64)


def _hashes(path: str | Path, row: int, value: Any) -> list[int]:
    try:
        found = parse_json(value) if isinstance(value, str) else value
        if isinstance(found, list) and all(type(key) is int for key in found):
            return found
    except (ValueError, RecursionError):
        pass
    raise DataError(
        f"{path}: row {row + 1}: hash_ids is '{value!s:.40}'; give a list of whole numbers."
    )


def read_columns(path: str | Path, needed: Sequence[str] = ()) -> Mapping[str, list[str]]:
    """Return the columns of a CSV file with a header, as text.

    Raises:
        DataError: As ``read_table``; and if there is no row.
    """
    table = read_table(path, needed)
    if not table.cells:
        raise DataError(f"{path}: has no rows; give a header and at least one row.")
    return table.columns


Process = Literal["poisson", "gamma", "constant"]
PROCESSES: tuple[Process, ...] = ("poisson", "gamma", "constant")
"""Gaps between arrivals: exponential; gamma with a coefficient of variation; all equal."""
LENGTHS = "N, uniform:LOW-HIGH, lognormal:MEDIAN,SIGMA or exponential:MEAN"


@dataclass(frozen=True)
class Arrivals:
    """A process that makes requests.

    Attributes:
        rate: Requests per second; 0 for all at once, as a limit on concurrency needs them.
        requests: How many.
        inputs: Tokens of prompts, a number or a distribution.
        outputs: Tokens of answers, likewise.
        process: Gaps between requests: poisson, gamma or constant.
        variation: Coefficient of variation of the gaps of a gamma process; above 1 is burstier
            than Poisson.
        seed: Of all draws.

    Raises:
        ConfigError: If a number is not possible or a word is not known.
    """

    rate: float = 1.0
    requests: int = 1000
    inputs: str = "1024"
    outputs: str = "256"
    process: Process = "poisson"
    variation: float = 2.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.process not in PROCESSES:
            raise ConfigError(
                f"arrivals: there is no process '{self.process}'."
                f"{did_you_mean(self.process, PROCESSES)} Known are {', '.join(PROCESSES)}."
            )
        if not 0 <= self.rate < float("inf"):
            raise ConfigError(f"arrivals: rate is {self.rate}; give requests per second.")
        if not 1 <= self.requests <= MAX_REQUESTS:
            raise ConfigError(
                f"arrivals: {self.requests} requests; give 1 to {MAX_REQUESTS:,} of them."
            )
        if not 0 < self.variation < float("inf"):
            raise ConfigError(f"arrivals: variation is {self.variation}; it must be positive.")

    def draw(self) -> Requests:
        """Return the requests; equal seeds give equal ones.

        Raises:
            ConfigError: If a length is not of its form.
        """
        generator = numpy_generator(self.seed, "serving", "arrivals")
        if not self.rate:
            gaps = np.zeros(self.requests)
        elif self.process == "constant":
            gaps = np.full(self.requests, 1 / self.rate)
        elif self.process == "poisson":
            gaps = generator.exponential(1 / self.rate, self.requests)
        else:
            shape = 1 / self.variation**2
            gaps = generator.gamma(shape, 1 / self.rate / shape, self.requests)
        inputs, outputs = (
            lengths_of(text, self.requests, numpy_generator(self.seed, "serving", name))
            for name, text in (("inputs", self.inputs), ("outputs", self.outputs))
        )
        arrival_s = np.cumsum(gaps)
        return Requests(arrival_s - arrival_s[0], inputs, outputs)


def lengths_of(text: str, count: int, generator: np.random.Generator) -> np.ndarray:
    """Return lengths in tokens, at least 1 each, int64 (count,).

    Raises:
        ConfigError: If the text is not of the form of ``LENGTHS``.
    """
    name, _, rest = text.partition(":")
    try:
        if not rest:
            drawn = np.full(count, float(name))
        elif name == "uniform":
            low, high = (int(part) for part in rest.split("-"))
            drawn = generator.integers(low, high, count, endpoint=True).astype(np.float64)
        elif name == "lognormal":
            median, sigma = (float(part) for part in rest.split(","))
            drawn = median * np.exp(sigma * generator.standard_normal(count))
        elif name == "exponential":
            drawn = generator.exponential(float(rest), count)
        else:
            raise ValueError
    except ValueError:
        raise ConfigError(f"arrivals: '{text}' is no length; write {LENGTHS}.") from None
    if not (drawn <= MAX_TOKENS).all() or (not rest and drawn[0] < 1):
        raise ConfigError(
            f"arrivals: '{text}' gives lengths below 1 or above {MAX_TOKENS:,} tokens."
        )
    return np.maximum(np.rint(drawn), 1).astype(np.int64)
