"""Sample: ``python sample.py checkpoint=outputs/run/best num=100 seed=0 out=samples``."""

import sys

from layerdag.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["sample", *sys.argv[1:]]))
