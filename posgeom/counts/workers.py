"""Who tokenises and counts the batches of a corpus: this machine, or the workers of a Dask cluster.

Either way a batch of texts becomes a :class:`~posgeom.counts.running.Part`, and whoever reads the corpus adds
the parts in the order of the texts. So nothing in a report depends on who counted.
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

from posgeom import __version__
from posgeom.counts.running import Layout, Part
from posgeom.counts.tokenizers import Tokenisation

__all__ = ["ClusterError", "Counting", "on_cluster", "on_this_machine"]

CONNECT_SECONDS = 5.0
# A cluster that starts its workers when there is work may take a while.
WORKERLESS_SECONDS = 30.0
LEAST_AHEAD = 16


class ClusterError(ConnectionError):
    """A Dask cluster that cannot be reached, or that stopped counting: which, and the cure."""


class Counting(NamedTuple):
    """``submit(texts, first)`` has a batch counted and returns what waits for its part.

    ``first``: the number of its first text in the stream. ``ahead``: how many batches to have under way.
    """

    submit: Callable[[list[str], int], Callable[[], Part]]
    ahead: int


@contextmanager
def on_this_machine(tokens: Tokenisation, layout: Layout) -> Iterator[Counting]:
    """Two threads: while one batch is tokenised, the one before is counted and the next is read."""
    pool = ThreadPoolExecutor(2)
    try:
        yield Counting(
            lambda texts, first: pool.submit(lambda: layout.count(tokens.ids(texts), first)).result, ahead=3
        )
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def on_cluster(address: str, tokens: Tokenisation, layout: Layout) -> Iterator[Counting]:
    """The workers of the Dask scheduler at ``address``, such as ``tcp://10.0.0.1:8786``.

    A batch is a task without side effects: when its worker dies, Dask gives it to another one. The tokenizer
    goes to each worker once, so that workers need nothing of the corpus and no network, but this package.

    Raises
    ------
    ImportError
        without the library ``distributed``.
    ClusterError
        for a scheduler that does not answer, or stops to; for one that stays without a worker; for workers
        with another version of this package; for a batch that several workers died of.
    """
    try:
        import distributed
        from distributed.comm import CommClosedError, get_address_host_port
    except ImportError as error:
        raise ImportError(
            "--dask needs the library distributed: pip install distributed (the extra posgeom[dask])"
        ) from error
    try:
        # A client that was not made well takes ten seconds to go.
        get_address_host_port(address)
    except ValueError as error:
        raise ClusterError(
            f"{address!r} is no address of a Dask scheduler, which is like tcp://10.0.0.1:8786 ({error})"
        ) from error
    try:
        client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except OSError as error:
        raise ClusterError(
            f"no Dask scheduler answers at {address}: start one with `dask scheduler`, and pass the address "
            "that it prints"
        ) from error

    def submit(texts: list[str], first: int) -> Callable[[], Part]:
        # Pickled here, a batch is one object to Dask, which would look for tasks in a list.
        task = client.submit(_count, opened, layout, pickle.dumps(texts), first, __version__, pure=False)
        return lambda: result(task)

    def result(task: distributed.Future) -> Part:
        since = time.monotonic()
        with explained():
            while True:
                try:
                    return task.result(timeout=1.0)
                except TimeoutError:
                    if client.nthreads():
                        since = time.monotonic()
                    elif time.monotonic() - since > WORKERLESS_SECONDS:
                        raise ClusterError(
                            f"the scheduler at {address} has had no worker for {WORKERLESS_SECONDS:.0f} "
                            f"seconds: start one with `dask worker {address}`"
                        ) from None

    @contextmanager
    def explained() -> Iterator[None]:
        try:
            yield
        except distributed.KilledWorker as error:
            raise ClusterError(
                f"workers of {address} died of the same texts one after the other, for want of memory "
                "perhaps: their logs say more"
            ) from error
        except (CancelledError, CommClosedError) as error:
            raise ClusterError(f"the scheduler at {address} has gone") from error
        except (ImportError, AttributeError, RuntimeError) as error:
            raise ClusterError(
                f"the scheduler at {address} and its workers need this package too, posgeom {__version__} "
                f"({error})"
            ) from error

    with _not_logged("distributed.client"), client:
        opened = client.submit(pickle.loads, pickle.dumps(tokens), pure=False)
        with explained():
            threads = sum(client.nthreads().values())
        yield Counting(submit, ahead=max(LEAST_AHEAD, 2 * threads))


@contextmanager
def _not_logged(name: str) -> Iterator[None]:
    """What goes wrong is raised: no traceback of another thread beside it."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _count(tokens: Tokenisation, layout: Layout, texts: bytes, first: int, version: str) -> Part:
    if version != __version__:
        raise ImportError(f"a worker has posgeom {__version__}")
    return layout.count(tokens.ids(pickle.loads(texts)), first)
