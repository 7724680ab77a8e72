from ._image import Image as Image
from ._latent import Latent as Latent
from ._models import PRESETS as PRESETS, model as model
from ._shape import TIME_FREQUENCIES as TIME_FREQUENCIES, ModelShape as ModelShape
