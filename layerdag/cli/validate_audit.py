"""``layerdag validate --against``: do samples give away the graphs that a generator learnt from?"""

import json
from dataclasses import dataclass
from pathlib import Path

from layerdag.datasets.base import GraphDataset
from layerdag.errors import UsageError
from layerdag.graph.statistics import GraphStatistics
from layerdag.report.content import ReportContent
from layerdag.report.markup import interval, number, percent
from layerdag.report.page import plain, write_report
from layerdag.surrogate.inputs import read_dataset, read_samples
from layerdag.training.checkpoint import LoadedCheckpoint, load_checkpoint
from layerdag.validator.copying import Nearness, Novelty, nearness, novelty
from layerdag.validator.membership import Attack, likelihood_attack, sample_attacks
from layerdag.validator.structural import StructureReport, check_structure


@dataclass(frozen=True, eq=False)
class Audit:
    """What samples give away.

    Attributes:
        structure: Verdict on the samples by the rules on graphs.
        novelty: Valid, unique, novel shares.
        nearness: Nearer to training than to held-out graphs?
        attacks: Can training graphs be told from held-out ones?
    """

    structure: StructureReport
    novelty: Novelty
    nearness: Nearness
    attacks: tuple[Attack, ...]


def audit(samples: str, against: str, checkpoint: str | None, labels: str | None = None) -> Audit:
    """Compare samples with the training and test parts of a data set.

    Args:
        samples: Folder that ``layerdag sample`` wrote.
        against: Folder of the data set.
        checkpoint: What was sampled from, for the attack on the weights; None leaves it out.
        labels: Label file of the data set, if it lies neither in its folder nor beside it.

    Raises:
        UsageError: If the checkpoint was trained on other graphs, or there are too few graphs.
        DataError: If a file is missing or damaged.
    """
    loaded = None if checkpoint is None else load_checkpoint(checkpoint)
    data = read_dataset(against) if loaded is None else learnt_from(loaded, against, labels)
    train, held_out = data.graphs["train"], data.graphs["test"]
    made = read_samples(samples, data.schema)
    structure = check_structure(made, GraphStatistics.measure(train, data.schema.sizes()))
    attacks = sample_attacks(train, held_out, made)
    if loaded is not None:
        attacks += (likelihood_attack(loaded.model, data.schema, train, held_out),)
    return Audit(
        structure=structure,
        novelty=novelty(train, held_out, made, structure.valid_B),
        nearness=nearness(train, held_out, made),
        attacks=attacks,
    )


def learnt_from(checkpoint: LoadedCheckpoint, folder: str, labels: str | None) -> GraphDataset:
    """Return the data set in ``folder``, selected, split and narrowed as for the checkpoint.

    Raises:
        UsageError: If its training graphs are not those of the checkpoint, or the label file that
            the checkpoint was trained with is not found.
    """
    from omegaconf import OmegaConf

    from layerdag.cli.build import build_dataset

    node = checkpoint.run_config.get("data")
    if isinstance(node, dict) and "name" in node:
        found = {**node, "folder": folder}
        if node.get("labels"):
            found["labels"] = labels or _label_file(folder, str(node["labels"]))
        data = build_dataset(OmegaConf.create(found))
    else:
        data = read_dataset(folder)
    conditions = checkpoint.run_config.get("conditions")
    if isinstance(conditions, list):
        data = data.conditioned_on([str(name) for name in conditions])
    if data.fingerprint != checkpoint.meta.data_fingerprint:
        raise UsageError(
            f"{checkpoint.path}: was trained on graphs with fingerprint "
            f"{checkpoint.meta.data_fingerprint or 'unknown'}, but those in {folder} have "
            f"{data.fingerprint}; give --against the data set that it was trained on."
        )
    return data


def _label_file(folder: str, name: str) -> str:
    """Return the label file of this name in the data folder or beside it."""
    bare = Path(name).name
    for place in (Path(folder), Path(folder).resolve().parent):
        if (place / bare).is_file():
            return str(place / bare)
    raise UsageError(
        f"{folder}: the checkpoint was trained with a label file '{bare}', which is neither in "
        "this folder nor beside it; name it with --labels."
    )


def show(found: Audit, page: str | None, *, as_json: bool) -> None:
    """Print the audit as a table or as JSON, and write it as a page if one is named."""
    if page is not None:
        content = ReportContent(
            title="What the samples give away",
            lead="Copies of training graphs, and attacks that ask which real graphs were learnt.",
            structure=found.structure,
            novelty=found.novelty,
            nearness=found.nearness,
            attacks=found.attacks,
        )
        write_report(content, Path(page))
    if as_json:
        figures = {"novelty": found.novelty, "nearness": found.nearness, "attacks": found.attacks}
        print(json.dumps(plain(figures), indent=1, allow_nan=False))
        return
    new, near = found.novelty, found.nearness
    rows = [
        ("graphs compared", f"{new.graphs} samples"),
        ("copies of training graphs", percent(new.copied)),
        ("  the same among held-out graphs", percent(new.copied_real)),
        ("nearer to training than to held-out", f"{percent(near.share)} (50% is ideal)"),
    ]
    for attack in found.attacks:
        area = f"{number(attack.auc, 2)} {interval(attack.interval)}"
        rows.append((f"attack {attack.name}", f"area {area}: {attack.in_words()}"))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
    if page is not None:
        print(f"report: {page}")
