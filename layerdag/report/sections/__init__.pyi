from ._answers import answers as answers, cards as cards
from ._membership import membership as membership
from ._samples import neighbors as neighbors, timelines as timelines
from ._similarity import similarity as similarity
from ._usefulness import fits as fits, usefulness as usefulness
from ._words import (
    attack_words as attack_words,
    summary_words as summary_words,
    words_of_metric as words_of_metric,
)
