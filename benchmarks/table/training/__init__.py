"""Tables about the model itself: what training time, graphs and width buy, and its parts."""

from ._curves import Curves as Curves
