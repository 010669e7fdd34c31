"""Where the book lives, from the one file that says so: address.yml.

    python tools/address.py           names each line that is behind address.yml
    python tools/address.py --write   brings these lines up to date

What runs asks ``Address.load()``. README.md, the notebooks and others that do not run have their addresses
written in, where ``PLACES`` says. The tag that pip installs has the version of the package.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

__all__ = ["Address", "PLACES", "stale"]

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "address.yml"
NAME = r"[\w.-]+"
FORMS = {
    "repository": rf"{NAME}/{NAME}",
    "site": r"https?://\S+/",
    "branch": rf"{NAME}(/{NAME})*",
    "notebooks_branch": rf"{NAME}(/{NAME})*",
    "package": NAME,
}


@dataclass(frozen=True)
class Address:
    """The addresses of the book whose files are in ``root``."""

    repository: str
    site: str
    branch: str
    notebooks_branch: str
    package: str
    root: Path = field(default=ROOT, compare=False)

    @classmethod
    def load(cls, root: Path = ROOT) -> Address:
        """What ``address.yml`` in the folder ``root`` states; a ``ValueError`` names what is wrong there."""
        values = yaml.safe_load((root / SOURCE).read_text(encoding="utf-8"))
        if not isinstance(values, dict) or set(values) != set(FORMS):
            raise ValueError(f"{SOURCE} needs exactly the keys {', '.join(FORMS)}")
        for key, form in FORMS.items():
            if not re.fullmatch(form, str(values[key])):
                raise ValueError(f"{SOURCE}: {key}: {values[key]!r} has not the form {form}")
        if values["branch"] == values["notebooks_branch"]:
            raise ValueError(f"{SOURCE}: the workflow overwrites notebooks_branch, so it cannot be branch")
        return cls(**{key: str(value) for key, value in values.items()}, root=root)

    @property
    def name(self) -> str:
        # The folder that `git clone` makes.
        return self.repository.partition("/")[2]

    @property
    def repository_url(self) -> str:
        return f"https://github.com/{self.repository}"

    @property
    def version(self) -> str:
        # Read from the text: posgeom need not be installed.
        text = (self.root / "posgeom" / "__init__.py").read_text(encoding="utf-8")
        return re.search(r'^__version__ = "([^"]+)"', text, re.M)[1]

    @property
    def requirement(self) -> str:
        return f"{self.package} @ git+{self.repository_url}@v{self.version}"

    def colab(self, stem: str) -> str:
        """Where Colab opens the notebook ``stem``."""
        notebook = f"{self.repository}/blob/{self.notebooks_branch}/{stem}.ipynb"
        return f"https://colab.research.google.com/github/{notebook}"

    def notebook(self, stem: str) -> str:
        """Where GitHub shows the notebook ``stem``."""
        return f"{self.repository_url}/blob/{self.notebooks_branch}/{stem}.ipynb"

    def download(self, stem: str) -> str:
        """The file of the notebook ``stem``."""
        return f"{self.repository_url}/raw/{self.notebooks_branch}/{stem}.ipynb"

    def page(self, page: str) -> str:
        """The page of the site with this name in ``_toc.yml``."""
        return f"{self.site}{page}.html"


# Which files show an address, and the text around it; a group has the name of the attribute that it holds.
REQUIREMENT = rf'pip install [\w -]*\\?"(?P<requirement>{NAME} @ git\+[^\s"\\]+)'
PLACES = (
    ("README.md", rf"https://github\.com/(?P<repository>{NAME}/{NAME})/actions/workflows/"),
    ("README.md", r"^- The pages: <(?P<site>[^>]+)>"),
    ("CITATION.cff", r"^repository-code: (?P<repository_url>\S+)"),
    ("CITATION.cff", r"^url: (?P<site>\S+)"),
    ("CITATION.cff", r"^version: (?P<version>\S+)"),
    ("LICENSE-text.md", r"^> (?P<repository_url>https://[^\s,]+), CC BY"),
    ("_config.yml", r"^repository:\s+url: (?P<repository_url>\S+)"),
    ("_config.yml", r"^  branch: (?P<branch>\S+)"),
    ("pyproject.toml", r'^\[project\]\s+name = "(?P<package>[^"]+)"'),
    ("pyproject.toml", r'^Repository = "(?P<repository_url>[^"]+)"'),
    ("pyproject.toml", r'^Documentation = "(?P<site>[^"]+)"'),
    ("book/how-to-use.md", rf"git clone (?P<repository_url>\S+)\s+cd (?P<name>{NAME})"),
    ("book/your-corpus.md", REQUIREMENT),
    ("notebooks/*.ipynb", REQUIREMENT),
    ("tools/template.ipynb", REQUIREMENT),
    (".github/workflows/*.yml", r"refs/heads/(?P<branch>[\w./-]+)"),
    ("posgeom/**/*.py", rf"the extra (?P<package>{NAME})\["),
)


def stale(address: Address, *, write: bool = False) -> Iterator[str]:
    """Each place that is behind ``address``: where, what stands there, what belongs there."""
    for files, pattern in PLACES:
        places = 0
        for path in sorted(address.root.glob(files)):
            # Bytes in and bytes out: nothing of a file changes but its addresses, line ends included.
            text, new, done = path.read_bytes().decode("utf-8"), "", 0
            for match in re.finditer(pattern, text, re.M):
                places += 1
                for name, found in match.groupdict().items():
                    wanted = getattr(address, name)
                    if found != wanted:
                        line = text.count("\n", 0, match.start(name)) + 1
                        where = path.relative_to(address.root).as_posix()
                        yield f"{where}:{line}: {found} should be {wanted}"
                    new += text[done : match.start(name)] + wanted
                    done = match.end(name)
            new += text[done:]
            if write and new != text:
                path.write_bytes(new.encode("utf-8"))
        if not places:
            yield f"{files}: no address at {pattern}, where PLACES in tools/address.py expects one"


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="bring the files up to date")
    options = parser.parse_args(arguments)
    try:
        address = Address.load(root)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.write:
        for line in stale(address, write=True):
            print(line.replace(" should be ", " is now "))
    problems = list(stale(address))
    if problems:
        print(*problems, f"`python tools/address.py --write` follows {SOURCE}", sep="\n", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
