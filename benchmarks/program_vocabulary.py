"""How much of a family's programs is written in words that other programs have?

    python benchmarks/program_vocabulary.py --corpus public
    python benchmarks/program_vocabulary.py --out benchmarks/results/program-vocabulary.json

Share of calls whose word (operator and form of its arguments), and whose word with its size
expressions, occur in the training programs: of held-out structures of the same families, and of
each whole family when all other families are for training.
"""

import argparse
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.datasets.programs import embedded_programs, load_programs
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.formats.program_json import CALL, SIZES, program_graph

KINDS = {"operators": 0, "calls": 1, "calls with sizes": 2}


def words(graph: AttributedGraph) -> list[tuple[str, str, str]]:
    """Return operator, call, and call with sizes of each node."""
    pairs = zip(graph.categories[CALL], graph.categories[SIZES], strict=True)
    return [(call.partition(" ")[0], call, f"{call} {sizes}") for call, sizes in pairs]


def known_share(found: list[tuple[str, str, str]], known: set[tuple[int, str]]) -> dict[str, float]:
    """Return the share of nodes whose word is known, by kind of word."""
    return {
        kind: float(np.mean([(at, row[at]) in known for row in found]))
        for kind, at in KINDS.items()
    }


def vocabulary(graphs: list[list[tuple[str, str, str]]]) -> set[tuple[int, str]]:
    """Return all words of some programs."""
    return {(at, word) for graph in graphs for row in graph for at, word in enumerate(row)}


def summary(shares: list[dict[str, float]]) -> dict[str, Any]:
    """Return the mean over programs or families, and the tenth and the half of them."""
    if not shares:
        return {}
    return {
        kind: {
            "mean": round(float(np.mean([s[kind] for s in shares])), 4),
            "median": round(float(np.median([s[kind] for s in shares])), 4),
            "tenth": round(float(np.quantile([s[kind] for s in shares], 0.1)), 4),
        }
        for kind in KINDS
    }


def main() -> None:
    """Print the shares, or write them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", default="public", choices=("collected", "public"))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    families: dict[str, dict[str, list[tuple[str, str, str]]]] = {}
    for path in sorted(embedded_programs(args.corpus).glob("*.jsonl.xz")):
        programs = map(json.loads, lzma.decompress(path.read_bytes()).splitlines())
        named = {data["name"]: words(program_graph(data, path.name)) for data in programs}
        families[path.name.partition(".")[0]] = named
    own = {family: vocabulary([*graphs.values()]) for family, graphs in families.items()}
    others = []
    for family, graphs in families.items():
        known = set().union(*(found for name, found in own.items() if name != family))
        others.append(known_share([row for graph in graphs.values() for row in graph], known))
    every = {name: graph for graphs in families.values() for name, graph in graphs.items()}
    for_training = set(load_programs(corpus=args.corpus).names["train"])
    trained = vocabulary([every[name] for name in for_training])
    held = [known_share(g, trained) for name, g in every.items() if name not in for_training]
    rows = {
        "corpus": args.corpus,
        "programs": len(every),
        "families": len(families),
        "distinct calls": len({word for at, word in set().union(*own.values()) if at == 1}),
        "held-out structures": {"of": len(held), **summary(held)},
        "held-out families": {"of": len(others), **summary(others)},
    }  # fmt: skip
    text = json.dumps(rows, indent=1)
    if args.out:
        args.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
