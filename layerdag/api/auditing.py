"""``ld.audit``, which takes a ``Generator``, too."""

from typing import Any

from layerdag.api.generator import Generator
from layerdag.privacy.auditing import Audit, audit as audit_graphs


def audit(samples: Any = None, data: Any = None, weights: Any = None, **options: Any) -> Audit:
    """Compare samples with training and held-out graphs, and attack.

    Args:
        samples: What ``sample`` returned, or a folder that ``layerdag sample`` wrote.
        data: The data set that the generator learned from, split as it was then.
        weights: The generator that was sampled from, or its folder, for attacks on weights; also
            called ``checkpoint``.
        **options: Of ``layerdag.privacy.auditing.audit``: shadows, train, holdout, synthetic.

    Raises:
        UsageError: If samples or weights are known to come from another split of the data.
        DataError: If a file is missing or damaged.
    """
    weights = options.pop("checkpoint", weights)
    if isinstance(weights, Generator):
        weights = weights.checkpoint
    return audit_graphs(samples, data, weights, **options)
