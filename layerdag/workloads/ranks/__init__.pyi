from ._rank_traces import RankTraces as RankTraces
