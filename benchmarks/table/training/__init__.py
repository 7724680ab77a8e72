"""Tables about the model itself: what training time, graphs and width buy, and its parts."""

from ._ablations import Ablations as Ablations
from ._curves import Curves as Curves
