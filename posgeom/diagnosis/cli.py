"""``posgeom stress`` and ``posgeom compare``: the diagnostic from a terminal."""

from __future__ import annotations

import argparse
import glob
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from posgeom import __version__
from posgeom.diagnosis.printing import printable

__all__ = ["main"]

OK, BAD_DATA, USAGE, INTERRUPTED, TERMINATED, BROKEN_PIPE, INTERNAL = 0, 1, 2, 130, 143, 141, 70

# So long a count has been kept at least once, and whoever waits may want to end it.
LONG_SECONDS = 20.0

STRESS_HELP = """\
How much positional structure a corpus has beyond sampling noise, in how many
dimensions, and which positional encoding fits it."""

EXAMPLES = """\
examples:
  posgeom stress reviews.csv                        the report, on the terminal
  posgeom stress reviews.csv --html report.html     and as one HTML file
  posgeom stress reviews.csv --json > report.json   every number
  zcat dump.jsonl.gz | posgeom stress - --format jsonl --column body
  posgeom stress hf:stanfordnlp/imdb:text -n 254
  posgeom stress dump.jsonl.gz --dask tcp://10.0.0.1:8786
  posgeom compare reviews.csv news.csv
  posgeom compare reviews.csv --tokenizer bert-base-uncased --tokenizer whitespace

FILE is a .txt (one text a line), .jsonl, .csv, .tsv (a column text or sentence,
or --column) or .parquet file, the first four also with gzip; a folder of them;
- for standard input; hf:owner/name:column for a dataset of the Hugging Face hub;
or one of the book's corpora by name (imdb, rotten_tomatoes, bbc_news, ...).

exit status: 0 done; 1 the corpus, tokenizer, cluster or output cannot be used;
2 wrong usage; 130 interrupted, 143 terminated (with --html, the counts so far
are kept). Where interruptions are ignored, as after `command &` in a script,
SIGTERM ends it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments (those of the process by default); returns the exit status."""
    debug = "--debug" in (sys.argv[1:] if arguments is None else arguments)
    try:
        options = _parser().parse_args(arguments)
        _check_outputs(options)
        previous = _on_terminate()
        try:
            status = options.run(options)
        finally:
            _restore(previous)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # Nobody reads any more: no second error when the interpreter flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        _say("interrupted" + _kept(locals().get("options")))
        return INTERRUPTED
    except _Terminated:
        _say("terminated" + _kept(locals().get("options")))
        return TERMINATED
    except (ValueError, OSError, ImportError, MemoryError) as error:
        if debug:
            traceback.print_exc()
        from posgeom.diagnosis.reading import OUTAGES

        _say(_in_one_line(error) + (_kept(locals().get("options")) if isinstance(error, OUTAGES) else ""))
        return BAD_DATA
    except Exception as error:
        if debug:
            traceback.print_exc()
            return INTERNAL
        _say(
            f"a fault of the program ({type(error).__name__}: {_in_one_line(error)}); "
            "run it again with --debug and report what it prints"
        )
        return INTERNAL


