"""Which model is loaded, and never another; its table, its attention, its hidden states."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from posgeom.corpora.packaged import package_path
from posgeom.models import pretrained
from posgeom.models.pretrained import (
    BERT_BASE_SHA256,
    MINILM,
    MINILM_FILE,
    PINNED,
    hidden_means,
    layer_matrices,
    load_bert,
    position_table,
)

st = pytest.importorskip("safetensors.numpy")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TINY = {
    "model_type": "bert", "vocab_size": 11, "hidden_size": 8, "num_hidden_layers": 2,
    "num_attention_heads": 2, "intermediate_size": 12, "max_position_embeddings": 6, "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
}  # fmt: skip
REVISION = "0123456789abcdef0123456789abcdef01234567"


def packaged() -> Path:
    try:
        return package_path(MINILM, MINILM_FILE)
    except ValueError:
        pytest.skip(f"{MINILM} is not installed")


def weights_of(config: dict, seed: int = 0) -> dict[str, np.ndarray]:
    """Random weights named as ``bert-base-uncased``'s on the hub: prefix, heads, gamma and beta of norms."""
    rng, d = np.random.default_rng(seed), config["hidden_size"]
    shapes = {
        f"bert.embeddings.{part}_embeddings.weight": (rows, d)
        for part, rows in (
            ("word", config["vocab_size"]), ("position", config["max_position_embeddings"]), ("token_type", 2)
        )
    }  # fmt: skip
    norms = ["bert.embeddings.LayerNorm", "cls.predictions.transform.LayerNorm"]
    linear = {
        "bert.pooler.dense": (d, d),
        "cls.predictions.transform.dense": (d, d),
        "cls.seq_relationship": (2, d),
    }
    for layer in range(config["num_hidden_layers"]):
        prefix = f"bert.encoder.layer.{layer}."
        norms += [f"{prefix}attention.output.LayerNorm", f"{prefix}output.LayerNorm"]
        linear |= {f"{prefix}attention.self.{part}": (d, d) for part in ("query", "key", "value")}
        linear |= {f"{prefix}attention.output.dense": (d, d)}
        linear |= {f"{prefix}intermediate.dense": (config["intermediate_size"], d)}
        linear |= {f"{prefix}output.dense": (d, config["intermediate_size"])}
    for name, (rows, columns) in linear.items():
        shapes |= {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}
    shapes |= {"cls.predictions.bias": (config["vocab_size"],)}
    drawn = {name: 0.2 * (rng.random(shape, np.float32) - 0.5) for name, shape in shapes.items()}
    for name in norms:
        drawn[f"{name}.gamma"] = 1 + 0.2 * (rng.random(d, np.float32) - 0.5)
        drawn[f"{name}.beta"] = 0.2 * (rng.random(d, np.float32) - 0.5)
    return drawn


