"""``python -m layerdag <verb>``, the same as the command ``layerdag``."""

import sys

from layerdag.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
