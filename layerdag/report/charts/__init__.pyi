from ._axis import Axis as Axis, tick_text as tick_text
from ._bars import shares_chart as shares_chart
from ._distribution import distribution_chart as distribution_chart
from ._marks import figure as figure, legend as legend, ratio_strip as ratio_strip, slot as slot
from ._timeline import timeline_chart as timeline_chart