def write(folder: Path, config: dict, weights: dict[str, np.ndarray]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    st.save_file(weights, folder / "model.safetensors")
    return folder


@pytest.fixture
def tiny(tmp_path) -> Path:
    return write(tmp_path / "tiny-bert", TINY, weights_of(TINY))


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    """A folder of the shape and the names of ``bert-base-uncased``, 440 MB, gone after these tests."""
    config = TINY | {
        "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
        "intermediate_size": 3072, "max_position_embeddings": 512, "architectures": ["BertForMaskedLM"],
        "gradient_checkpointing": False, "position_embedding_type": "absolute", "type_vocab_size": 2,
    }  # fmt: skip
    folder = write(tmp_path_factory.mktemp("base") / "bert-base-uncased", config, weights_of(config))
    yield folder
    shutil.rmtree(folder)


# --- the packaged model


def test_minilm_has_512_positions_that_are_the_files():
    path = packaged()
    P = position_table("minilm")
    assert P.shape == (512, 384) and P.dtype == np.float64
    np.testing.assert_array_equal(P, st.load_file(path)["embeddings.position_embeddings.weight"])
    np.testing.assert_array_equal(P, position_table())
    # [CLS] always stands at position 0, and its vector is an outlier.
    lengths = np.linalg.norm(P, axis=1)
    assert lengths[0] > 1.5 * np.median(lengths)


def test_minilm_is_read_without_torch():
    packaged()
    code = (
        "import sys; from posgeom.models.pretrained import position_table, layer_matrices; "
        "position_table(); layer_matrices(); assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_minilm_is_the_model_that_transformers_reads_and_says_so():
    path = packaged()
    state = torch.get_rng_state()
    model = load_bert()
    assert torch.equal(torch.get_rng_state(), state) and not model.training
    assert (model.name, model.revision) == ("minilm", MINILM)
    assert "MiniLM" in model.source and MINILM in model.source and "base" not in model.source
    theirs = transformers.BertModel.from_pretrained(path.parent, local_files_only=True).eval()
    tokens = torch.tensor([[101, 2023, 2003, 1037, 3231, 102], [101, 1996, 4937, 2938, 1012, 102]])
    with torch.no_grad():
        ours, expected = model(tokens).last_hidden_state, theirs(tokens).last_hidden_state
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(position_table(model), position_table("minilm"))
    np.testing.assert_array_equal(layer_matrices(model), layer_matrices("minilm"))


def test_a_changed_file_of_the_package_is_an_error(monkeypatch):
    packaged()
    monkeypatch.setattr(pretrained, "MINILM_CONFIG_SHA256", "0" * 64)
    with pytest.raises(ValueError, match=r"config.json is not the file this book uses.*--force-reinstall"):
        load_bert("minilm")
    monkeypatch.setattr(pretrained, "MINILM_SHA256", "0" * 64)
    with pytest.raises(ValueError, match="model.safetensors is not the file this book uses"):
        position_table("minilm")


# --- folders


def test_bert_base_works_unchanged(base):
    model = load_bert(base)
    assert (model.name, model.revision) == ("bert-base-uncased", None)
    assert "no checksum" in model.source and str(base.parent) not in model.source
    with torch.no_grad():
        tokens = torch.tensor([[101, 2023, 2003, 102]])
        state = model(tokens).last_hidden_state
        theirs = transformers.BertForPreTraining.from_pretrained(base, local_files_only=True).eval().bert
        torch.testing.assert_close(state, theirs(tokens).last_hidden_state, rtol=0, atol=1e-5)
        del theirs
    weights = st.load_file(base / "model.safetensors")
    np.testing.assert_array_equal(
        position_table(model), weights["bert.embeddings.position_embeddings.weight"]
    )
    np.testing.assert_array_equal(position_table(base), position_table(model))
    matrices = layer_matrices(base)
    assert matrices.shape == (12, 768, 768)
    part = "bert.encoder.layer.7.attention.self.{}.weight"
    query, key = (weights[part.format(name)].astype(float) for name in ("query", "key"))
    np.testing.assert_allclose(matrices[7], query.T @ key, rtol=0, atol=1e-12)
    assert hidden_means(model, tokens.numpy()).means.shape == (13, 4, 768)


def test_a_folder_is_known_by_its_checksum_not_by_its_name(tiny, monkeypatch):
    sha256 = load_bert(tiny).sha256
    assert (
        load_bert(str(tiny)).source
        == f"the local folder tiny-bert: weights that this book has no checksum of, SHA-256 {sha256[:12]}"
    )
    monkeypatch.setitem(pretrained.PUBLISHED, sha256, "bert-base-uncased")
    assert "the published weights of bert-base-uncased" in load_bert(tiny).source


def test_weights_without_prefix_or_with_modern_names(tiny, tmp_path):
    expected = load_bert(tiny)
    modern = {
        name.removeprefix("bert.").replace("gamma", "weight").replace("beta", "bias"): array
        for name, array in weights_of(TINY).items()
        if name.startswith("bert.")
    }
    modern["embeddings.position_ids"] = np.arange(6)[None]
    model = load_bert(write(tmp_path / "modern", TINY, modern))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), expected.parameters(), strict=True))


def test_half_precision_weights_become_float32(tmp_path):
    weights = {name: array.astype(np.float16) for name, array in weights_of(TINY).items()}
    model = load_bert(write(tmp_path / "half", TINY, weights))
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert position_table(model).dtype == np.float64


