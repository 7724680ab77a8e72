from ._audit import audit as audit, content_of as content_of, figures_json as figures_json
from ._kept import content_hash as content_hash, keep as keep, kept as kept, key_of as key_of
from ._outcome import AuditOutcome as AuditOutcome, once as once
from ._private_notes import (
    CARD as CARD,
    after_tuning as after_tuning,
    before_tuning as before_tuning,
    privacy_card as privacy_card,
)
from ._run_notes import (
    after_parts as after_parts,
    after_sampling as after_sampling,
    after_training as after_training,
    announcement as announcement,
    before_parts as before_parts,
)
from ._simulation import (
    interval as interval,
    peak_memory as peak_memory,
    report as report,
    summary as summary,
)
from ._surrogate import (
    evaluation_lines as evaluation_lines,
    operator_lines as operator_lines,
    prediction_rows as prediction_rows,
    prediction_text as prediction_text,
    transfer_lines as transfer_lines,
)
from ._watch import Watch as Watch
