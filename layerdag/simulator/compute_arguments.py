"""Arguments of compute models as users type them: ``MODEL:ARGUMENT,NAME=VALUE,...``."""

from layerdag.errors import ConfigError


def number(model: str, options: dict[str, str], key: str, default: float) -> float:
    """Take a number out of the options.

    Raises:
        ConfigError: If it is not one.
    """
    text = options.pop(key, None)
    if text is None:
        return default
    try:
        return float(text)
    except ValueError:
        raise ConfigError(
            f"compute model '{model}': {key} is '{text}'; give a number, such as {key}={default:g}."
        ) from None


def arguments_of(name: str, rest: str, choices: str) -> tuple[str, dict[str, str]]:
    """Return the argument without a name, "" if there is none, and the others.

    Args:
        name: The whole choice, for errors.
        rest: What follows the model's word and a colon.
        choices: Help of all models, for errors.

    Raises:
        ConfigError: If an argument is given twice or is not of the form NAME=VALUE.
    """
    positional, options = "", {}
    for position, part in enumerate(rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals and position == 0:
            positional = part
        elif not equals or not value or key in options:
            raise ConfigError(
                f"compute model '{name}': '{part}' is given twice or is not of the form "
                f"NAME=VALUE. Models:\n{choices}"
            )
        else:
            options[key] = value
    return positional, options
