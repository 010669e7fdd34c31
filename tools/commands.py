"""The commands of a set-up: run quietly or watched, and what helps when they fail.

On a terminal uv draws a bar for each package that it fetches. `watch` gives it one, reads the bars and prints
a line of them: each second where a person looks on, each quarter of a minute where it goes into a file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

AGAIN = "then run the same command again: what has come is kept"
# What a failed command says, and the sentence that a person needs.
CURES = {
    r"No space left|os error 28\b|Disk quota": f"the disk is full: make room for 3 GB, {AGAIN}",
    r"dns error|name resolution|unreachable|refused|timed out|NewConnectionError": (
        f"no package index answers: mend the network, or what pip is told of index and proxy, {AGAIN}"
    ),
    r"Permission denied|Read-only file": f"a folder cannot be written: make it writable, {AGAIN}",
    r"ensurepip|No module named '?venv": (
        f"this Python has no venv: on Debian and Ubuntu `apt install python3-venv`, {AGAIN}"
    ),
}
# A bar of uv, `torch   ------------   16.00 MiB/182.91 MiB`, and what its units are in megabytes.
BAR = re.compile(r"(?<=\s)([\w.-]+) +-+ +([\d.]+) (\w*B)/([\d.]+) (\w*B)")
MEGABYTES = {"B": 1e-6, "KiB": 1.024e-3, "MiB": 1.048576, "GiB": 1073.741824}
ESCAPE = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")
SECONDS = 15
# Characters of output: more than uv needs to draw each bar once.
WINDOW = 20_000


class Failed(Exception):
    """A command failed; the message has its last words."""


def cure(words: str) -> str | None:
    """The sentence for a failure that is known."""
    return next((cure for sign, cure in CURES.items() if re.search(sign, words, re.IGNORECASE)), None)


def ask(*command: str, **environment: str) -> str:
    """What ``command`` prints."""
    run = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, errors="replace"
    )
    if run.returncode:
        raise Failed(f"{' '.join(command)}\n{run.stdout}{run.stderr}")
    return run.stdout


def watch(command: list[str], megabytes: float) -> None:
    """Run ``command``, which has ``megabytes`` to fetch, and say how far it is."""
    import pty  # Windows lacks these two
    import termios

    ours, theirs = pty.openpty()
    # Wide and high enough for every bar, and for blanks between two.
    termios.tcsetwinsize(theirs, (100, 160))
    started = said = time.monotonic()
    where = {"stdin": subprocess.DEVNULL, "stdout": theirs, "stderr": theirs}
    with subprocess.Popen(command, env=os.environ | {"NO_COLOR": "1"}, **where) as run:
        os.close(theirs)
        text, bars = "", {}
        while chunk := _read(ours):
            text = ESCAPE.sub(" ", text + chunk)[-WINDOW:]
            drawn = _bars(text)
            # A bar that is no longer drawn has come to its end.
            bars = {name: (total, total) for name, (_, total) in bars.items()} | drawn
            if time.monotonic() - said > (1 if sys.stdout.isatty() else SECONDS):
                said = time.monotonic()
                _say(f"    {said - started:.0f} s: {_progress(bars, drawn, megabytes) or _last_line(text)}")
    os.close(ours)
    if run.returncode:
        raise Failed(f"{' '.join(command)}\n{text[-2_000:]}")


def _read(terminal: int) -> str:
    try:
        return os.read(terminal, 4096).decode(errors="replace")
    except OSError:  # how Linux says that the other end is closed
        return ""


def _bars(text: str) -> dict[str, tuple[float, float]]:
    return {
        name: (float(done) * MEGABYTES[unit], float(total) * MEGABYTES[of])
        for name, done, unit, total, of in BAR.findall(text)
    }


def _progress(bars: dict, drawn: dict, megabytes: float) -> str:
    if not bars:
        return ""
    fetched, known = (sum(column) for column in zip(*bars.values(), strict=True))
    line = f"{fetched:,.0f} of {max(megabytes, known):,.0f} MB"
    if drawn:
        name, (done, total) = max(drawn.items(), key=lambda bar: bar[1][1] - bar[1][0])
        line += f"; {name}: {done:,.1f} of {total:,.1f} MB"
    return line


def _last_line(text: str) -> str:
    return re.split(r"[\r\n]+", text.strip())[-1].strip()[:70]


def _say(line: str) -> None:
    person = sys.stdout.isatty()
    print(f"{line:<78}" if person else line, end="\r" if person else "\n", flush=True)
