"""Which runs are held out, and cross-fitting, in which every run is both trained on and held out.

A release holds out at most two fifths of its runs, and membership attacks need hundreds of them.
For cross-fitting the runs are cut into folds; for each a model is trained on all the others, from
the same start and by the same recipe, and sampled as the published one was. What is attacked is how
such models are made, on all runs; the published samples are one draw of it.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.discovery import FoundJobs
from layerdag.evaluation.similarity import MIN_COMPARED
from layerdag.graph.attributed_graph import AttributedGraph, Split
from layerdag.privacy.attacks import Fold, cross_fitted_attacks, significant_after_correction
from layerdag.privacy.membership import AttackResult
from layerdag.privacy.membership_attacks import AttackPool
from layerdag.publication.drawing import draw_samples
from layerdag.publication.schedule import MIN_SECONDS
from layerdag.publication.settings import ReleaseSettings
from layerdag.publication.training import train_model
from layerdag.publication.workspace import FOLDS, PrivateWorkspace
from layerdag.runtime.rng import derive_seed, numpy_generator
from layerdag.statistics import MARGIN, NORMAL_95, Verdict, chance_half_width
from layerdag.surrogates.scoring import MIN_TESTED
from layerdag.viz.numbers import interval, number

MIN_RUNS = 8
"""Distinct runs below which nothing is trained: each part would hold one or two graphs."""
MIN_HELD_OUT_SHARE, MAX_SHARE = 0.2, 0.4
"""Of the runs that are held out, for validation and test together."""


@dataclass(frozen=True)
class RunRequirement:
    """How many graphs a test needs.

    Attributes:
        test: What is tested, in words.
        needed: Graphs of that part that it needs.
        found: Graphs there are.
        part: Which graphs: "held-out graphs", "labeled held-out graphs", "distinct runs".
    """

    test: str
    needed: int
    found: int
    part: str = "held-out graphs"

    @property
    def is_met(self) -> bool:
        """Whether there are enough."""
        return self.found >= self.needed

    def sentence(self) -> str:
        """Return the need as a line."""
        verdict = "enough" if self.is_met else "too few to tell"
        return f"{self.test}: {self.found:,} {self.part}, needs {self.needed:,}: {verdict}"


def choose_held_out(runs: int) -> int:
    """Return the number of runs to hold out: as few as an audit needs, else all that may be.

    An attack is only distinguishable from chance if the interval of a score that says nothing
    is within ``MARGIN`` of one half (``layerdag.privacy``).
    """
    least, most = round(MIN_HELD_OUT_SHARE * runs), round(MAX_SHARE * runs)
    for held in range(max(least, 1), most):
        if chance_half_width(runs - held, held) <= MARGIN:
            return held
    return max(most, min(2, runs - 1))


def runs_for_membership() -> int:
    """Return the smallest number of runs from which on a membership attack can be told."""
    low, high = MIN_RUNS, 4096
    while low < high:
        middle = (low + high) // 2
        held = round(MAX_SHARE * middle)
        if chance_half_width(middle - held, held) <= MARGIN:
            high = middle
        else:
            low = middle + 1
    return low


def runs_for_cross_fitting(folds: int) -> int:
    """Return the number of runs from which on a cross-fitted membership attack can be told.

    The spread of a score that says nothing, independent in each fold (``pooled_attack``).
    """
    runs = MIN_RUNS
    while folded_half_width(runs, folds) > MARGIN:
        runs += 1
    return runs


def folded_half_width(runs: int, folds: int) -> float:
    """Return the 95 % half-width of the cross-fitted AUROC of a score that says nothing."""
    held = runs / folds
    variance = (runs + 1) / (12 * (runs - held) * held * folds)
    return NORMAL_95 * math.sqrt(variance)


MIN_PROGRAMS = MIN_RUNS
"""Programs from which on whole ones are held out, as a release needs so many runs to split them."""
_DRAWS = 20
MAX_OF_A_FOLD = 2 / 3
"""Of the runs, that a fold of whole programs may hold out."""


def split_jobs(jobs: FoundJobs, seed: int) -> dict[Split, list[AttributedGraph]]:
    """Return the graphs of each part; those of one program, or of one run, are in one part.

    The split depends on the seed and on what the graphs are, not on names or order. It is
    stratified: runs are put in an order of likeness (see ``runs_by_likeness``) and cut into as many
    blocks as there are runs to hold out, of each of which one run is drawn. With few runs a plain
    draw may hold out one family and train on another, and every attack would tell that apart. A
    corpus comes with its own split.

    Where there are programs enough they are what is drawn, so that held-out runs are of programs
    that training never saw; of few programs it is runs, which the release then warns of.
    """
    if jobs.parts:
        return _given_parts(jobs)
    runs = runs_by_similarity(jobs, seed)
    part = _program_split(jobs, runs, seed) or _drawn(runs, numpy_generator(seed, "release split"))
    parts: dict[Split, list[AttributedGraph]] = {"train": [], "val": [], "test": []}
    for graph, run in zip(jobs.graphs, jobs.runs, strict=True):
        parts[part[run]].append(graph)
    return parts


def _drawn(units: Sequence[str], rng: np.random.Generator) -> dict[str, Split]:
    held = [str(rng.choice(block)) for block in np.array_split(units, choose_held_out(len(units)))]
    pairs = zip(held[::2], held[1::2], strict=False)  # a last one without partner is for the test
    for_validation = {str(rng.choice(pair)) for pair in pairs} or set(held[:1])
    part: dict[str, Split] = dict.fromkeys(units, "train")
    return part | {unit: "val" if unit in for_validation else "test" for unit in held}


def _program_split(jobs: FoundJobs, runs: Sequence[str], seed: int) -> dict[str, Split] | None:
    """Return the part of each run where whole programs can be held out, else None.

    Programs differ in their numbers of runs: of several draws it is the one that holds out nearly
    as many runs as a split by run, neither too few to tell anything nor too many to learn.
    """
    program = program_of_runs(jobs)
    if program is None:
        return None
    programs = list(dict.fromkeys(program[run] for run in runs))
    wanted = choose_held_out(len(runs))
    rng = numpy_generator(seed, "release split by program")
    best: dict[str, Split] = {}
    for _ in range(_DRAWS):
        drawn = _drawn(programs, rng)
        part: dict[str, Split] = {run: drawn[program[run]] for run in runs}
        if not best or abs(_held(part) - wanted) < abs(_held(best) - wanted):
            best = part
    return best if wanted / 2 <= _held(best) <= len(runs) / 2 else None


def program_of_runs(jobs: FoundJobs) -> dict[str, str] | None:
    """Return the program of each run; None where programs are too few, or have a run each."""
    if not MIN_PROGRAMS <= jobs.num_programs < jobs.num_runs:
        return None
    return {
        run: jobs.programs[graph.name] for graph, run in zip(jobs.graphs, jobs.runs, strict=True)
    }


def _held(part: Mapping[str, Split]) -> int:
    return sum(split != "train" for split in part.values())


def runs_by_similarity(jobs: FoundJobs, seed: int) -> list[str]:
    """Return the distinct runs, like ones next to each other.

    By family, where it is known; within one along the first principal component of the square
    roots of the operators' frequencies, and then by size.
    """
    first_of = {run: i for i, run in reversed(list(enumerate(jobs.runs)))}
    runs = sorted(first_of, key=lambda run: derive_seed(seed, "release split", run))
    graphs = [jobs.graphs[first_of[run]] for run in runs]
    family_of = [str(graph.conditions.get("family", "")) for graph in graphs]
    component = _first_component(graphs)
    keys = zip(
        family_of, component, (graph.num_nodes for graph in graphs), range(len(runs)), strict=True
    )
    return [runs[key[-1]] for key in sorted(keys)]


def _first_component(graphs: Sequence[AttributedGraph]) -> list[float]:
    columns = [next(iter(graph.categories.values())) for graph in graphs]
    code_of = {name: i for i, name in enumerate(sorted({n for names in columns for n in names}))}
    count_GK = np.zeros((len(graphs), len(code_of)))
    for row, names in enumerate(columns):
        np.add.at(count_GK[row], [code_of[name] for name in names], 1.0)
    root_GK = np.sqrt(count_GK / count_GK.sum(axis=1, keepdims=True))
    centered_GK = root_GK - root_GK.mean(axis=0)
    axis_K = np.linalg.svd(centered_GK, full_matrices=False)[2][0]
    sign = 1.0 if axis_K[np.argmax(np.abs(axis_K))] > 0 else -1.0
    component: list[float] = np.round(sign * centered_GK @ axis_K, 6).tolist()
    return component


def _given_parts(jobs: FoundJobs) -> dict[Split, list[AttributedGraph]]:
    """Return the split of a corpus; repetitions of a run follow the first of them."""
    part: dict[str, Split] = {}
    parts: dict[Split, list[AttributedGraph]] = {"train": [], "val": [], "test": []}
    for graph, run in zip(jobs.graphs, jobs.runs, strict=True):
        parts[part.setdefault(run, jobs.parts.get(graph.name, "train"))].append(graph)
    return parts


def dataset_of(jobs: FoundJobs, seed: int) -> GraphDataset:
    """Return the split jobs as codes; what the training part cannot express is left out."""
    return GraphDataset.build("traces", jobs.kind, split_jobs(jobs, seed))


def run_of_graphs(jobs: FoundJobs) -> Mapping[str, str]:
    """Return the run of each graph by its name."""
    return dict(zip((graph.name for graph in jobs.graphs), jobs.runs, strict=True))


def needs_of(data: GraphDataset, runs: int, labeled: Sequence[bool]) -> tuple[RunRequirement, ...]:
    """Return what each test needs and has.

    Args:
        data: The split graphs.
        runs: Number of distinct runs.
        labeled: Whether each held-out graph has a label.
    """
    train, held = len(data.graphs["train"]), len(data.held_out)
    needed = held
    while chance_half_width(max(train, 1), max(needed, 1)) > MARGIN and needed < 10_000:
        needed += 1
    test = "membership attacks, distinguishable from chance"
    if needed >= 10_000:
        membership = RunRequirement(test, runs_for_membership(), runs, "distinct runs")
    else:
        membership = RunRequirement(test, needed, held)
    return (
        membership,
        RunRequirement("similarity to real graphs", MIN_COMPARED, held),
        RunRequirement(
            "usefulness for predictors", MIN_TESTED, sum(labeled), "labeled held-out graphs"
        ),
    )


MAX_FOLDS, RUNS_OF_A_FOLD = 5, 8
"""Where no number is named: half of a fold is what some attacks compare with."""
MIN_SAMPLES = 8
"""Of a fold, below which it says nothing."""
TRAINING_SHARE = 0.5
"""Of the seconds of a fold; the rest is for sampling."""
ATTACKS_SHARE = 0.15
"""Of the seconds of all folds, for the attacks at the end."""
MIN_SHARE = 0.5
"""Of the budget, that folds may take where they are asked for, whatever is left."""


@dataclass(frozen=True, eq=False)
class CrossFit:
    """What membership attacks find on models of folds.

    Attributes:
        folds: Number of models whose samples were attacked.
        runs: Distinct runs, each of them held out in one fold.
        samples: Samples of the fold that has the fewest.
        attacks: The attacks on samples, pooled over folds.
        seconds: That all of it took.
        programs: Distinct programs, of each of which all runs are in one fold; None where runs of
            one program are in several.
    """

    folds: int
    runs: int
    samples: int
    attacks: tuple[AttackResult, ...]
    seconds: float
    programs: int | None = None

    def in_words(self) -> str:
        """Return what was done, in a clause."""
        whole = "" if self.programs is None else f" of {self.programs} whole programs"
        return f"cross-fitted over {self.folds} folds of {self.runs} runs{whole}"

    def told(self) -> str:
        """Return what was found, in a clause."""
        widest = max(self.attacks, key=lambda attack: attack.interval.high)
        auroc = f"{number(widest.auc, 2)} {interval(widest.interval)} ({widest.name})"
        return f"{self.in_words()}, {self.samples} samples of each: largest AUROC {auroc}"

    def successes(self) -> Iterator[str]:
        """Yield, in a clause each, what succeeds, the attacks run beside it considered."""
        for attack in self.attacks:
            if significant_after_correction(attack):
                auroc = f"AUROC {number(attack.auc, 2)} {interval(attack.interval)}, 0.5 is chance"
                yield (
                    f"{self.in_words()}, the attack {attack.name} tells which graphs were trained "
                    f"on ({auroc})"
                )
            elif attack.finds_some:
                rate = next(rate.in_words() for rate in attack.rates if rate.is_above_chance)
                yield (
                    f"{self.in_words()}, the attack {attack.name} finds single training graphs "
                    f"({rate})"
                )

    def reserves(self) -> Iterator[str]:
        """Yield, in a clause each, what could not be told."""
        unit = "runs" if self.programs is None else "programs"
        unknown, uneven = (
            [attack.name for attack in self.attacks if attack.verdict is verdict]
            for verdict in (Verdict.TOO_FEW, Verdict.REVERSED)
        )
        alone = [a.name for a in self.attacks if a.leaks and not significant_after_correction(a)]
        if unknown:
            yield (
                f"{self.in_words()}, too few {unit} to tell whether membership attacks "
                f"succeed by {', '.join(unknown)} (about {runs_for_cross_fitting(self.folds):,} "
                "needed)"
            )
        if alone:
            yield (
                f"{self.in_words()}, {' and '.join(alone)} alone would tell training graphs "
                "apart, which among so many attacks chance does, too"
            )
        if uneven:
            yield f"{self.in_words()}, {', '.join(uneven)} prefers held-out graphs"

    def to_dict(self) -> dict[str, object]:
        """Return the figures as plain data."""
        return {
            "folds": self.folds,
            "runs": self.runs,
            "programs": self.programs,
            "samples": self.samples,
            "seconds": round(self.seconds, 1),
            "attacks": [
                {
                    "name": attack.name,
                    "auc": attack.auc,
                    "interval": [attack.interval.low, attack.interval.high],
                    "verdict": attack.verdict.value,
                    "where_nothing_can_leak": attack.holdout and attack.holdout.auc,
                }
                for attack in self.attacks
            ],
        }


def cross_fitted_if_affordable(
    settings: ReleaseSettings,
    jobs: FoundJobs,
    work: PrivateWorkspace,
    left: float,
    tell: Callable[[str], None],
) -> CrossFit | None:
    """Attack models of folds if that is asked for, or if the budget allows.

    Args:
        settings: Of the release; ``num`` samples are wanted of each fold.
        jobs: The real graphs.
        work: The private folder, with what training and sampling took.
        left: Seconds of the budget that are left.
        tell: Takes a line on each fold.
    """
    folds = planned_folds(settings, jobs, work, left)
    if folds < 2:
        if settings.cross_fit is None and not jobs.parts:
            usual = usual_folds(jobs.num_runs)
            tell(
                f"not cross-fitted: {max(left, 0):.0f} s of the budget are left, too few for "
                f"{usual} more models; --cross-fit {usual} trains them all the same"
            )
        return None
    asked = settings.cross_fit is not None
    seconds = max(left, MIN_SHARE * settings.budget) if asked else left
    tell(f"cross-fitting: {folds} more models, for at most {seconds:.0f} s")
    return cross_fitted(settings, jobs, work, folds, seconds, tell)


def cross_fitted(
    settings: ReleaseSettings,
    jobs: FoundJobs,
    work: PrivateWorkspace,
    folds: int,
    seconds: float,
    tell: Callable[[str], None],
) -> CrossFit | None:
    """Train a model for each fold, sample from it, and attack; what a stopped call did is taken up.

    Args:
        settings: Of the release; ``num`` samples are wanted of each fold.
        jobs: The real graphs.
        work: The private folder.
        folds: Number of folds.
        seconds: For all folds, about.
        tell: Takes a line on each fold.

    Returns:
        What was found; None if no fold has enough samples.
    """
    began = time.monotonic()
    fold_of = fold_of_runs(jobs, folds, settings.seed)
    number = {graph.name: i for i, graph in enumerate(jobs.graphs)}
    found: list[Fold] = []
    sizes: list[int] = []
    for fold in range(folds):
        data = _data_of(jobs, fold_of, fold)
        if not data.graphs["val"]:
            tell(f"fold {fold + 1} of {folds}: no graph of it can be expressed by the others")
            continue
        own = work.inside(f"{FOLDS}/{folds}-{fold}")
        pool = _sampled(settings, jobs, data, own, fold, (1 - ATTACKS_SHARE) * seconds / folds)
        count = pool.roles.sample_K.size
        tell(f"fold {fold + 1} of {folds}: {count} samples")
        names = (*data.names["train"], *data.names["val"], *data.names["test"])
        if count >= MIN_SAMPLES:
            found.append(Fold(pool, np.array([number[name] for name in names])))
            sizes.append(count)
    if not found:
        return None
    program = program_of_runs(jobs)
    if (
        program
        and len({(program[run], place) for run, place in fold_of.items()}) > jobs.num_programs
    ):
        program = None  # runs of one program are in several folds
    units = jobs.runs if program is None else [program[run] for run in jobs.runs]
    held, unit_G = np.unique(np.array(units), return_inverse=True)
    attacks = cross_fitted_attacks(found, unit_G, settings.seed)
    spent = time.monotonic() - began
    whole = None if program is None else len(held)
    return CrossFit(len(found), jobs.num_runs, min(sizes), attacks, spent, whole)


def usual_folds(runs: int) -> int:
    """Return the number of folds where none is named."""
    return min(MAX_FOLDS, max(runs // RUNS_OF_A_FOLD, 2))


def planned_folds(
    settings: ReleaseSettings, jobs: FoundJobs, work: PrivateWorkspace, left: float
) -> int:
    """Return the number of folds to train, 0 for none.

    A call that goes on with the same budget decides as the first one did.
    """
    most = (jobs.num_runs if program_of_runs(jobs) is None else jobs.num_programs) // 2
    if settings.cross_fit is not None:
        return min(settings.cross_fit, most)
    if jobs.parts:
        return 0
    noted = work.stages.get("cross_fit", {})
    if noted.get("budget") == settings.budget and isinstance(noted.get("folds"), int):
        return int(noted["folds"])
    spent = [work.stages.get(stage, {}).get("seconds") for stage in ("train", "sample")]
    folds = usual_folds(jobs.num_runs)
    known = [float(seconds) for seconds in spent if isinstance(seconds, int | float)]
    allowed = len(known) == len(spent) and folds * sum(known) <= (1 - ATTACKS_SHARE) * left
    work.note("cross_fit", {"budget": settings.budget, "folds": folds if allowed else 0})
    return folds if allowed else 0


def fold_of_runs(jobs: FoundJobs, folds: int, seed: int) -> dict[str, int]:
    """Return the fold of each run; like runs are spread over the folds.

    Where there are programs enough, all runs of one are in one fold, and of several draws it is the
    one whose folds have most nearly as many runs; not where one program has most of the runs.
    """
    runs = runs_by_similarity(jobs, seed)
    program = program_of_runs(jobs)
    if program is not None:
        programs = list(dict.fromkeys(program[run] for run in runs))
        rng = numpy_generator(seed, "folds of a release by program")
        draws = [_spread(programs, folds, rng) for _ in range(_DRAWS)]
        found = [{run: fold_of[program[run]] for run in runs} for fold_of in draws]
        evenest = min(found, key=_largest)
        if _largest(evenest) <= MAX_OF_A_FOLD * len(runs):
            return evenest
    return _spread(runs, folds, numpy_generator(seed, "folds of a release"))


def _largest(fold_of: Mapping[str, int]) -> int:
    return max(Counter(fold_of.values()).values())


def _spread(units: Sequence[str], folds: int, rng: np.random.Generator) -> dict[str, int]:
    found: dict[str, int] = {}
    for begin in range(0, len(units), folds):
        block = units[begin : begin + folds]
        found |= dict(zip(block, rng.permutation(folds)[: len(block)].tolist(), strict=True))
    return found


def _data_of(jobs: FoundJobs, fold_of: dict[str, int], fold: int) -> GraphDataset:
    parts: dict[Split, list[AttributedGraph]] = {"train": [], "val": [], "test": []}
    held: dict[str, Split] = {}
    for graph, run in zip(jobs.graphs, jobs.runs, strict=True):
        part: Split = "train"
        if fold_of[run] == fold:
            part = held.setdefault(run, "test" if len(held) % 2 else "val")
        parts[part].append(graph)
    data = GraphDataset.build("fold", jobs.kind, parts)
    if data.graphs["val"]:
        return data
    return data.replaced(
        graphs={**data.graphs, "val": data.graphs["test"], "test": ()},
        names={**data.names, "val": data.names["test"], "test": ()},
    )


def _sampled(
    settings: ReleaseSettings,
    jobs: FoundJobs,
    data: GraphDataset,
    work: PrivateWorkspace,
    fold: int,
    seconds: float,
) -> AttackPool:
    seed = derive_seed(settings.seed, "fold", str(fold)) % 2**31
    own = replace(settings, seed=seed)
    training = max(TRAINING_SHARE * seconds, MIN_SECONDS)
    checkpoint = train_model(own, data, work, training)
    sampling = max((1 - TRAINING_SHARE) * seconds, MIN_SECONDS)
    drawn = draw_samples(own, jobs, data, checkpoint, work, sampling)
    return AttackPool(
        data.graphs["train"],
        data.held_out,
        [sample.dag for sample in drawn.kept(settings.num)],
        measured=data.schema.measured_columns,
        numeric=data.schema.size_columns,
    )
