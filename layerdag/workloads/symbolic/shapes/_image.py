"""What a vision or diffusion transformer reads."""

from dataclasses import dataclass

from layerdag.errors import ConfigError


@dataclass(frozen=True)
class Image:
    """What a vision or diffusion transformer reads instead of words.

    Attributes:
        size: Pixels of a side; of the latent image in latent diffusion.
        patch: Pixels of a side of a patch, which becomes a token.
        channels: Numbers of a pixel.
        class_token: Whether one token more is added, from which alone the classes are computed.
        labels: Rows of the table of labels that condition a diffusion transformer; 0 for none.

    Raises:
        ConfigError: If a number is not possible or patches do not fill the image.
    """

    size: int = 224
    patch: int = 16
    channels: int = 3
    class_token: bool = True
    labels: int = 0

    def __post_init__(self) -> None:
        for name, least in (("size", 1), ("patch", 1), ("channels", 1), ("labels", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ConfigError(
                    f"image: {name} is {value!r}; it must be a whole number of at least {least}."
                )
        if self.size % self.patch:
            raise ConfigError(
                f"image: patches of {self.patch} pixels do not fill a side of {self.size}."
            )

    @property
    def patches(self) -> int:
        """Patches of an image."""
        return (self.size // self.patch) ** 2

    @property
    def tokens(self) -> int:
        """Tokens of an image."""
        return self.patches + self.class_token

    @property
    def patch_numbers(self) -> int:
        """Numbers of a patch."""
        return self.channels * self.patch**2
