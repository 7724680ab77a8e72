"""A corpus of the further jobs alone, to train a start that never saw the corpus; a folder.

    python benchmarks/public_start.py --out public
    layerdag train experiment=pretrained data.folder=public data.max_nodes=600 \
        training.max_steps=2200 out=base

No structure of ``data/further`` is in the corpus, so that attacks on weights that start from there
find what was learned from the corpus and nothing else. A few runs of it, chosen by a hash of their
names, are for validation and test.
"""

import argparse
import hashlib
import json
import shutil
from pathlib import Path

PERCENT = {"val": 4, "test": 1}


def main() -> None:
    """Copy the runs and write an index with the parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--further", type=Path, default=Path("data/further"))
    parser.add_argument("--out", type=Path, required=True, help="folder, which must not exist")
    args = parser.parse_args()
    shutil.copytree(args.further, args.out)
    index = args.out / "index.jsonl"
    rows = [json.loads(line) for line in index.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        row["split"] = part_of(row["run"])
    index.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    counts = {part: sum(row["split"] == part for row in rows) for part in ("train", *PERCENT)}
    print(json.dumps(counts))


def part_of(run: str) -> str:
    """Return the part of a run, by its name."""
    place = int(hashlib.sha256(run.encode()).hexdigest(), 16) % 100
    for part, percent in PERCENT.items():
        if place < percent:
            return part
        place -= percent
    return "train"


if __name__ == "__main__":
    main()