class _Terminated(BaseException):
    """SIGTERM: end as after an interruption, with the counts kept."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="posgeom",
        description="The positional geometry of a corpus.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"posgeom {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    stress = commands.add_parser(
        "stress",
        help="diagnose one corpus",
        description=STRESS_HELP,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    stress.add_argument("file", metavar="FILE", help="the corpus")
    _common(stress, tokenizers=1)
    stress.set_defaults(run=_stress)

    compare = commands.add_parser(
        "compare",
        help="compare two corpora, or one at two tokenizers",
        description="Two corpora, or one corpus at two tokenizers: which positional numbers differ.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    compare.add_argument("file", metavar="A", help="the first corpus")
    compare.add_argument("other", metavar="B", nargs="?", help="the second; left out: A at two tokenizers")
    _common(compare, tokenizers=2)
    compare.set_defaults(run=_compare, parser=compare)
    return parser


def _common(parser: argparse.ArgumentParser, *, tokenizers: int) -> None:
    output = parser.add_argument_group("output")
    output.add_argument("--html", metavar="PATH", help="also write the report as one HTML file")
    output.add_argument("--json", action="store_true", help="print every number as JSON instead of the text")
    output.add_argument("-q", "--quiet", action="store_true", help="no progress on a terminal")
    output.add_argument("--debug", action="store_true", help="a traceback with an error")

    reading = parser.add_argument_group("reading")
    reading.add_argument("--column", metavar="NAME", help="the column of texts (default: text or sentence)")
    reading.add_argument(
        "--format",
        choices=("txt", "jsonl", "csv", "tsv", "parquet"),
        help="where no name tells it (default on standard input: txt)",
    )
    reading.add_argument(
        "--split", default="train", metavar="NAME", help="of a dataset of the hub (default: train)"
    )
    reading.add_argument("--whole-files", action="store_true", help="each .txt file is one text")
    reading.add_argument(
        "--deduplicate", action="store_true", help="leave repeated texts out (memory grows with the texts)"
    )
    named = (
        "bert-base-uncased (default), whitespace, a folder with tokenizer.json or vocab.txt, or a hub name"
    )
    if tokenizers == 1:
        reading.add_argument("--tokenizer", metavar="NAME", default="bert-base-uncased", help=named)
    else:
        reading.add_argument(
            "--tokenizer",
            metavar="NAME",
            action="append",
            help=f"{named}; given twice: one for A, one for B",
        )
    reading.add_argument(
        "--special-tokens",
        choices=("drop", "keep", "drop_cls"),
        default="drop",
        help="keep [CLS] and [SEP], or [SEP] alone (default: drop both)",
    )
    reading.add_argument("--state", metavar="PATH", help="keep the counts here if the run is interrupted")
    reading.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="tokenise and count on the workers of this Dask scheduler, such as tcp://10.0.0.1:8786",
    )

    measuring = parser.add_argument_group("measuring")
    measuring.add_argument(
        "-n",
        type=_positions,
        metavar="N",
        help="positions (default: as many as half of the texts have, at most 256)",
    )
    measuring.add_argument(
        "--width", type=_at_least(1), default=64, metavar="D", help="of the encodings (default: 64)"
    )
    measuring.add_argument(
        "--shuffles",
        type=_at_least(19),
        default=19,
        metavar="K",
        help="for the edge of the noise (default: 19, the fewest)",
    )
    measuring.add_argument(
        "--groups", type=_at_least(2), default=8, metavar="G", help="of the jackknife (default: 8)"
    )
    measuring.add_argument("--seed", type=_at_least(0), default=0, metavar="S", help="(default: 0)")
    measuring.add_argument("--jobs", type=_at_least(1), metavar="J", help="processes (default: all cores)")


def _at_least(minimum: int):
    def integer(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not an integer") from None
        if value < minimum:
            raise argparse.ArgumentTypeError(f"must be at least {minimum}, not {value}")
        return value

    return integer


def _positions(text: str) -> int:
    value = _at_least(3)(text)
    if value > 8192:
        raise argparse.ArgumentTypeError(f"must be at most 8192, not {value}")
    return value


# --- the commands ---------------------------------------------------------------------------------------


def _stress(options: argparse.Namespace) -> int:
    from posgeom.diagnosis import report
    from posgeom.diagnosis.measures import diagnose

    state = _state(options)
    with _Progress(options) as progress:
        diagnosis = diagnose(
            options.file,
            _settings(options, options.tokenizer),
            jobs=_jobs(options),
            state=state,
            dask=options.dask,
            progress=progress,
        )
    return _print(options, diagnosis, report.as_text, report.as_html)


def _compare(options: argparse.Namespace) -> int:
    tokenizers = options.tokenizer or ["bert-base-uncased"]
    if len(tokenizers) > 2:
        options.parser.error("--tokenizer can be given twice, once for A and once for B")
    if options.other is None and len(tokenizers) < 2:
        options.parser.error("give a second corpus, or --tokenizer twice to compare one corpus with itself")
    if options.file == "-" and options.other in (None, "-"):
        options.parser.error("standard input can be read once only: put the corpus into a file")

    from posgeom.diagnosis import report
    from posgeom.diagnosis.two_corpora import contrast

    state = _state(options)
    states = None if state is None else tuple(state.with_name(f"{state.name}.{k}") for k in "ab")
    with _Progress(options) as progress:
        found = contrast(
            options.file,
            options.file if options.other is None else options.other,
            (_settings(options, tokenizers[0]), _settings(options, tokenizers[-1])),
            jobs=_jobs(options),
            states=states,
            dask=options.dask,
            progress=progress,
        )
    return _print(options, found, report.contrast_as_text, report.contrast_as_html)


def _settings(options: argparse.Namespace, tokenizer: str):
    from posgeom.diagnosis.reading import OPTIONS, Settings

    chosen = {name: getattr(options, name) for name in OPTIONS if name != "tokenizer"}
    return Settings(tokenizer=tokenizer, **chosen)


def _jobs(options: argparse.Namespace) -> int:
    if options.jobs is not None:
        return options.jobs
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# --- output ---------------------------------------------------------------------------------------------


def _print(options: argparse.Namespace, found, as_text: Callable, as_html: Callable) -> int:
    """The report, in the forms that were asked for."""
    from posgeom.diagnosis import report

    if options.html:
        report.write(options.html, as_html(found))
    sys.stdout.write(json.dumps(found.as_dict(), indent=1) + "\n" if options.json else as_text(found))
    return OK


def _state(options: argparse.Namespace) -> Path | None:
    if options.state:
        return Path(options.state)
    if options.html:
        html = Path(options.html)
        return html.with_name(f"{html.name}.state")
    return None


def _kept(options: argparse.Namespace | None) -> str:
    state = _state(options) if options is not None else None
    kept = [] if state is None else [path for path in state.parent.glob(f"{glob.escape(state.name)}*")]
    if not kept:
        return ""
    return f"; the counts so far are in {kept[0]}: the same command goes on from there"


def _check_outputs(options: argparse.Namespace) -> None:
    """What cannot be written is told before an hour of counting, not after it."""
    for path in filter(None, (options.html, _state(options))):
        path = Path(path)
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder: give the path of a file to write")
        if not path.parent.is_dir():
            raise FileNotFoundError(f"{path}: there is no folder {path.parent} to write it to")
        if not _writable(path.parent) or (path.exists() and not _writable(path)):
            raise PermissionError(f"{path} cannot be written: no permission")
        for corpus in (options.file, getattr(options, "other", None)):
            if corpus and Path(corpus).exists() and path.exists() and path.samefile(corpus):
                raise ValueError(f"{path} is the corpus itself: give the report another name")


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _say(message: str) -> None:
    try:
        print(f"posgeom: {printable(message)}", file=sys.stderr, flush=True)
    except OSError:
        # Nobody is left to be told; the exit status says it.
        pass


def _in_one_line(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"{where}{error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


class _Progress:
    """One line on standard error, rewritten in place; nothing where that is no terminal.

    A count that goes on for long and cannot be interrupted says once how it is ended, there as well.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.shown = sys.stderr.isatty() and not options.quiet
        # Python leaves SIGINT ignored where it was: the shell of a script wants that for `command &`.
        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        self.to_say = ignored and not options.quiet and _state(options) is not None
        self.begun = time.monotonic()
        self.stage: str | None = None
        self.started = self.last = 0.0
        self.first_share = 0.0
        self.first_texts = 0

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self._clear()

    def _clear(self) -> None:
        if self.shown and self.stage is not None:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def __call__(self, stage: str, share: float | None, texts: int) -> None:
        now = time.monotonic()
        if self.to_say and stage.startswith("reading") and now - self.begun >= LONG_SECONDS:
            self.to_say = False
            self._clear()
            _say(
                "it was started with interruptions ignored, so Ctrl-C and SIGINT do nothing: "
                f"kill {os.getpid()} (SIGTERM) ends it and keeps the counts so far"
            )
        if not self.shown:
            return
        if stage != self.stage:
            self.stage, self.started, self.last = stage, now, 0.0
            self.first_share, self.first_texts = share or 0.0, texts
        if now - self.last < 0.1:
            return
        self.last = now
        sys.stderr.write(f"\r\x1b[K{self.line(stage, share, texts, now - self.started)}")
        sys.stderr.flush()

    def line(self, stage: str, share: float | None, texts: int, seconds: float) -> str:
        words = [stage]
        if stage.startswith("reading"):
            words.append(f"{texts:,} texts")
            if seconds > 0.5:
                words.append(f"{(texts - self.first_texts) / seconds:,.0f}/s")
        if share is not None:
            words.append(f"{share:.0%}")
            gone = share - self.first_share
            if seconds > 0.5 and gone > 0:
                words.append(f"{_clock(seconds * (1 - share) / gone)} left")
        return "  ".join(words)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


# --- signals --------------------------------------------------------------------------------------------


def _on_terminate():
    def terminate(*_) -> None:
        raise _Terminated

    try:
        return signal.signal(signal.SIGTERM, terminate)
    except ValueError:
        # Signals belong to the main thread; elsewhere the caller minds them.
        return None


def _restore(previous) -> None:
    if previous is not None:
        signal.signal(signal.SIGTERM, previous)


if __name__ == "__main__":
    sys.exit(main())
