from ._cross_fit import (
    CrossFit as CrossFit,
    cross_fitted as cross_fitted,
    cross_fitted_if_affordable as cross_fitted_if_affordable,
)
from ._model_card import model_card as model_card
from ._public import public_graphs as public_graphs, with_public as with_public
from ._shadows import RealGraphs as RealGraphs, shadow_losses as shadow_losses
from ._student import student_data as student_data, trained_student as trained_student
from ._teacher import TRAINING_FRACTION as TRAINING_FRACTION, trained_teacher as trained_teacher
from ._weights_audit import (
    WeightsAudit as WeightsAudit,
    audited_weights as audited_weights,
    real_graphs as real_graphs,
)
from ._weights_verdict import (
    MOST_AREA as MOST_AREA,
    AuditedWeights as AuditedWeights,
    WeightsVerdict as WeightsVerdict,
    audited_student as audited_student,
    verdict_on_weights as verdict_on_weights,
)
