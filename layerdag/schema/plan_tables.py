"""Plans that training programs ran under, to draw the plans of sampled programs from.

A plan is a strategy ("single", "data", "fsdp", "tensor", "pipeline"), its degree, and how the step
is made (optimizer, clipping, accumulation, ...), in the words of ``layerdag.plan``. Settings
are drawn one by one given family and strategy. Only values that several training programs share are
kept, each with the number of programs, rounded up.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from layerdag.plan import DEGREES, RECORDED, usual_setting
from layerdag.schema.shared_table import MAX_COUNT, SharedTable, are_counts, draw_value, rounded_up
from layerdag.schema.size_tables import DEPTH

Setting = int | float | str

SINGLE = "single"
STRATEGIES = (SINGLE, *DEGREES)
"""Ways to spread a step over ranks; but for the first each is the name of its degree."""
_STRATEGY = "strategy"


@dataclass(frozen=True)
class PlannedStep:
    """The plan of a training program: one of ``STRATEGIES``, and settings.

    The settings are those of ``layerdag.capture_model``.
    """

    family: str
    strategy: str
    settings: Mapping[str, Setting]

    @property
    def ranks(self) -> int:
        """On how many ranks the step runs."""
        return math.prod(int(self.settings.get(name, 1)) for name in STRATEGIES)


@dataclass(frozen=True)
class PlanColumn:
    """The values of one setting that several programs share, and how many programs have each.

    ``strategy`` is "" in the column of the strategies themselves, whose setting is "strategy".
    """

    family: str
    strategy: str
    setting: str
    values: tuple[Setting, ...]
    programs: tuple[int, ...]

    def check(self) -> None:
        """Raise ValueError unless this is a setting with its values."""
        if self.setting == _STRATEGY:
            fits = not self.strategy and set(self.values) <= set(STRATEGIES)
        else:
            fits = self.strategy in STRATEGIES and self.setting in RECORDED.settings
            fits = fits and all(_is_value(self.setting, value) for value in self.values)
        counted = are_counts(self.programs) and len(self.values) == len(self.programs)
        if not (fits and counted):
            raise ValueError(f"{self.setting!r:.40} is no setting of a plan with its values")

    def draw(self, rng: np.random.Generator) -> Setting:
        """Return one of the values."""
        return draw_value(self.values, self.programs, rng)


@dataclass(frozen=True)
class PlanTables(SharedTable[PlanColumn]):
    """The plans of training programs: of each family its strategies, and the settings of each."""

    def draw(self, family: str, rng: np.random.Generator) -> PlannedStep:
        """Return a plan as those of a family; one rank with the usual settings if it has none."""
        mine = [column for column in self.columns if column.family == family]
        strategy = next((str(c.draw(rng)) for c in mine if c.setting == _STRATEGY), SINGLE)
        settings = {c.setting: c.draw(rng) for c in mine if c.strategy == strategy}
        return PlannedStep(family, strategy, settings)


def _is_value(setting: str, value: Setting) -> bool:
    usual = usual_setting(setting)
    if type(usual) is not int:
        return type(value) is type(usual)
    number = type(value) is int or (type(value) is float and setting == "clip")
    return number and 0 <= float(value) <= MAX_COUNT


NO_PLANS = PlanTables()

_INSTEAD = {
    "world_size": "ranks=4, or a plan such as data=4",
    "strategy": "a plan, such as data=4, fsdp=2, tensor=2 or pipeline=2",
    "label": "step_time=0.02",
}


def asked_instead(name: str, conditions: Collection[str]) -> str:
    """Return what is asked of programs in place of a condition of jobs, as a sentence, or "".

    ``conditions`` are those that the checkpoint has.
    """
    if name not in _INSTEAD or DEPTH not in conditions:
        return ""
    return f" Of programs ask for {_INSTEAD[name]}."


def fit_plans(plans: Sequence[PlannedStep], program_G: np.ndarray, needed: int) -> PlanTables:
    """Return the plans that training programs share.

    A value counts if ``needed`` distinct programs have it; ``program_G`` numbers them.
    """
    holders: defaultdict[tuple[str, str, str], defaultdict[Setting, set[int]]]
    holders = defaultdict(lambda: defaultdict(set))
    for plan, program in zip(plans, program_G.tolist(), strict=True):
        holders[plan.family, "", _STRATEGY][plan.strategy].add(program)
        for setting, value in plan.settings.items():
            holders[plan.family, plan.strategy, setting][value].add(program)
    columns = []
    for key, found in sorted(holders.items()):
        counts = Counter({value: len(programs) for value, programs in found.items()})
        shared = sorted((v for v in counts if counts[v] >= needed), key=str)
        if shared:
            rounded = tuple(rounded_up(counts[value], needed) for value in shared)
            columns.append(PlanColumn(*key, tuple(shared), rounded))
    return PlanTables(tuple(columns))
