from ._sampler import Sampler as Sampler, SamplerModules as SamplerModules
