"""The tables of benchmarks/table, which is no part of the package, for tests."""

import sys
from pathlib import Path

# Last, so that no benchmark hides a module of the same name.
sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from table import _base, _er_dag, _figures, _learners, _page, _runs, _summary, _tables
from table.baselines import (
    _diffusion,
    _dvae,
    _dvae_decoder,
    _gated,
    _language_model,
    _markov,
    _recipes,
    _recurrent,
    _resampler,
)
from table.generators import (
    _figures as _generator_figures,
    _overlap,
    _page as _generator_page,
    _table as _generators,
    _tasks as _generator_tasks,
)
from table.labels import (
    _few_real,
    _gains,
    _label_quintile,
    _parts,
    _quintile,
    _scheduled,
    _tpu_tile,
)
from table.predictors import _data, _page as _predictors_page, _scores, _table
from table.training import (
    _ablations,
    _ablations_page,
    _curves,
    _curves_page,
    _judge,
    _lines,
    _variants,
)

base, er_dag, figures, page, quintile, runs = _base, _er_dag, _figures, _page, _quintile, _runs
few_real, gains, parts, scheduling = _few_real, _gains, _parts, _scheduled
label_quintile, learners, tables = _label_quintile, _learners, _tables
diffusion, language_model, recipes = _diffusion, _language_model, _recipes
dvae, dvae_decoder, gated = _dvae, _dvae_decoder, _gated
generators, generator_figures = _generators, _generator_figures
generator_page, generator_tasks = _generator_page, _generator_tasks
markov, recurrent, resampler = _markov, _recurrent, _resampler
overlap, tpu_tile = _overlap, _tpu_tile
predictors, predictors_data = _table, _data
predictors_page, predictors_scores = _predictors_page, _scores
curves, curves_page, judge, lines, summary = _curves, _curves_page, _judge, _lines, _summary
ablations, ablations_page, variants = _ablations, _ablations_page, _variants
