from ._sample import checkpoint_path as checkpoint_path
