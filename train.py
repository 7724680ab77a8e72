"""Train a generator: ``python train.py data=tpu_tile model=fast training.max_steps=2000``."""

import sys

from layerdag.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
