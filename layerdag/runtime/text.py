"""Text that fits one line."""


def shorten(text: str, width: int) -> str:
    """Return ``text``, or so many of its first characters with "..." that it has ``width``."""
    return text if len(text) <= width else f"{text[: max(width - 3, 0)]}..."


def guess_message(found: str, right: str) -> str:
    """Return the sentence for a name that other libraries have and layerdag does not."""
    return f"There is no {found} in layerdag; use {right}."
