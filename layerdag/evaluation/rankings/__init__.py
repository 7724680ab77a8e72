"""Do synthetic jobs put clusters, plans and jobs in the order in which real ones do?

Jobs are simulated on clusters of which none is better in everything. Beside the samples stand real
training jobs, which a good generator equals, and deliberately bad generators, which must lose.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
