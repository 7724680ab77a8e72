"""The whole way in one script: load, train, sample, compare, fit a surrogate, simulate."""

import layerdag as ld

# Real training and inference steps of small networks, out of the corpus inside the package.
data = ld.load_dataset("corpus", families=("mlp",))
print(data)

# A small model for a few steps: enough to see the way, not to get good samples.
settings = ld.TrainSettings(max_steps=30, evaluate_every=30)
checkpoint = ld.train(data, model="fast", settings=settings, width=64, depth=2)
print({name: round(value, 3) for name, value in checkpoint.meta.metrics.items()})

# Samples in memory: as codes, as a graph with names, as traces of all ranks.
samples = ld.sample(checkpoint, num=8, conditions={"strategy": "ddp"}, best_of=1, max_nodes=100)
print(samples[0])

# How near they are to real jobs that training never saw; rules that simulators rely on.
print(ld.compare(data, samples, replicates=20))
print(f"{len(ld.validate(samples))} findings")

# The step time from the graph alone; durations would tell it.
surrogate = ld.Surrogate("boosting", exclude=("duration",)).fit(data)
print(f"Spearman on real test jobs: {surrogate.score(data):.2f}")

# A sampled job and its predicted step time, then the same job on a cluster.
workload = samples[0].workload()
print(f"predicted step time: {surrogate.predict(samples[:1])[0] * 1e3:.2f} ms")
result = ld.simulate(workload, "small")
print(f"{workload.num_ranks} ranks, simulated: {result.makespan_ns / 1e6:.2f} ms")
