from ._figures import CAVEATS as CAVEATS, Audit as Audit, audit_of as audit_of
from ._lines import (
    audit_lines as audit_lines,
    detection_in_words as detection_in_words,
    figure_cells as figure_cells,
    holdout_in_words as holdout_in_words,
    neighborhood_cells as neighborhood_cells,
    read_in_words as read_in_words,
)
from ._sets import AuditSets as AuditSets, Graphs as Graphs, read_sets as read_sets
from ._split_advice import too_few_held_out as too_few_held_out
from ._tally import AuditTally as AuditTally, Samples as Samples
from ._white_box import WhiteBox as WhiteBox, weight_attacks as weight_attacks
from ._words import WordSearch as WordSearch, search_words as search_words
