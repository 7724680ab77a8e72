"""What was sampled, in words: how many samples, where, and how near they come to what was asked."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from layerdag.samples.manifest import SampleRun, read_manifest
from layerdag.sampling.parts import PartSettings


def after_sampling(manifest: Path) -> str:
    """Return what was made, and how to look at it; ``manifest`` is that of the samples."""
    out, samples = manifest.parent, read_manifest(manifest.parent)["samples"]
    name = samples[0]["name"]
    first = shlex.quote(str(out / samples[0].get("file", f"{name}/{name}.0.et")))
    count = "1 sample" if len(samples) == 1 else f"{len(samples):,} samples"
    return (
        f"wrote {count} to {out}. Check all: layerdag validate {shlex.quote(str(out))}; "
        f"look at the first: layerdag view {first} --out sample.svg\n"
    )


def reached_numbers(manifest: Path) -> Iterator[str]:
    """Yield, for each number that was asked of programs, how near the samples come to it."""
    samples = read_manifest(manifest.parent)["samples"]
    for name in dict.fromkeys(name for sample in samples for name in sample.get("wanted", {})):
        asked, missing, found = 0.0, 0, {}
        for sample in samples:
            number = sample.get("wanted", {}).get(name)
            if number is None or number["reached"] is None:
                missing += 1
            else:
                asked, found[sample["name"]] = number["asked"], number["reached"]
        if not found:
            yield f"{name}: no sample has such a size"
            continue
        exact = sum(number == asked for number in found.values())
        text = f"{name}: {asked:,.6g} asked for, exact in {exact} of {len(samples)} samples"
        if exact < len(found):
            far = max(found, key=lambda each: abs(found[each] / asked - 1))
            text += f"; at most {found[far] / asked - 1:+.2%} off ({far} has {found[far]:,.6g})"
        yield f"{text}; {missing} have no such size" if missing else text


def before_parts(num: int, parts: PartSettings) -> str:
    """Return a warning if there are more shards than parts, so that some draw nothing; else ""."""
    shards, there = parts.assigned.count, -(-num // parts.part_size)
    if shards <= there:
        return ""
    fitting = max(num // shards, 1)
    return (
        f"layerdag: there is work for only {there:,} of {shards:,} shards, since {num:,} samples "
        f"are cut into parts of {parts.part_size:,}; part_size={fitting} gives each its share.\n"
    )


def after_parts(folder: Path) -> str:
    """Return which parts of a run of samples are there, and how to look at them."""
    run = SampleRun.read(folder)
    there, where = run.count_parts(folder), shlex.quote(str(folder))
    if there < run.num_parts:
        return (
            f"{there:,} of {run.num_parts:,} parts are in {folder}; the same command writes what "
            f"is missing from its shard. Look at them: layerdag info {where}\n"
        )
    count = "1 sample" if run.num == 1 else f"{run.num:,} samples"
    return (
        f"{count} in {run.num_parts:,} parts are in {folder}. "
        f"Check all: layerdag validate {where}; look at them: layerdag info {where}\n"
    )
