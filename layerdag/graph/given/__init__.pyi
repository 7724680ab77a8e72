from ._gap import Gap as Gap
from ._prefix import Prefix as Prefix, require_layers as require_layers
from ._replacement import Replacement as Replacement