def test_a_pickle_is_never_read(tiny):
    torch.save({"weight": torch.ones(1)}, tiny / "pytorch_model.bin")
    assert load_bert(tiny).name == "tiny-bert"
    (tiny / "model.safetensors").unlink()
    for read in (load_bert, position_table, layer_matrices):
        with pytest.raises(
            ValueError, match=r"has pytorch_model.bin but no model.safetensors: a pickle can run code"
        ):
            read(tiny)


def without(config, weights):
    del weights["bert.encoder.layer.1.attention.self.key.bias"]


def another_shape(config, weights):
    weights["bert.embeddings.position_embeddings.weight"] = np.zeros((7, 8), np.float32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without, r"lacks 1 weights .* such as encoder.layer.1.attention.self.key.bias"),
        (another_shape, r"position_embeddings.weight of shape \(7, 8\), config.json \(6, 8\)"),
        (lambda c, w: c.update(num_hidden_layers=1), r"has 16 weights .* such as encoder.layer.1.attention"),
        (lambda c, w: c.update(num_hidden_layers=3), r"lacks 16 weights"),
        (lambda c, w: c.update(model_type="roberta"), "a model of the type 'roberta' and not a BERT encoder"),
        (lambda c, w: c.update(is_decoder=True), "not a BERT encoder"),
        (lambda c, w: c.update(position_embedding_type="relative_key"), "relative positions"),
        (
            lambda c, w: w.update({"encoder.layer.0.output.dense.bias": np.zeros(8, np.float32)}),
            "holds encoder.layer.0.output.dense.bias twice",
        ),
    ],
)
def test_what_does_not_fit_is_an_error_not_a_random_weight(tmp_path, change, message):
    config, weights = dict(TINY), weights_of(TINY)
    change(config, weights)
    with pytest.raises(ValueError, match=message):
        load_bert(write(tmp_path / "other", config, weights))


def test_a_folder_without_a_readable_config(tiny):
    (tiny / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"config.json is no JSON"):
        load_bert(tiny)
    (tiny / "config.json").unlink()
    with pytest.raises(ValueError, match=r"has no config.json"):
        load_bert(tiny)


# --- names, revisions, the hub


@pytest.mark.parametrize("name", ["bert-large-uncased", "no/such/folder", "BERT base"])
def test_another_name_is_never_another_model(name):
    with pytest.raises(
        ValueError, match=f"unknown model '{name}': it is none of 'minilm', 'bert-base-uncased'"
    ):
        load_bert(name)
    with pytest.raises(ValueError, match="unknown model"):
        position_table(name)


@pytest.mark.parametrize("name", [3, None, [], ["minilm", 3]])
def test_what_is_no_name(name):
    with pytest.raises(ValueError, match="name must be 'minilm', a name on the hub, a folder or a list"):
        load_bert(name)


def test_revisions_are_commits_of_names_on_the_hub(tiny):
    for name in ("minilm", tiny):
        with pytest.raises(ValueError, match=f"revision '{REVISION}' is for names on the hub"):
            load_bert(name, revision=REVISION)
    for revision in ("main", REVISION[:12], REVISION.upper()):
        with pytest.raises(ValueError, match="revision must be the full hash of a commit"):
            load_bert("bert-base-uncased", revision=revision)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """An empty cache of the hub's client and no network; a function that fills the cache."""
    constants = pytest.importorskip("huggingface_hub").constants
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    for name in os.environ:
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)

    def no_network(*arguments, **options):
        raise OSError("no network")

    monkeypatch.setattr("socket.getaddrinfo", no_network)
    monkeypatch.setattr("socket.socket.connect", no_network)

    def fill(name: str, revision: str) -> None:
        snapshot = tmp_path / "hub" / f"models--{name.replace('/', '--')}" / "snapshots" / revision
        write(snapshot, TINY, weights_of(TINY))

    return fill


def test_offline_the_packaged_model_needs_no_network(hub):
    packaged()
    assert load_bert("minilm").name == "minilm"


