"""Counting on a cluster: the same report as on one machine, whatever becomes of the workers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from posgeom.counts import workers as counting
from posgeom.counts.running import Layout
from posgeom.counts.tokenizers import Tokenisation
from posgeom.counts.workers import ClusterError, Counting, on_cluster
from posgeom.diagnosis import cli, reading
from posgeom.diagnosis.measures import diagnose
from tests.corpora_for_tests import arc_texts

ROOT = Path(__file__).parents[2]
# With repetitions, texts too short for a class, and a long one.
TEXTS = arc_texts(6000, 9, -0.5)
TEXTS += [*TEXTS[:100], *["w1", "w2 w3"] * 10, "w1 " * 3000]
LAYOUT = Layout((3,), 2, 1 << 22)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(reading, "BATCH_TEXTS", 64)


# --- workers that die -----------------------------------------------------------------------------------


class Assassin:
    """Stops a worker half-way, and kills it when it has batches whose counts nobody else has."""

    def __init__(self, cluster) -> None:
        self.nanny = cluster.workers[0]
        self.worker = cluster.scheduler.workers[self.nanny.worker_address]
        self.thread = threading.Thread(target=self.kill)
        self.lost = 0

    def __call__(self, stage: str, share: float | None, texts: int) -> None:
        if self.thread.ident is None and texts >= len(TEXTS) / 2:
            os.kill(self.nanny.pid, signal.SIGSTOP)
            self.thread.start()

    def kill(self) -> None:
        end = time.monotonic() + 30
        while not self.lost and time.monotonic() < end:
            time.sleep(0.01)
            held = [*self.worker.processing, *self.worker.has_what]
            self.lost = sum(task.key.startswith("_count") for task in held)
        os.kill(self.nanny.pid, signal.SIGKILL)


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="a process is stopped half-way by POSIX only")
@pytest.mark.parametrize("tokenizer", ["whitespace", "bert-base-uncased"])
def test_a_worker_that_is_killed_half_way_changes_no_number(tokenizer, cluster):
    cluster.wait_for_workers(2)
    assassin = Assassin(cluster)
    found = diagnose(TEXTS, tokenizer=tokenizer, dask=cluster.scheduler_address, progress=assassin)
    assassin.thread.join()
    assert assassin.lost > 0 and assassin.worker.status.name == "closed"
    alone = diagnose(TEXTS, tokenizer=tokenizer)
    assert found.counts == alone.counts
    assert found.as_dict() == alone.as_dict()


class Deadly(Tokenisation):
    def ids(self, texts):
        os._exit(1)


def test_texts_that_kill_every_worker_end_the_run(cluster, monkeypatch):
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 0)
    with on_cluster(cluster.scheduler_address, Deadly("whitespace"), LAYOUT) as counter:
        part = counter.submit(["a b c"], 0)
        with pytest.raises(ClusterError, match="died of the same texts one after the other"):
            part()


# --- interrupted, and gone on from ----------------------------------------------------------------------


@pytest.mark.parametrize("first", ["cluster", "here"])
@pytest.mark.parametrize("deduplicate", [False, True])
def test_a_run_goes_on_elsewhere(first, deduplicate, cluster, tmp_path):
    def interrupt(stage, share, texts):
        if texts >= 3000:
            raise KeyboardInterrupt

    options = {"tokenizer": "whitespace", "deduplicate": deduplicate, "state": tmp_path / "state"}
    dask = {"cluster": cluster.scheduler_address, "here": None}
    with pytest.raises(KeyboardInterrupt):
        diagnose(TEXTS, dask=dask.pop(first), progress=interrupt, **options)
    read = []
    (second,) = dask.values()
    found = diagnose(TEXTS, dask=second, progress=lambda stage, share, texts: read.append(texts), **options)
    assert read[0] > 3000 and not options.pop("state").exists()
    assert found.as_dict() == diagnose(TEXTS, **options | {"state": None}).as_dict()


# --- a cluster that cannot be used ----------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def test_nobody_at_that_address(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(counting, "CONNECT_SECONDS", 1.0)
    corpus = tmp_path / "x.txt"
    corpus.write_text("\n".join(TEXTS), encoding="utf-8")
    nobody = f"tcp://127.0.0.1:{free_port()}"
    for address, message in (
        (nobody, f"no Dask scheduler answers at {nobody}: start one with `dask scheduler`"),
        ("localhost", "'localhost' is no address of a Dask scheduler, which is like tcp://"),
        ("", "'' is no address of a Dask scheduler"),
        ("carrier-pigeon://x:1", "'carrier-pigeon://x:1' is no address of a Dask scheduler"),
    ):
        started = time.monotonic()
        status = cli.main(["stress", str(corpus), "--tokenizer", "whitespace", "--dask", address])
        seen = capsys.readouterr()
        assert status == 1 and seen.out == "" and seen.err.startswith(f"posgeom: {message}")
        assert seen.err.count("\n") == 1 and time.monotonic() - started < 8


def test_a_scheduler_without_workers(monkeypatch):
    from distributed import LocalCluster

    monkeypatch.setattr(counting, "WORKERLESS_SECONDS", 0.1)
    with LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=":0") as idle:
        address = idle.scheduler_address
        with pytest.raises(ClusterError, match=f"no worker for .*: start one with `dask worker {address}`"):
            diagnose(TEXTS, tokenizer="whitespace", dask=address)


def test_workers_with_another_version(cluster, monkeypatch):
    monkeypatch.setattr(counting, "__version__", "9.9")
    with pytest.raises(ClusterError, match=r"need this package too, posgeom 9\.9 \(a worker has posgeom 0\."):
        diagnose(TEXTS, tokenizer="whitespace", dask=cluster.scheduler_address)


def test_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"pip install distributed \(the extra posgeom\[dask\]\)"):
        diagnose(TEXTS, tokenizer="whitespace", dask="tcp://127.0.0.1:8786")


class Wide(Tokenisation):
    def ids(self, texts):
        return [ids + self.vocab_size for ids in super().ids(texts)]


def test_a_fault_of_the_tokens_is_told_as_without_a_cluster(cluster):
    with on_cluster(cluster.scheduler_address, Wide("whitespace"), LAYOUT) as counter:
        with pytest.raises(ValueError, match="text 7: the tokenizer gives the id"):
            counter.submit(["a b c"], 7)()


# --- memory ---------------------------------------------------------------------------------------------


def test_no_more_batches_are_under_way_than_that(cluster, monkeypatch):
    under_way, most = 0, []

    @contextmanager
    def watched(address, tokens, layout):
        with on_cluster(address, tokens, layout) as counter:

            def submit(texts, first):
                nonlocal under_way
                under_way += 1
                most.append(under_way)
                part = counter.submit(texts, first)

                def result():
                    nonlocal under_way
                    found = part()
                    under_way -= 1
                    return found

                return result

            yield Counting(submit, counter.ahead)

    monkeypatch.setattr(reading, "on_cluster", watched)
    diagnose(TEXTS, tokenizer="whitespace", dask=cluster.scheduler_address)
    assert max(most) == counting.LEAST_AHEAD and under_way == 0 and len(most) == -(-len(TEXTS) // 64)


COUNT = """
from posgeom.diagnosis import reading; from posgeom.counts import running as tally
tally.BLOCK_CELLS = 1 << 16
reading.read_corpus("-", reading.Settings(tokenizer="whitespace"), None, lambda *_: None)
print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
"""


def peak_megabytes(times: int) -> float:
    """The most memory that counting the same 5,000 texts so many times ever takes."""
    block = "".join(f"{text}\n" for text in TEXTS[:5000]).encode()
    process = subprocess.Popen(
        [sys.executable, "-c", COUNT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    for _ in range(times):
        process.stdin.write(block)
    kilobytes, _ = process.communicate()
    assert process.returncode == 0
    return int(kilobytes) / 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc")
def test_memory_does_not_grow_with_the_texts():
    assert peak_megabytes(80) - peak_megabytes(30) < 6
