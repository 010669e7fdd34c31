"""Texts of a known order, the masks, and the loss of masked tokens."""

import json

import numpy as np
import pytest
import torch

from posbook.experiments import mlm
from posgeom.corpora.named import Corpus
from posgeom.models.encoder import Encoder, EncoderConfig
from tools import make_mlm_results as tool


@pytest.fixture(scope="module")
def ids():
    rng = np.random.default_rng(0)
    return [rng.integers(2, 9, rng.integers(6, 30)) for _ in range(60)]


def test_small_vocabulary_keeps_the_commonest():
    small = mlm.small_vocabulary([np.array([7, 7, 9, 5]), np.array([9, 7, 3]), np.array([], dtype=int)], 4)
    # 7 three times, 9 twice: they become 2 and 3.
    assert [list(text) for text in small] == [[2, 2, 3, 1], [3, 2, 1], []]
    assert list(mlm.small_vocabulary([np.array([4, 4])], 10)[0]) == [2, 2]


def test_markov_windows_are_stationary_and_have_the_pairs_of_the_ring():
    ring = np.array([0, 1, 0, 2, 2, 1])  # a ring: 1 is followed by 0, and the last 1 by the first 0
    windows = mlm.markov_windows([ring[:2], ring[2:]], 4, 200_000, rng=0)
    law = np.array([2, 2, 2]) / 6
    for i in range(4):
        assert np.allclose(np.bincount(windows[:, i], minlength=3) / 200_000, law, atol=0.005)
    pairs = np.zeros((3, 3))
    np.add.at(pairs, (ring, np.roll(ring, -1)), 1 / 6)
    for i in range(3):
        found = np.zeros((3, 3))
        np.add.at(found, (windows[:, i], windows[:, i + 1]), 1 / 200_000)
        assert np.allclose(found, pairs, atol=0.005)


def test_ragged_cuts_each_length_equally_often():
    windows = np.arange(5) + np.zeros((60_000, 1), dtype=int)
    cut = mlm.ragged(windows, 2, rng=0)
    lengths = (cut >= 0).sum(axis=1)
    assert np.allclose(np.bincount(lengths, minlength=6) / 60_000, [0, 0, 0.25, 0.25, 0.25, 0.25], atol=0.01)
    assert (cut[lengths == 3] == [0, 1, 2, -1, -1]).all()


@pytest.mark.parametrize("name", mlm.TEXTS)
def test_texts_of_each_kind(name, ids):
    texts = mlm.TEXTS[name](ids, 6, 50, np.random.default_rng(1))
    assert texts.shape == (50, 6)
    assert (texts < 0).any() == name.startswith("ragged")
    assert ((texts >= 2) | (texts == mlm.PADDING)).all()
    assert np.array_equal(texts, mlm.TEXTS[name](ids, 6, 50, np.random.default_rng(1)))
    assert name == "beginnings" or not np.array_equal(
        texts, mlm.TEXTS[name](ids, 6, 50, np.random.default_rng(2))
    )


def test_independent_texts_keep_the_law_of_every_place(ids):
    real, independent = (
        mlm.TEXTS[name](ids, 6, 50, np.random.default_rng(1)) for name in ("beginnings", "independent")
    )
    assert np.array_equal(np.sort(real, axis=0), np.sort(independent, axis=0))
    assert not np.array_equal(np.sort(real, axis=1), np.sort(independent, axis=1))


def test_masks_fall_on_tokens_at_the_rate_asked_for():
    texts = mlm.ragged(np.arange(2, 12) + np.zeros((500, 1), dtype=int), 3, rng=0)
    inputs, targets, chosen, real = mlm.masked_batches(texts, 4000, rate=0.2)(
        torch.Generator().manual_seed(0)
    )
    assert torch.equal(real, targets >= 0)
    assert not (chosen & ~real).any()
    assert chosen[real].double().mean().item() == pytest.approx(0.2, abs=0.01)
    assert (inputs[chosen] == mlm.MASK).all() and torch.equal(inputs[real & ~chosen], targets[real & ~chosen])
    assert (inputs >= 0).all()


def test_a_batch_has_at_least_one_mask():
    batch = mlm.masked_batches(np.full((5, 2), 3), 1, rate=1e-9)
    generator = torch.Generator().manual_seed(0)
    assert all(batch(generator)[2].sum() == 1 for _ in range(20))


