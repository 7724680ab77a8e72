from ._assembly import assemble_dags as assemble_dags, bin_positions as bin_positions
from ._categorical import (
    sample_categorical as sample_categorical,
    sample_from_logits as sample_from_logits,
)
from ._guidance import guided as guided
from ._streams import SampleStreams as SampleStreams, slot_uniforms as slot_uniforms
from ._subsets import (
    choose_in_groups as choose_in_groups,
    choose_with_one_of as choose_with_one_of,
    gumbel as gumbel,
)
