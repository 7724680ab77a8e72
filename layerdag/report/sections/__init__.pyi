from ._answers import answers as answers
from ._membership import membership as membership
from ._usefulness import fits as fits, usefulness as usefulness
