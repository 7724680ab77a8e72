from ._step import text_to_workload as text_to_workload
from ._text import PARALLELISMS as PARALLELISMS, parse_text as parse_text
