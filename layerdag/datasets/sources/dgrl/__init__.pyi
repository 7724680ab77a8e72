from ._families import AMP as AMP, read_family as read_family
from ._load import load_dgrl as load_dgrl, read_networks as read_networks
