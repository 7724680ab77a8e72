"""``layerdag compare``: how near are samples of any generator to real graphs, and are they new?"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerdag.cli.printing import (
    add_strict,
    left_out_lines,
    nameless_notes,
    note_lines,
    notes_json,
    strict_code,
    warn,
)
from layerdag.errors import ConfigError, DataError, LayerdagError, UsageError
from layerdag.runtime.notes import merge_notes

if TYPE_CHECKING:
    from layerdag.datasets.dataset import GraphDataset
    from layerdag.kinds.graph_kind import GraphKind

SUMMARY = (
    "Compare samples of any generator with real graphs: valid, unique, novel (V.U.N.), and each "
    "distance to real test graphs beside that of real training graphs."
)
EXAMPLE = (
    "  layerdag compare corpus samples                   # what 'layerdag sample' wrote\n"
    "  layerdag compare traces ours theirs --baseline    # several generators, and training data\n"
    "  layerdag compare dags own/*.graphml --json        # files of a generator of your own\n"
    "  layerdag compare dags --generator NAME --num 200  # a registered generator"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("data", metavar="DATA",
        help="name of a data set (corpus), its folder, or a training run")  # fmt: skip
    parser.add_argument("samples", nargs="*", metavar="SAMPLES",
        help="folder, tar or Parquet file of samples, a column each; or files of one graph each "
        "(.graphml, .dot, node-link .json, .et), which are one column together")  # fmt: skip
    parser.add_argument("--generator", action="append", default=[], metavar="NAME",
        help="fit a registered generator on the training graphs and sample it, too")  # fmt: skip
    parser.add_argument("--plugin", action="append", default=[], metavar="FILE.py",
        help="Python file of yours, run first, that registers metrics or generators")  # fmt: skip
    parser.add_argument("--num", type=int, default=100, metavar="N",
        help="samples of each --generator (default: 100)")  # fmt: skip
    parser.add_argument("--baseline", action="store_true",
        help="the same figures of the training graphs themselves")  # fmt: skip
    parser.add_argument("--labels", metavar="FILE", help="label file of a folder of graphs")
    parser.add_argument("--max-graphs", type=int, metavar="N",
        help="most graphs of each set, drawn at random")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", metavar="FILE.json", help="write the figures as JSON")
    add_strict(parser)


def run(args: argparse.Namespace) -> int:
    """Score every set of samples, then print the table."""
    from layerdag.evaluation.side_by_side import score_generators
    from layerdag.runtime.files import write_text
    from layerdag.runtime.terminal import log_stages

    if not (args.samples or args.generator or args.baseline):
        raise UsageError("Nothing to compare; give SAMPLES, --generator NAME or --baseline.")
    if args.num < 1 or (args.max_graphs is not None and args.max_graphs < 1):
        raise UsageError("--num and --max-graphs must be at least 1.")
    if not args.json:
        log_stages()
    for file in args.plugin:
        _run_plugin(file)
    data = _data(args.data, args.labels, args.samples)
    sets = {**_sample_sets(args.samples, data.schema.kind), **_generated(args, data)}
    result = score_generators(
        data,
        sets,
        baseline=args.baseline,
        max_graphs=args.max_graphs,
        seed=args.seed,
    )
    read = [graph for graphs in sets.values() for graph in graphs]
    further = [note for graph in read for note in getattr(graph, "notes", ())]
    notes = merge_notes([*data.notes, *further])
    told = [*nameless_notes(data.notes), *notes_json(merge_notes(further))]
    figures = result.to_dict() | ({"notes": told} if told else {})
    if args.out:
        write_text(args.out, json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures, indent=1) if args.json else result)
    for line in (*left_out_lines(data.left_out), *note_lines(notes)):
        print(line, file=sys.stderr)
    for score in result.scores:
        if score.reasons:
            warn(
                f"{score.name}: {len(score.reasons)} of the graphs are not valid; the first "
                f"reason: {score.reasons[0]}"
            )
    return strict_code(notes, strict=args.strict)


def _run_plugin(file: str) -> None:
    """Run a Python file that the user named on the command line."""
    import runpy

    if not Path(file).is_file():
        raise UsageError(f"{file}: there is no such Python file; check --plugin.")
    try:
        runpy.run_path(file)
    except LayerdagError:
        raise
    except Exception as error:
        raise UsageError(
            f"{file}: fails when it is run as Python ({type(error).__name__}: {error}); mend it, "
            "or check --plugin."
        ) from error


def _data(source: str, labels: str | None, samples: Sequence[str]) -> "GraphDataset":
    """Return the real graphs, split as in training where samples record that."""
    from layerdag.api.reference_data import ReferenceData
    from layerdag.datasets.loading import load_dataset

    real = ReferenceData(source, labels, warn)
    recorded = [path for path in samples if _is_recorded(Path(path))]
    try:
        if recorded:
            data = real.load_for_samples(recorded[0])
        else:
            data = real.load() if Path(source).exists() else load_dataset(source)
    except (ConfigError, UsageError) as error:
        if Path(source).exists():
            raise
        raise UsageError(f"{source}: is neither a folder nor a data set's name. {error}") from None
    for path in recorded[1:]:
        real.require_fits(data, path)
    return data


def _is_recorded(path: Path) -> bool:
    from layerdag.samples.manifest import is_manifest_folder, is_run

    return path.is_dir() and (is_run(path) or is_manifest_folder(path))


def _sample_sets(paths: Sequence[str], kind: "GraphKind") -> dict[str, Sequence[Any]]:
    """Return the graphs of each column; files of one graph each are a column together."""
    sets: dict[str, list[Any]] = {}
    for place, path in enumerate(map(Path, paths)):
        single = not path.is_dir() and path.suffix not in (".tar", ".parquet")
        name = "files" if single else path.name or str(path)
        if not single and name in sets:
            name = f"{name} ({place + 1})"
        sets.setdefault(name, []).extend(_graphs(path, kind))
    return dict(sets)


def _graphs(path: Path, kind: "GraphKind") -> Iterator[Any]:
    """Yield the graphs of a place, None for one that cannot be read."""
    from layerdag.codec.formats import read_graph
    from layerdag.datasets.discovery import read_folder
    from layerdag.runtime.terminal import track
    from layerdag.samples.manifest import report_unread
    from layerdag.samples.reader import iter_samples

    report_unread(path, warn)
    if path.suffix in (".tar", ".parquet") or _is_recorded(path):
        samples = track(iter_samples(path), f"reading {path}")
        yield from map(kind.stored_graph, samples)
    elif path.is_dir():
        found = read_folder(path, as_they_are=True, as_jobs=kind.has_traces)
        if not found.graphs:
            why = f"; the first reason: {found.left_out[0]}" if found.left_out else ""
            raise DataError(f"{path}: no graph could be read{why}.")
        yield from found.graphs
        yield from [None] * len(found.left_out)
    else:
        yield read_graph(path)


def _generated(args: argparse.Namespace, data: "GraphDataset") -> Mapping[str, Sequence[Any]]:
    from layerdag.evaluation.side_by_side import fitted_generator
    from layerdag.runtime.terminal import stage

    sets = {}
    for name, count in Counter(args.generator).items():
        if count > 1:
            raise UsageError(f"--generator {name} is named twice; name each once.")
        with stage(f"fitting and sampling {name}"):
            sets[name] = list(fitted_generator(name, data).sample(args.num, args.seed))
    return sets
