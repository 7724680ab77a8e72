from ._build import (
    build_dataset as build_dataset,
    build_spec as build_spec,
    given_model as given_model,
)
from ._compose import (
    as_plain as as_plain,
    compose as compose,
    run as run,
)
from ._help import VERBS_WITH_SETTINGS as VERBS_WITH_SETTINGS, help_text as help_text
from ._real_data import RealData as RealData, warn as warn
from ._resuming import with_own_settings as with_own_settings
from ._run_file import (
    public_config as public_config,
    read_run_file as read_run_file,
    run_file_if_taken_up as run_file_if_taken_up,
    write_run_file as write_run_file,
)
from ._simulate_flags import (
    configure as configure,
    tell_ignored as tell_ignored,
    workload_prefix as workload_prefix,
)
from ._times import seconds_of as seconds_of
from ._tree import (
    ModelChoice as ModelChoice,
    SampleConfig as SampleConfig,
    TrainConfig as TrainConfig,
    sample_config as sample_config,
    train_config as train_config,
)
