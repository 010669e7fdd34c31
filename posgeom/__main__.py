"""``python -m posgeom`` is ``posgeom``."""

import sys

from posgeom.diagnosis.cli import main

if __name__ == "__main__":
    sys.exit(main())
