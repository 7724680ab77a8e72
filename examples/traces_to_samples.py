# %% [markdown]
# # From a folder of traces to evaluated samples
#
# A folder of execution traces goes in; new jobs of the same kind come out, with an answer to
# three questions: do they satisfy the rules of simulators, how similar are they to real jobs, and
# do they repeat any?
#
# The traces here are 60 real training and inference steps of small networks, taken from the
# corpus inside the package. Replace `folder` and `times` with your own: any workload
# `PREFIX.<rank>.et`, and a table of step times.

# %%
import csv
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import layerdag as ld
from layerdag.traces.chakra import embedded_corpus, read_index, read_runs
from layerdag.training import LearningRateSchedule, OptimizerConfig
from layerdag.viz import save_picture, view_of_trace

place = tempfile.TemporaryDirectory()
folder, times = Path(place.name, "traces"), Path(place.name, "times.csv")

small = [r for r in read_index(embedded_corpus()) if r.family == "mlp" and r.num_nodes < 110]
with times.open("w", newline="") as file:
    table = csv.writer(file)
    table.writerow(["name", "label", "strategy"])
    for run in read_runs(embedded_corpus(), small[:60]):
        ld.write(run.workload(), folder / run.record.run)
        table.writerow([run.record.run, run.record.step_time_s_min, run.record.strategy])

# %% [markdown]
# `load_dataset` turns every job into one graph, learns vocabularies and bins from the training
# part, and splits. The column `label` is what a sample can be requested for; the other columns
# are further conditions.

# %%
data = ld.load_dataset(folder, labels=times)
print(data)
print(data.graphs["train"][0])

# %% [markdown]
# Ten steps are enough to see that all fits together; give it minutes for good samples
# (`ld.TrainSettings(max_steps=None, max_seconds=600)`).

# %%
settings = ld.TrainSettings(
    max_steps=10,
    batch_nodes=1000,
    evaluate_every=10,
    optimizer=OptimizerConfig(learning_rate=5e-4),
    lr_schedule=LearningRateSchedule(warmup_steps=2),
)
checkpoint = ld.train(data, settings=settings)
print({name: round(value, 2) for name, value in checkpoint.meta.metrics.items()})

# %%
samples = ld.sample(checkpoint, num=24, seed=0, guidance=1.0, best_of=1, max_nodes=150)
print(samples[0])

# %% [markdown]
# **Do they satisfy the rules?** A finding names the rule, the place and what to do.

# %%
findings = ld.validate(samples)
print(f"{len(findings)} findings in {len(samples)} jobs")
for finding in findings[:5]:
    print(finding.sentence())

# %% [markdown]
# **How similar are they to real jobs?** Every distance to the real test jobs stands beside the
# same distance of the real training jobs: a ratio of 1 is as near as real jobs come.

# %%
report = ld.compare(data, data, samples, replicates=10)
names = [
    "nodes",
    "edges",
    "layers",
    "in_degree",
    "out_degree",
    "attribute:op",
    "attribute:duration",
]
ratios = [report[name].ratio for name in names]
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
real = [dag.num_nodes for part in ("train", "val", "test") for dag in data.graphs[part]]
bins = np.linspace(0, 150, 16)
left.hist(real, bins, density=True, alpha=0.6, label=f"{len(real)} real jobs")
left.hist(
    [s.dag.num_nodes for s in samples],
    bins,
    density=True,
    alpha=0.6,
    label=f"{len(samples)} samples",
)
left.set(xlabel="nodes of a job", ylabel="density")
left.legend()
right.barh(names, ratios, color="tab:orange")
right.axvline(1, color="black", linewidth=1, label="real training jobs")
right.legend(loc="lower right")
right.invert_yaxis()
right.set(xlabel="distance to real test jobs, relative")

# %% [markdown]
# **Do they repeat any?** Copies are graphs with the hash of a training graph. With so few
# held-out graphs the attacks can conclude little, and the report says so.

# %%
print(ld.audit(samples, data))

# %% [markdown]
# One real and one sampled job, layers from top to bottom, colored by the kind of operator:

# %%
real_trace = ld.read_workload(folder / small[12].run).traces[0]
made = (sample.workload().traces[0] for sample in samples)
sampled_trace = min(made, key=lambda trace: abs(trace.num_nodes - real_trace.num_nodes))
figure, axes = plt.subplots(1, 2, figsize=(9, 8), layout="constrained")
for axis, title, trace in zip(axes, ("real", "sampled"), (real_trace, sampled_trace), strict=True):
    save_picture(view_of_trace(trace), Path(place.name, f"{title}.png"))
    axis.imshow(plt.imread(Path(place.name, f"{title}.png")))
    axis.set_title(f"{title}: {trace.num_nodes} nodes on rank 0")
    axis.set_axis_off()

# %%
place.cleanup()
