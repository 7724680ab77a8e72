"""The families of surrogates, one contract."""
