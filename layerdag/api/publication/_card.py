"""The data card: Croissant 1.0 (JSON-LD of MLCommons) with the fields of responsible AI.

Both specifications are published by MLCommons ("Croissant Format Specification", version 1.0, and
"Croissant RAI Specification", version 1.0).
"""

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from layerdag._version import __version__
from layerdag.api.publication._folder import SAMPLES, TABLE
from layerdag.api.publication._page import CAVEATS, SAMPLES_ALONE, Results
from layerdag.viz import number, percent

_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
_NUMBERS = ("nodes", "edges", "ranks")


def data_card(results: Results, folder: Path, columns: list[str]) -> dict[str, Any]:
    """Return the card of a finished folder.

    Args:
        results: What was found.
        folder: With the table and the samples.
        columns: Of the table.
    """
    kind = results.jobs.kind
    what = "execution traces (Chakra)" if kind == "trace" else "flow graphs (GraphML)"
    card: dict[str, Any] = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": [
            "http://mlcommons.org/croissant/1.0",
            "http://mlcommons.org/croissant/RAI/1.0",
        ],
        "name": "synthetic-execution-traces" if kind == "trace" else "synthetic-flow-graphs",
        "description": (
            f"{len(results.kept)} synthetic {what}, sampled from a model that learned from private "
            f"ones. {results.verdict.line}"
        ),
        "version": "1.0.0",
        "datePublished": datetime.now(UTC).date().isoformat(),
        "creator": {"@type": "sc:Organization", "name": "The owner of the private traces"},
        "url": "https://example.org/replace-by-where-it-is-published",
        "citeAs": "The publisher of this folder has not said how to cite it.",
        "isLiveDataset": False,
        "distribution": [_table_file(folder), _sample_files(kind)],
        "recordSet": [_records(columns)],
        **_rai(results),
    }
    if results.settings.license:
        card["license"] = results.settings.license
    return card


def _table_file(folder: Path) -> dict[str, Any]:
    data = (folder / TABLE).read_bytes()
    return {
        "@type": "cr:FileObject",
        "@id": TABLE,
        "name": TABLE,
        "description": "One line for each sample.",
        "contentUrl": TABLE,
        "contentSize": f"{len(data)} B",
        "encodingFormat": "text/csv",
        "sha256": hashlib.sha256(data).hexdigest(),
    }


def _sample_files(kind: str) -> dict[str, Any]:
    trace = kind == "trace"
    return {
        "@type": "cr:FileSet",
        "@id": SAMPLES,
        "name": SAMPLES,
        "description": "One Chakra trace for each rank of each job." if trace else (
            "One GraphML file for each graph."
        ),
        "includes": f"{SAMPLES}/*/*.et" if trace else f"{SAMPLES}/*.graphml",
        "encodingFormat": "application/octet-stream" if trace else "application/xml",
    }  # fmt: skip


def _records(columns: list[str]) -> dict[str, Any]:
    return {
        "@type": "cr:RecordSet",
        "@id": "list",
        "name": "list",
        "description": "What is known of each sample; label is a step time in seconds.",
        "key": {"@id": "list/name"},
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"list/{column}",
                "name": column,
                "description": f"{column} of the sample",
                "dataType": "sc:Integer" if column in _NUMBERS else "sc:Text",
                "source": {"fileObject": {"@id": TABLE}, "extract": {"column": column}},
            }
            for column in columns
        ],
    }


def _rai(results: Results) -> dict[str, Any]:
    """Return the fields of responsible AI."""
    drawn, evaluation = results.drawn, results.evaluation
    price = drawn.price if drawn is not None else None
    attacks = "no membership attack could be run"
    if evaluation is not None and evaluation.leaks:
        last = evaluation.leaks[-1]
        areas = (
            f"{attack.name}: area {number(attack.auc, 2)} [{number(attack.interval.low, 2)}, "
            f"{number(attack.interval.high, 2)}], {attack.in_words()}"
            for attack in last.attacks
        )
        reads = (
            f"{read.name}: {percent(read.of_training)} of training graphs, "
            f"{percent(read.of_held_out)} of held-out graphs, {read.in_words()}"
            for read in last.inferences
        )
        attacks = "; ".join([*areas, *reads])
    return {
        "rai:dataCollection": (
            "Sampled from a generative model (layerdag) that was trained on private traces of jobs."
        ),
        "rai:dataCollectionType": ["Others"],
        "rai:dataManipulationProtocol": (
            "Copies and near copies of real graphs were rejected while sampling "
            f"({number(price, 2)} drawn for each one kept); numbers that a single real run has "
            "were drawn anew; words outside a public vocabulary were removed or renamed."
        ),
        "rai:dataUseCases": [
            "Simulating training and inference jobs on clusters",
            "Training and testing performance models",
            "Testing tools that read execution traces",
        ],
        "rai:dataLimitations": [*CAVEATS, *(() if results.gives_weights else (SAMPLES_ALONE,))],
        "rai:dataBiases": [
            "Frequencies of models, sizes and operators are those of the private traces, about."
        ],
        "rai:dataSocialImpact": (
            "Lets traces be studied without giving real ones away; a reader may take samples for "
            "measurements, which they are not."
        ),
        "rai:personalSensitiveInformation": [
            "No personal data: operators, sizes, times and dependencies of programs."
        ],
        "rai:dataReleaseMaintenancePlan": "None: the folder is complete as it is.",
        "rai:annotationsPerItem": "0",
        "rai:dataPreprocessingProtocol": [f"layerdag {__version__} release; attacks: {attacks}."],
    }
