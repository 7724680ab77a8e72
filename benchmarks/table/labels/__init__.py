"""Tables in which samples are judged by what they teach a surrogate of a label."""

from ._few_real import FewReal as FewReal
from ._label_quintile import LabelQuintile as LabelQuintile
from ._tpu_tile import TpuTile as TpuTile
