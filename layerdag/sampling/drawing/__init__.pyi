from ._batches import BATCH_SIZE as BATCH_SIZE, batches_of_like_size as batches_of_like_size
from ._faults import FaultCounter as FaultCounter
from ._finite import finite_sample as finite_sample
from ._possible import possible_codes as possible_codes
from ._processes import drawn_in_order as drawn_in_order
from ._sizes import asked_nodes as asked_nodes, size_miss as size_miss