def test_offline_the_error_says_what_was_tried_and_what_helps(hub, tmp_path, monkeypatch):
    with pytest.raises(ValueError) as caught:
        load_bert("bert-base-uncased")
    for part in (
        "the cache",
        PINNED["bert-base-uncased"][0][:12],
        "huggingface.co cannot be reached",
        "Pass a folder",
        "'minilm'",
    ):
        assert part in str(caught.value), part
    (tmp_path / "bert-base-uncased").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"there is one here: '\./bert-base-uncased'"):
        load_bert("bert-base-uncased")


def test_where_the_host_answers_but_gives_nothing(hub, monkeypatch):
    monkeypatch.setattr(pretrained, "_resolves", lambda host: True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match=r"huggingface.co did not give it \(\w+\)"):
        load_bert("bert-base-uncased")


def test_a_revision_in_the_cache_is_taken_and_named(hub):
    hub("some/bert", REVISION)
    model = load_bert("some/bert", revision=REVISION)
    assert (model.name, model.revision) == ("some/bert", REVISION)
    assert model.source.startswith(f"some/bert from the hub, revision {REVISION[:12]}")


def test_pinned_weights_that_differ_are_an_error(hub):
    revision, sha256 = PINNED["bert-base-uncased"]
    assert sha256 == BERT_BASE_SHA256
    hub("bert-base-uncased", revision)
    with pytest.raises(
        ValueError, match="model.safetensors of bert-base-uncased is not the file this book uses"
    ):
        load_bert("bert-base-uncased")


def test_a_list_is_taken_in_its_order_and_says_what_it_passed_over(hub, tiny):
    assert load_bert([tiny, "minilm"]).source.endswith(load_bert(tiny).sha256[:12])
    model = load_bert(("bert-base-uncased", tiny))
    assert model.name == "tiny-bert"
    assert model.source.endswith("passed over, because it was not to be had: bert-base-uncased")
    with pytest.raises(
        ValueError, match=r"none of 2 models is to be had\. bert-base-uncased: .*; nowhere: unknown model"
    ):
        load_bert(["bert-base-uncased", "nowhere"])


# --- tables and attention


def test_a_loaded_model(tiny):
    model = load_bert(tiny).bfloat16()
    P = position_table(model)
    assert P.shape == (6, 8) and P.dtype == np.float64
    np.testing.assert_array_equal(P, model.embeddings.position_embeddings.weight.detach().double().numpy())


