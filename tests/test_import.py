"""Importing the package, its core and its faces is light, and a face shows what it says."""

import importlib
import subprocess
import sys

import pytest

CORE = ("corpora", "counts", "geometry", "encodings", "noise", "laws")
LAZY = ("models", "diagnosis")
HEAVY = {"torch", "transformers", "tokenizers", "datasets", "sklearn", "pandas", "IPython"}


def loaded_by(code: str) -> set[str]:
    printed = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return set(printed.stdout.split())


def test_neither_torch_nor_transformers_is_loaded():
    faces = [f"posgeom.{room}" for room in CORE + LAZY] + [
        "posbook",
        "posbook.figures",
        "posbook.experiments",
    ]
    loaded = loaded_by(f"import posgeom, {', '.join(faces)}")
    assert "posgeom.counts.positions" in loaded and not HEAVY & loaded


def test_import_posgeom_loads_no_numerical_library():
    assert not {"numpy", "scipy", "matplotlib"} & loaded_by("import posgeom")


@pytest.mark.parametrize("room", ["posgeom", *(f"posgeom.{room}" for room in CORE + LAZY), "posbook"])
def test_a_face_has_each_name_that_it_lists(room):
    face = importlib.import_module(room)
    assert face.__doc__ and len(set(face.__all__)) == len(face.__all__)
    assert set(face.__all__) <= set(dir(face))
    missing = [name for name in face.__all__ if getattr(face, name, None) is None]
    assert not missing
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = face.no_such_name


def test_a_name_that_a_module_shares_is_the_function():
    importlib.import_module("posgeom.geometry.stress")
    from posgeom import stress
    from posgeom.geometry import stress as of_the_room

    assert callable(stress) and stress is of_the_room


def test_the_library_does_not_know_the_book():
    everything = ", ".join(f"posgeom.{room}" for room in CORE)
    assert not {name for name in loaded_by(f"import {everything}") if name.startswith("posbook")}
