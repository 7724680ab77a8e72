"""Things by name that users add to: by a decorator or an entry point of an installed package."""

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from layerdag.errors import ConfigError, UsageError
from layerdag.runtime.settings import did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class Registry(Generic[T]):
    """What can be chosen by a name: built in, registered in this process, or of a package.

    A name never imports code by itself. A file that names something unknown is refused; only what
    this process registered, or an installed package declares as an entry point, is used.

    Args:
        kind: What one of them is, in words ("encoder").
        group: Group of the entry points ("layerdag.encoders").
        check: Raises UsageError if a value is none.
        built_in: "module:attribute" by name, imported on first use.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        check: Callable[[str, Any], None],
        built_in: Mapping[str, str] | None = None,
    ) -> None:
        self.kind, self.group = kind, group
        self._check = check
        self._built_in = dict(built_in or {})
        self._registered: dict[str, T] = {}

    def register(self, name: str, value: T) -> T:
        """Add ``value`` as ``name``, in place of what was registered by that name before.

        Raises:
            UsageError: If the package itself has that name, or the value is of another kind.
        """
        if name in self._built_in:
            raise UsageError(
                f"The {self.kind} '{name}' is one of layerdag itself; take another name."
            )
        self._check(name, value)
        self._registered[name] = value
        return value

    def unregister(self, name: str) -> None:
        """Forget what this process registered as ``name``."""
        self._registered.pop(name, None)

    def names(self) -> tuple[str, ...]:
        """Return every known name: built in, registered, and of entry points."""
        return tuple(dict.fromkeys((*self._built_in, *self._registered, *self._installed())))

    def added(self) -> tuple[str, ...]:
        """Return the names that the package itself does not have."""
        return tuple(name for name in self.names() if name not in self._built_in)

    def get(self, name: str) -> T:
        """Return what has this name.

        Raises:
            ConfigError: If nothing has, or an entry point cannot be imported or is of another kind.
        """
        if name in self._built_in:
            module, _, attribute = self._built_in[name].partition(":")
            found: T = getattr(importlib.import_module(module), attribute)
            return found
        if name in self._registered:
            return self._registered[name]
        entry = self._installed().get(name)
        if entry is None:
            raise ConfigError(self._unknown(name))
        try:
            value: T = entry.load()
            self._check(name, value)
        except (ImportError, AttributeError, UsageError) as error:
            raise ConfigError(
                f"The {self.kind} '{name}' (entry point {entry.value} of '{self.group}') cannot be "
                f"used: {error}"
            ) from error
        return value

    def _installed(self) -> "dict[str, EntryPoint]":
        """Return the entry points of installed packages by name; nothing is imported."""
        from importlib.metadata import entry_points  # half of a simulation's own start

        return {entry.name: entry for entry in entry_points(group=self.group)}

    def _unknown(self, name: str) -> str:
        known = self.names()
        return (
            f"There is no {self.kind} '{name}'.{did_you_mean(name, known)} "
            f"Known: {', '.join(known) or 'none'}. Register it in this process, or install the "
            f"package that has it as an entry point of '{self.group}'."
        )
