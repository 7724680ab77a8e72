# %% [markdown]
# # One workload on many clusters
#
# Which part of a cluster is worth money for this job? The workload is a sampled GPT step on eight
# ranks (no trace of your own is needed; `ld.read("runs/mine")` takes one). It runs on networks of
# different speed and topology, with different models of the processor.

# %%
import matplotlib.pyplot as plt
import numpy as np

import layerdag as ld
from layerdag.simulator import (
    Dimension,
    NetworkConfig,
    SystemConfig,
    Topology,
    Variation,
    breakdown,
    by_node,
    critical_path,
)

(sample,) = ld.sample(num=1, seed=3, conditions={"family": "gpt"})
workload = sample.workload(ranks=8)
print(sample)
print(f"{workload.num_ranks} ranks, {sum(trace.num_nodes for trace in workload.traces)} nodes")

# %% [markdown]
# A cluster is a network of dimensions and a system (collective algorithms, chunks). Bandwidths
# are GB/s of 2^30 bytes per link, latencies ns per hop.


# %%
def cluster(topology: Topology, bandwidth: float, algorithm: str = "ring") -> ld.Cluster:
    network = NetworkConfig((Dimension(topology, workload.num_ranks, bandwidth, 500.0),))
    return ld.Cluster(network, SystemConfig.uniform(algorithm, 1))


bandwidths = np.geomspace(0.01, 10, 10)
kinds = {
    "ring": (Topology.RING, "ring"),
    "switch, ring algorithm": (Topology.SWITCH, "ring"),
    "fully connected, direct": (Topology.FULLY_CONNECTED, "direct"),
}
gpu = "h100:efficiency=0.5,launch=4000"
processors = {
    "measured": "as measured, a CPU core per rank",
    "systolic:32x32,clock=0.5,bandwidth=25": "systolic array, 32 x 32, 0.5 GHz",
    gpu: "half of an H100, 4 us per launch",
}

# %%
figure, axes = plt.subplots(1, 3, figsize=(9, 3.6), sharey=True, layout="constrained")
for axis, (processor, title) in zip(axes, processors.items(), strict=True):
    for label, (topology, algorithm) in kinds.items():
        runs = [
            ld.simulate(workload, cluster(topology, bandwidth, algorithm), compute=processor)
            for bandwidth in bandwidths
        ]
        axis.loglog(bandwidths, [run.makespan_ns / 1e6 for run in runs], "o-", ms=3, label=label)
    axis.axhline(runs[-1].compute_ns.max() / 1e6, color="black", lw=1, label="compute alone")
    axis.set(title=title, xlabel="bandwidth of a link, GB/s")
axes[0].set_ylabel("makespan, ms")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)

# %% [markdown]
# Where the curves are flat, the processor is the bottleneck and a faster network is wasted.
# **Where the time goes** on the ring, rank 0 with the GPU, by bandwidth; the parts add up to the
# finish of the rank:

# %%
shown = bandwidths[::3]
parts = [breakdown(ld.simulate(workload, cluster(Topology.RING, b), compute=gpu)) for b in shown]
figure, axis = plt.subplots(figsize=(9, 2.6), layout="constrained")
rows = [
    dict(zip(part.parts, 100 * part.time_ns_RP[0] / part.time_ns_RP[0].sum(), strict=True))
    for part in parts
]
left = np.zeros(len(shown))
for name in dict.fromkeys(name for row in rows for name in row):
    percent = np.array([row.get(name, 0.0) for row in rows])
    if percent.any():
        axis.barh([f"{b:.2g} GB/s" for b in shown], percent, left=left, label=name)
        left += percent
axis.set(xlabel="% of the time of rank 0", xlim=(0, 100))
figure.legend(loc="outside right upper")

# %% [markdown]
# **What if** each part were 10 % better? On a slow ring:

# %%
slow = cluster(Topology.RING, 0.1)
for entry in ld.simulate(workload, slow, compute=gpu, what_if=True).what_if:
    print(f"{entry.makespan_ns / 1e6:8.3f} ms {entry.gain:+7.2%}  {entry.change}")

# %% [markdown]
# **One slow rank** holds up all others at every collective:

# %%
fast = cluster(Topology.RING, 10.0)
factors = [1.0, 1.25, 1.5, 2.0, 3.0]
spans = [
    ld.simulate(workload, fast, compute=gpu, variation=Variation({0: factor})).makespan_ns
    for factor in factors
]
for factor, span in zip(factors, spans, strict=True):
    times = span / spans[0]
    print(f"rank 0 takes {factor:.2f} times as long: {span / 1e6:7.3f} ms ({times:.2f} times)")

# %% [markdown]
# The critical path of the slow ring names what to improve first:

# %%
result = ld.simulate(workload, slow, compute=gpu)
for name, spent_ns in list(by_node(result, critical_path(result)).items())[:6]:
    print(f"{spent_ns / result.makespan_ns:6.1%}  {name}")