def test_what_has_no_table_or_no_attention_is_named(tmp_path):
    st.save_file({"weight": np.zeros(3, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="0 tables named position_embeddings.weight"):
        position_table(tmp_path)
    with pytest.raises(ValueError, match=r"has attention in layers \[\]"):
        layer_matrices(tmp_path)


def test_layer_matrices_are_the_scores_of_the_model_itself(tiny):
    """Summed over the heads, times the root of their width, without the biases."""
    model = load_bert(tiny)
    matrices = layer_matrices(model)
    ids = torch.tensor([[1, 4, 9, 2, 7]])
    seen = {}

    def keep(layer, name):
        def hook(module, inputs, output):
            seen[layer, name] = output - module.bias

        return hook

    for layer, block in enumerate(model.encoder.layer):
        block.attention.self.query.register_forward_hook(keep(layer, "query"))
        block.attention.self.key.register_forward_hook(keep(layer, "key"))
    with torch.no_grad():
        states = model(ids, output_hidden_states=True).hidden_states
    for layer in range(2):
        heads = [seen[layer, name][0].reshape(5, 2, 4).double() for name in ("query", "key")]
        expected = torch.einsum("ihc,jhc->ij", *heads).numpy()
        x = states[layer][0].double().numpy()
        np.testing.assert_allclose(x @ matrices[layer] @ x.T, expected, atol=1e-5)
        query_side, key_side = x @ matrices[layer], x @ matrices[layer].T
        np.testing.assert_allclose(query_side @ x.T, expected, atol=1e-5)
        np.testing.assert_allclose(x @ key_side.T, expected, atol=1e-5)
        assert np.abs(query_side - key_side).max() > 0.01


def test_layer_matrices_explain_the_attention_weights(tmp_path):
    """With one head: log a_ij - log a_ik = (x_i M + b_q W_k)(x_j - x_k) / sqrt(d), whatever b_k."""
    config = TINY | {"num_attention_heads": 1}
    folder = write(
        tmp_path / "one-head",
        config,
        {k: 8 * v if "query" in k else v for k, v in weights_of(config).items()},
    )
    model = load_bert(folder)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        out = model(torch.tensor([[1, 4, 9, 2, 7]]), output_hidden_states=True, output_attentions=True)
    attention = model.encoder.layer[1].attention.self
    bias = (attention.query.bias @ attention.key.weight).detach().double().numpy()
    x = out.hidden_states[1][0].double().numpy()
    logs = np.log(out.attentions[1][0, 0].double().numpy())
    scores = (x @ layer_matrices(model)[1] + bias) @ x.T / np.sqrt(8)
    np.testing.assert_allclose(logs - logs[:, :1], scores - scores[:, :1], atol=1e-5)
    assert np.ptp(scores) > 0.1


def test_layer_matrices_are_in_the_order_of_the_layers(tmp_path):
    config = TINY | {"num_hidden_layers": 11}
    weights = weights_of(config)
    matrices = layer_matrices(write(tmp_path / "eleven", config, weights))
    part = "bert.encoder.layer.10.attention.self.{}.weight"
    expected = weights[part.format("query")].astype(float).T @ weights[part.format("key")].astype(float)
    np.testing.assert_allclose(matrices[10], expected, atol=1e-12)


def test_layer_matrices_of_this_books_encoder(tiny):
    from posgeom.models.encoder import encoder_from_bert

    np.testing.assert_array_equal(layer_matrices(encoder_from_bert(load_bert(tiny))), layer_matrices(tiny))


# --- hidden states


def test_hidden_means_by_hand(tiny):
    model = load_bert(tiny)
    ids = np.random.default_rng(0).integers(0, 11, (7, 5))
    with torch.no_grad():
        states = (
            torch.stack(model(torch.tensor(ids), output_hidden_states=True).hidden_states).double().numpy()
        )
    found = hidden_means(model, ids, batch=3)
    np.testing.assert_allclose(found.means, states.mean(axis=1), atol=1e-6)
    np.testing.assert_allclose(found.mean_square, (states**2).sum(axis=-1).mean(axis=1), rtol=1e-6)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1, 2], r"ids must be \(N, n\) integers"),
        ([[1.0, 2.0]], "not float64"),
        ([[]], r"of shape \(1, 0\)"),
        ([[0, 11]], "0 ... 10, not from 0 to 11"),
        ([[-1, 3]], "from -1"),
        ([[1] * 7], "7 positions, but the model has 6"),
    ],
)
def test_hidden_means_names_what_does_not_fit(tiny, ids, message):
    with pytest.raises(ValueError, match=message):
        hidden_means(load_bert(tiny), ids)


# --- the chapter


def test_chapter_8_runs_on_another_model_with_one_parameter_and_names_no_other(tmp_path, monkeypatch):
    papermill = pytest.importorskip("papermill")
    config = TINY | {"vocab_size": 30522, "max_position_embeddings": 512, "hidden_size": 32}
    folder = write(tmp_path / "someones-bert", config, weights_of(config))
    packaged()
    root = Path(pretrained.__file__).parents[2]
    records = tmp_path / "records.json"
    monkeypatch.setenv("POSGEOM_RECORDS", str(records))
    monkeypatch.setenv("PYTHONPATH", str(root), prepend=os.pathsep)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    executed = papermill.execute_notebook(
        root / "notebooks" / "08_bert_results.ipynb",
        tmp_path / "executed.ipynb",
        parameters={"model": str(folder), "n_imdb": 60},
        kernel_name="python3",
        progress_bar=False,
        cwd=tmp_path,
    )
    found = json.loads(records.read_text(encoding="utf-8"))
    assert (found["model_name"]["value"], found["model_layers"]["value"]) == ("someones-bert", 2)
    assert "no checksum" in found["model_source"]["value"]
    shown = json.dumps([cell.get("outputs", []) for cell in executed.cells]).lower()
    assert "someones-bert" in shown and "minilm" not in shown and "bert-base" not in shown
