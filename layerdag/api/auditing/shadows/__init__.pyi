from ._attacks import (
    ShadowReport as ShadowReport,
    attacks_on_losses as attacks_on_losses,
    shadow_attacks as shadow_attacks,
)
from ._kept import (
    ShadowModel as ShadowModel,
    held_folder as held_folder,
    kept_models as kept_models,
)
from ._recipe import Recipe as Recipe, recipe_of as recipe_of
from ._settings import (
    BUDGET as BUDGET,
    LEAST_SHADOWS as LEAST_SHADOWS,
    ShadowSettings as ShadowSettings,
)
from ._training import Pool as Pool, shadow_models as shadow_models
