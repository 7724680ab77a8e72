from ._attention import SegmentAttention as SegmentAttention, Segments as Segments
from ._counts import CountCode as CountCode, Counter as Counter
from ._dense import MLP as MLP, dropout as dropout, row_dropout as row_dropout
from ._embeddings import SumEmbedding as SumEmbedding, sinusoids as sinusoids
from ._message_passing import MessagePassingLayer as MessagePassingLayer
from ._rows import (
    gather_rows as gather_rows,
    segment_log_sum_exp as segment_log_sum_exp,
    segment_max as segment_max,
    segment_mean as segment_mean,
    segment_pointers as segment_pointers,
    segment_ranges as segment_ranges,
    to_float32 as to_float32,
)
