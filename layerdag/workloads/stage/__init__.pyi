from ._files import StageLayout as StageLayout
from ._flags import MODELS as MODELS, StageFlags as StageFlags
from ._job import StageJob as StageJob
