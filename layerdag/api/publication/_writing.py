"""Writing a release, or the report of why there is none."""

import csv
import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from layerdag._runtime import atomic_folder, write_text
from layerdag._version import __version__
from layerdag.api.publication._card import data_card
from layerdag.api.publication._folder import (
    CARD,
    MANIFEST,
    MODEL_CARD,
    REFUSED,
    RELEASE,
    REPORT,
    SAMPLES,
    TABLE,
    VERDICT,
    WEIGHTS,
    Work,
)
from layerdag.api.publication._page import Results, owners_content, public_content
from layerdag.api.publication._split import run_of_graphs
from layerdag.api.publication._verdict import Outcome, verdict_of
from layerdag.api.publication.drawing import keys_of, published_conditions, written_graph
from layerdag.api.publication.training import model_card
from layerdag.datasets.files import write_graphml
from layerdag.evaluation.privacy import foreign_words, keys_of_one_run
from layerdag.report import write_report
from layerdag.sampling import as_workload
from layerdag.traces import write_workload
from layerdag.training import export_checkpoint


def write_release(work: Work, results: Results, tell: Callable[[str], None]) -> Results:
    """Write the release, or the report of why there is none."""
    settings = results.settings
    refused = work.path / REFUSED
    with atomic_folder(settings.out, RELEASE, overwrite=True) as draft:
        if results.kept:
            columns = _write_samples(results, draft)
            _write_about(results, draft, columns)
            foreign = [*_foreign(results, draft), *_shared_numbers(results)]
            if foreign:
                assert results.drawn is not None
                results = replace(
                    results,
                    verdict=verdict_of(
                        settings, results.drawn, results.evaluation, results.needs, foreign
                    ),
                )
        shutil.rmtree(refused, ignore_errors=True)
        if results.verdict.outcome is Outcome.NO:
            if (draft / SAMPLES).is_dir():
                shutil.move(draft / SAMPLES, refused)
            for name in (CARD, TABLE):
                (draft / name).unlink(missing_ok=True)
            _write_about(results, draft, None)
    write_report(owners_content(results), work.path / REPORT)
    tell(f"report: {settings.out / REPORT}")
    tell(f"the owner's report, not to be shared: {work.path / REPORT}")
    if refused.is_dir():
        tell(f"the samples that were refused: {refused}")
    return results


def _write_about(results: Results, draft: Path, columns: list[str] | None) -> None:
    """Write report, verdict and manifest; the card where there are samples."""
    write_report(public_content(results), draft / REPORT)
    write_text(draft / VERDICT, results.verdict.line + "\n")
    manifest = {
        "layerdag_version": __version__,
        "released": results.verdict.outcome is not Outcome.NO,
        "verdict": results.verdict.line,
        "samples": len(results.kept) if columns else 0,
        "weights": results.gives_weights,
    }
    write_text(draft / MANIFEST, json.dumps(manifest, indent=1) + "\n")
    _write_weights(results, draft)
    if columns is not None:
        card = data_card(results, draft, columns)
        write_text(draft / CARD, json.dumps(card, indent=1) + "\n")


def _write_weights(results: Results, draft: Path) -> None:
    """Write the weights and their card, if they may be published."""
    shutil.rmtree(draft / WEIGHTS, ignore_errors=True)
    (draft / MODEL_CARD).unlink(missing_ok=True)
    if not results.gives_weights:
        return
    assert results.weights is not None
    assert results.weights.checkpoint is not None
    export_checkpoint(results.weights.checkpoint.path, draft / WEIGHTS)
    write_text(draft / MODEL_CARD, model_card(results.weights, results.settings))


def _write_samples(results: Results, draft: Path) -> list[str]:
    """Write the samples and the table of them; return its columns."""
    folder = draft / SAMPLES
    folder.mkdir()
    rows: list[dict[str, object]] = []
    for sample in results.kept:
        row: dict[str, object] = {
            "name": sample.name,
            "nodes": sample.dag.num_nodes,
            "edges": sample.dag.num_edges,
        }
        if sample.schema.kind == "trace":
            workload = as_workload(sample.graph).workload
            row["ranks"] = workload.num_ranks
            (folder / sample.name).mkdir()
            write_workload(workload, folder / sample.name / sample.name)
        else:
            write_graphml(folder / f"{sample.name}.graphml", sample.graph)
        rows.append({**row, **dict(published_conditions(sample))})
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(draft / TABLE, text.getvalue())
    return columns


def _foreign(results: Results, draft: Path) -> list[str]:
    """Return a sentence on each private word in a file of the release."""
    return [found.sentence() for found in foreign_words(draft, results.jobs.private)]


def _shared_numbers(results: Results) -> list[str]:
    """Return a sentence on each sample with a node that has the numbers of a single real run."""
    keys = [keys_of(graph) for graph in results.jobs.graphs]
    names = run_of_graphs(results.jobs)
    unique = keys_of_one_run(keys, [names[graph.name] for graph in results.jobs.graphs])
    return [
        f"{sample.name}: has a node with the numbers of a single real run."
        for sample in results.kept
        if np.isin(keys_of(written_graph(sample)), unique).any()
    ]
