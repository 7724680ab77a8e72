"""What a request for samples adds to the model: batches, and codes that go together in a job."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
