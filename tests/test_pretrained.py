"""The position table of a BERT: from the packaged file, from a folder, from a loaded model."""

import subprocess
import sys

import numpy as np
import pytest

from posgeom.packaged import package_path
from posgeom.pretrained import MINILM, MINILM_FILE, position_table

st = pytest.importorskip("safetensors.numpy")


def packaged():
    try:
        return package_path(MINILM, MINILM_FILE)
    except ValueError:
        pytest.skip(f"{MINILM} is not installed")


def test_minilm_has_512_positions_that_are_the_files():
    path = packaged()
    P = position_table("minilm")
    assert P.shape == (512, 384) and P.dtype == np.float64
    np.testing.assert_array_equal(P, st.load_file(path)["embeddings.position_embeddings.weight"])
    # [CLS] always stands at position 0, and its vector is an outlier.
    lengths = np.linalg.norm(P, axis=1)
    assert lengths[0] > 1.5 * np.median(lengths)


def test_minilm_is_read_without_torch():
    packaged()
    code = (
        "import sys; from posgeom.pretrained import position_table; position_table(); "
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_folder(tmp_path):
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    other = np.ones((2, 3), np.float32)
    weights = {
        "bert.embeddings.position_embeddings.weight": table,
        "bert.embeddings.word_embeddings.weight": other,
    }
    st.save_file(weights, tmp_path / "model.safetensors")
    np.testing.assert_array_equal(position_table(tmp_path), table)
    np.testing.assert_array_equal(position_table(str(tmp_path)), table)


def test_a_loaded_model():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        max_position_embeddings=6,
    )  # fmt: skip
    model = transformers.BertModel(config).bfloat16()
    P = position_table(model)
    assert P.shape == (6, 8) and P.dtype == np.float64
    np.testing.assert_array_equal(P, model.embeddings.position_embeddings.weight.detach().double().numpy())


def test_what_is_no_model_is_named(tmp_path):
    with pytest.raises(ValueError, match="unknown model 'bert-large'"):
        position_table("bert-large")
    with pytest.raises(ValueError, match="unknown model 3"):
        position_table(3)
    with pytest.raises(ValueError, match="has no model.safetensors"):
        position_table(tmp_path)
    st.save_file({"weight": np.zeros(3, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="0 tables named position_embeddings.weight"):
        position_table(tmp_path)