def test_loss_is_the_mean_over_masked_tokens_and_padding_changes_nothing():
    model = Encoder(EncoderConfig(vocab_size=9, n=6, d=8, heads=2, outputs=9, dtype="float64")).eval()
    inputs = torch.tensor([[0, 3, 4], [5, 0, 0]])
    targets, chosen = torch.tensor([[2, 3, 4], [5, 6, 7]]), inputs == 0
    loss = mlm.masked_loss(model, inputs, targets, chosen, torch.ones_like(chosen))
    logs = torch.log_softmax(model(inputs), dim=-1)
    assert loss.item() == pytest.approx(-(logs[0, 0, 2] + logs[1, 1, 6] + logs[1, 2, 7]).item() / 3)
    padded, none = torch.tensor([[0, 0], [0, 0]]), torch.zeros((2, 2), dtype=torch.bool)
    longer = mlm.masked_loss(
        model,
        torch.cat([inputs, padded], dim=1),
        torch.cat([targets, padded - 1], dim=1),
        torch.cat([chosen, none], dim=1),
        torch.cat([torch.ones_like(chosen), none], dim=1),
    )
    assert longer.item() == pytest.approx(loss.item())


def test_a_run_watches_its_positions_and_learns(ids):
    texts = mlm.TEXTS["beginnings"](ids, 6, 60, np.random.default_rng(0))
    run = mlm.train_positions(
        texts,
        9,
        steps=40,
        rng=3,
        d=8,
        layers=1,
        heads=2,
        learning_rate=1e-2,
        trackers={"size": lambda model: np.linalg.norm(model.position_table())},
        track_every=20,
    )
    assert list(run.history.steps) == [0, 20, 40]
    assert run.history.tracked["size"][0] == pytest.approx(np.linalg.norm(run.before))
    assert run.history.tracked["size"][-1] == pytest.approx(np.linalg.norm(run.after))
    assert (
        0 <= run.history.tracked["violation_rate"].min() <= run.history.tracked["violation_rate"].max() <= 1
    )
    assert run.history.loss[-10:].mean() < run.history.loss[:10].mean()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: mlm.small_vocabulary([np.array([1])], 2), "vocab_size"),
        (lambda: mlm.small_vocabulary([np.array([], dtype=int)], 5), "no token"),
        (lambda: mlm.markov_windows([], 3, 3, rng=0), "no token"),
        (lambda: mlm.ragged(np.zeros((2, 3), dtype=int), 4, rng=0), "shortest"),
        (lambda: mlm.masked_batches(np.array([[-1, -1]]), 2), "at least one token"),
        (lambda: mlm.masked_batches(np.zeros((2, 2)), 2), "integers"),
        (lambda: mlm.masked_batches(np.zeros((2, 2), dtype=int), 2, rate=0), "rate"),
    ],
)
def test_bad_arguments_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# --- The runs that come with the package


def test_recorded_runs_are_what_the_tool_writes(tmp_path):
    recorded = mlm.recorded_runs()
    assert recorded["settings"] == tool.SETTINGS and list(recorded["runs"]) == list(tool.ARMS)
    looks = tool.SETTINGS["steps"] // tool.SETTINGS["track_every"]
    for arm, runs in recorded["runs"].items():
        assert [run["seed"] for run in runs] == list(range(tool.SETTINGS["seeds"])), arm
        assert all(len(run["violation_rate"]) == len(run["loss"]) + 1 == looks + 1 for run in runs)
    # All arms of a seed start from one table, but for the one whose start is wider.
    starts = {arm: [run["violation_rate"][0] for run in runs] for arm, runs in recorded["runs"].items()}
    assert len({tuple(rates) for rates in starts.values()}) == 1
    tool.write(tmp_path / "again.json", recorded)
    assert (tmp_path / "again.json").read_bytes() == tool.FILE.read_bytes()


def test_the_tool_goes_on_where_it_stopped(tmp_path, capsys):
    corpus = Corpus("toy", ["the film is good and the plot is not"] * 9, None, "made here", "0" * 64)
    settings = {
        "n": 6,
        "vocab_size": 9,
        "longest_text": 20,
        "pool": 30,
        "steps": 4,
        "track_every": 2,
        "seeds": 1,
    }
    path = tmp_path / "runs.json"
    tool.make(path, corpus, settings, ["windows"])
    first = json.loads(path.read_text())
    tool.make(path, corpus, settings, ["windows", "independent"])
    both = json.loads(path.read_text())
    assert capsys.readouterr().out.count("windows, seed 0") == 1
    assert both["runs"]["windows"] == first["runs"]["windows"]
    assert len(both["runs"]["independent"][0]["spearman_aitchison"]) == 3
    with pytest.raises(SystemExit, match="other settings"):
        tool.make(path, corpus, settings | {"steps": 6}, ["windows"])
