"""Importing the package and its core is light."""

import subprocess
import sys

CORE = """checks corpora distances encodings figures mds monotonicity positions record stress synthetic
tokens""".split()


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_neither_torch_nor_transformers_is_loaded():
    imports = "; ".join(f"import posgeom.{name}" for name in CORE)
    loaded = run(f"import posgeom; {imports}; import sys; print(*sys.modules)").split()
    assert "posgeom.positions" in loaded
    assert not {"torch", "transformers", "tokenizers", "datasets", "sklearn", "pandas", "IPython"} & set(
        loaded
    )


def test_import_posgeom_loads_no_numerical_library():
    loaded = run("import posgeom, sys; print(*sys.modules)").split()
    assert not {"numpy", "scipy", "matplotlib"} & set(loaded)
