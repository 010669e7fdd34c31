"""Windows and macOS: nothing in the package that only POSIX has, no encoding that the machine chooses."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "posgeom").rglob("*.py"))
MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
NAMES = {
    "os": "chown fork forkpty geteuid getuid getpgid kill killpg mkfifo nice sched_getaffinity setsid",
    "signal": "SIGALRM SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGUSR1 SIGUSR2 alarm pause setitimer",
    "time": "tzset",
}  # fmt: skip


def faults(source: str) -> list[str]:
    """What of a module only POSIX has, unless hasattr asks for it, or leaves an encoding to the machine."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else names
            found += [module for module in modules if module.split(".")[0] in MODULES]
            if isinstance(node, ast.ImportFrom):
                found += [name for name in names if name in NAMES.get(node.module, "").split()]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module, name = node.value.id, node.attr
            asked = re.search(rf"hasattr\({module}, ['\"]{name}['\"]\)", source)
            if name in NAMES.get(module, "").split() and not asked or (module, name) == ("os", "rename"):
                found.append(f"{module}.{name}")
        elif isinstance(node, ast.Call):
            given = {keyword.arg for keyword in node.keywords}
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            text = called in ("read_text", "write_text")
            if called == "open" and isinstance(node.func, ast.Name):
                mode = node.args[1] if len(node.args) > 1 else None
                text = not (isinstance(mode, ast.Constant) and "b" in mode.value)
            if text and "encoding" not in given:
                found.append(f"{called}() without encoding")
            if "preexec_fn" in given:
                found.append("preexec_fn")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_module_needs_nothing_of_posix_and_names_its_encodings(path):
    assert faults(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source, fault",
    [
        ("import fcntl", "fcntl"),
        ("from resource import getrlimit", "resource"),
        ("from os import fork", "fork"),
        ("import os\nos.kill(1, 9)", "os.kill"),
        ("import signal\nsignal.SIGKILL", "signal.SIGKILL"),
        ("import os\nos.sched_getaffinity(0)", "os.sched_getaffinity"),
        ("import os\nos.rename(a, b)", "os.rename"),
        ("open('x')", "open() without encoding"),
        ("path.write_text('x')", "write_text() without encoding"),
        ("import os\nos.sched_getaffinity(0) if hasattr(os, 'sched_getaffinity') else 1", None),
        ("from importlib import resources\nopen('x', 'rb')\nopen('x', encoding='utf-8')", None),
    ],
)
def test_what_is_looked_for_is_found(source, fault):
    assert faults(source) == ([fault] if fault else [])
