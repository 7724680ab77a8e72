from ._sampler import Parts as Parts, Sampler as Sampler
