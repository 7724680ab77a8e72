"""What is printed and written of an audit, computed once for the same files."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from layerdag._runtime import write_text
from layerdag.api import Audit
from layerdag.cli.output._audit import content_of, figures_json
from layerdag.cli.output._kept import keep, kept, key_of
from layerdag.report import figures_of, render, require_replaceable_report


@dataclass(frozen=True)
class AuditOutcome:
    """An audit as texts.

    Attributes:
        text: What is printed.
        figures: All figures, as JSON.
        page: The HTML page.
        page_figures: The JSON beside the page.
        passes: Whether nothing was found.
    """

    text: str
    figures: str
    page: str
    page_figures: str
    passes: bool

    @classmethod
    def of(cls, found: Audit) -> "AuditOutcome":
        """Return the texts of an audit."""
        content = content_of(found)
        return cls(
            text=str(found),
            figures=figures_json(found),
            page=render(content),
            page_figures=json.dumps(figures_of(content), indent=1, allow_nan=False),
            passes=found.passes,
        )

    def save_figures(self, path: str) -> None:
        """Write all figures as JSON."""
        write_text(Path(path), self.figures + "\n")

    def show(self, page: str | None, *, as_json: bool) -> None:
        """Print the audit as a table or as JSON, and write it as a page if one is named.

        Raises:
            UsageError: If the figures of the page would replace a file of something else.
        """
        if page is not None:
            require_replaceable_report(page)
            write_text(Path(page).with_suffix(".json"), self.page_figures + "\n")
            write_text(Path(page), self.page)
        print(self.figures if as_json else self.text)
        if page is not None and not as_json:
            print(f"report: {page}")


def once(
    settings: Mapping[str, object],
    inputs: Iterable[str | Path] | None,
    compute: Callable[[], Audit],
) -> AuditOutcome:
    """Return an audit, that of an earlier call if nothing has changed since.

    Args:
        settings: All that it depends on besides files.
        inputs: All files and folders that it reads; None computes and keeps nothing.
        compute: Runs the audit.
    """
    if inputs is None:
        return AuditOutcome.of(compute())
    paths = list(inputs)
    key = key_of(settings, paths)
    found = _outcome(kept(key))
    if found is not None:
        print(
            "layerdag: the files are those of an earlier audit, whose figures follow (--no-cache "
            "computes them again)",
            file=sys.stderr,
        )
        return found
    outcome = AuditOutcome.of(compute())
    if key_of(settings, paths) == key:  # no file was changed in the meantime
        keep(key, asdict(outcome))
    return outcome


def _outcome(result: Mapping[str, object] | None) -> AuditOutcome | None:
    """Return a kept outcome; None of one that lacks something."""
    if result is None:
        return None
    names = ("text", "figures", "page", "page_figures")
    text, figures, page, page_figures = (result.get(name) for name in names)
    passes = result.get("passes")
    if (
        isinstance(text, str)
        and isinstance(figures, str)
        and isinstance(page, str)
        and isinstance(page_figures, str)
        and isinstance(passes, bool)
    ):
        return AuditOutcome(text, figures, page, page_figures, passes)
    return None
