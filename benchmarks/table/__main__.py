"""Make a table of the literature again, or its page.

python -m benchmarks.table latent-preferential           # what is missing of it
python -m benchmarks.table latent-preferential --quick   # a minute, into outputs/
python -m benchmarks.table latent-preferential --page    # docs/results/ from the files
python -m benchmarks.table summary --page                # all tables in one, in README
"""

import argparse
import sys
from pathlib import Path

import torch

from layerdag.runtime.files import write_text

from ._base import QUICK, Folders, Options, Table
from ._page import ROOT, filled
from ._runs import Store
from ._summary import with_summary
from ._tables import NAMES, SUMMARY, pictures_of, records_of_all, table_named


def main() -> int:
    """Make the runs that are missing, or the page."""
    args = _arguments()
    torch.set_num_threads(1)
    if args.name == SUMMARY:
        return _write_summary(args.out or ROOT / "benchmarks" / "results")
    folders = Folders(args.tpu_tile, args.na_edge, args.dgrl, args.amp)
    chosen = table_named(args.name, folders)
    results = ROOT / "benchmarks" / "results"
    folder = ROOT / "outputs" / "tables" if args.quick else results
    store = Store(chosen.name, args.out or folder)
    if args.page:
        return _write_page(chosen, store)
    options = QUICK if args.quick else _options(args)
    for record in chosen.make(store, options):
        figures = {k: v for k, v in record.figures.items() if isinstance(v, (int, float))}
        print(record.run.name, f"{record.seconds:.0f} s", figures, flush=True)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.table", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("name", choices=(*NAMES, SUMMARY))
    parser.add_argument("--quick", action="store_true", help="a minute; figures mean nothing")
    parser.add_argument("--page", action="store_true", help="write the page from the files")
    parser.add_argument(
        "--tpu-tile", type=Path, metavar="FOLDER", help="of the tables with a part on it"
    )
    parser.add_argument("--na-edge", type=Path, metavar="FOLDER", help="of few-real, generators")
    parser.add_argument("--dgrl", type=Path, metavar="FOLDER", help="of predictors: networks")
    parser.add_argument(
        "--amp", type=Path, metavar="FOLDER", help="of few-real, predictors, generators: amplifiers"
    )
    parser.add_argument("--out", type=Path, help="folder of results; benchmarks/results")
    defaults = Options()
    parser.add_argument("--seconds", type=float, default=defaults.seconds, help="of each fit")
    parser.add_argument("--seeds", type=int, default=defaults.seeds, help="training seeds")
    parser.add_argument("--trials", type=int, default=defaults.trials, help="settings tried")
    parser.add_argument("--only", metavar="TASK", help="of the table, such as rho1 or tpu_tile")
    return parser.parse_args()


def _options(args: argparse.Namespace) -> Options:
    return Options(
        args.seconds,
        0.3 * args.seconds,
        seeds=args.seeds,
        trials=args.trials,
        only=args.only,
    )


def _write_page(chosen: Table, store: Store) -> int:
    """Write the page; 1 if there is no run."""
    records = store.records()
    if not records:
        print(f"{store.folder}: there is no finished run; make the table first.", file=sys.stderr)
        return 1
    page = ROOT / "docs" / "results" / f"{chosen.name}.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    write_text(page, filled(chosen.page(records)))
    print(page.relative_to(ROOT))
    for name, text in pictures_of(chosen, records).items():
        write_text(ROOT / "docs" / "images" / name, text)
        print(f"docs/images/{name}")
    return 0


def _write_summary(results: Path) -> int:
    """Write README's table of all tables."""
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    write_text(readme, with_summary(text, records_of_all(results)))
    print("README.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
