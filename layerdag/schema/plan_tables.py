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
from typing import Any

import numpy as np

from layerdag.plan import DEGREES, RECORDED, Plan, Step
from layerdag.schema.shared_table import MAX_COUNT, SharedTable, are_counts, draw_value, rounded_up
from layerdag.schema.size_tables import DEPTH

Setting = int | float | str

SINGLE = "single"
STRATEGIES = (SINGLE, *DEGREES)
"""Ways to spread a step over ranks; but for the first each is the name of its degree."""
_STRATEGY = "strategy"


@dataclass(frozen=True)
class PlannedStep:
    """The plan of a training program.

    Attributes:
        family: Of the program.
        strategy: One of ``STRATEGIES``.
        settings: As of ``layerdag.capture_model``.
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
    """The values of one setting.

    Attributes:
        family: Of the programs.
        strategy: That they ran under; "" in the column of the strategies themselves.
        setting: Such as "optimizer", or "strategy".
        values: Those that several programs share.
        programs: How many programs have each.
    """

    family: str
    strategy: str
    setting: str
    values: tuple[Setting, ...]
    programs: tuple[int, ...]

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

    @classmethod
    def from_dict(cls, data: Any) -> "PlanTables":
        """Return the tables that ``to_dict`` wrote; the data is not trusted.

        Raises:
            ValueError: If a column is no setting with its values.
        """
        columns = tuple(
            PlanColumn(
                given["family"], given["strategy"], given["setting"],
                tuple(given["values"]), tuple(given["programs"]),
            )
            for given in data
        )  # fmt: skip
        for column in columns:
            _require_setting(column)
        return cls(columns)


def _require_setting(column: PlanColumn) -> None:
    """Raise ValueError if a column is no setting with its values."""
    if column.setting == _STRATEGY:
        fits = not column.strategy and set(column.values) <= set(STRATEGIES)
    else:
        fits = column.strategy in STRATEGIES and column.setting in RECORDED.settings
        fits = fits and all(_is_value(column.setting, value) for value in column.values)
    counted = are_counts(column.programs) and len(column.values) == len(column.programs)
    if not (fits and counted):
        raise ValueError(f"{column.setting!r:.40} is no setting of a plan with its values")


def _is_value(setting: str, value: Setting) -> bool:
    usual = getattr(Step if hasattr(Step, setting) else Plan, setting)
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

    Args:
        name: Of a condition that a checkpoint does not have.
        conditions: That it has.
    """
    if name not in _INSTEAD or DEPTH not in conditions:
        return ""
    return f" Of programs ask for {_INSTEAD[name]}."


def fit_plans(plans: Sequence[PlannedStep], program_G: np.ndarray, needed: int) -> PlanTables:
    """Return the plans that training programs share.

    Args:
        plans: Of each graph.
        program_G: Number of the program of each graph, of which only distinct ones count.
        needed: Programs that must share a value.
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
