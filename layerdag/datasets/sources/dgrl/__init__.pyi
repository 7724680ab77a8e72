from ._load import load_dgrl as load_dgrl
