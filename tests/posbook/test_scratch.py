"""Tasks that differ in their labels alone, the runs on them, and the results that come with the package."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from posbook.experiments import scratch  # noqa: E402
from posbook.experiments.scratch import (  # noqa: E402
    TASKS,
    Labelled,
    Recipe,
    batches,
    labelled,
    learn,
    load_results,
)
from posgeom.geometry.distances import euclidean_distances  # noqa: E402
from posgeom.geometry.monotonicity import violation_rate  # noqa: E402
from posgeom.models import training  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

CLS, SEP = 101, 102
SMALL = Recipe(layers=1, d=8, heads=2, dropout=0.0, steps=20, batch=16, track_every=10)


def corpus(count: int = 300, n: int = 12, seed: int = 0) -> Labelled:
    """Texts of 1 to n - 2 words; label 1 where the first word is one of the larger ones."""
    rng = np.random.default_rng(seed)
    words = [rng.integers(200, 240, rng.integers(1, n - 1)) for _ in range(count)]
    labels = np.array([int(text[0] >= 220) for text in words])
    return labelled([np.concatenate([[CLS], text, [SEP]]) for text in words], labels, n=n)[0]


def drawn(task: str, size: int = 64, rounds: int = 40, seed: int = 0):
    draw, generator = batches(corpus(), task, size), torch.Generator().manual_seed(seed)
    return [draw(generator) for _ in range(rounds)]


def text_of(tokens, mask) -> list[int]:
    return tokens[mask.bool()].tolist()


# --- texts


def test_labelled_by_hand():
    ids = [np.array([CLS, 7, SEP]), np.array([CLS, 9, 7, SEP]), np.array([CLS, 500, SEP])]
    texts, held_out = labelled(ids, [1, 0, 1], n=5, held_out=[False, False, True])
    # In use: 7, 9, 101, 102, 500 -> 1 ... 5, and 0 for padding.
    np.testing.assert_array_equal(texts.tokens, [[3, 1, 4, 0, 0], [3, 2, 1, 4, 0]])
    np.testing.assert_array_equal(held_out.tokens, [[3, 5, 4, 0, 0]])
    np.testing.assert_array_equal(texts.lengths, [3, 4])
    assert texts.labels.tolist() == [1, 0] and held_out.labels.tolist() == [1]
    assert texts.vocab_size == held_out.vocab_size == 6 and texts.n == 5 and len(texts) == 2
    assert labelled(ids, [1, 0, 1], n=5)[1] is None


@pytest.mark.parametrize(
    ("ids", "labels", "message"),
    [
        ([[CLS, SEP]], [0], "text 0 of ids has 2 tokens: 3 to n = 4"),
        ([[CLS, 1, SEP], [CLS, 1, 2, 3, SEP]], [0, 1], "text 1 of ids has 5 tokens"),
        ([[CLS, 1, SEP]], [2], "labels must be 1 numbers 0 or 1"),
        ([[CLS, 1, SEP]], [0, 1], "labels must be 1 numbers"),
    ],
)
def test_labelled_names_what_does_not_fit(ids, labels, message):
    with pytest.raises(ValueError, match=message):
        labelled([np.array(text) for text in ids], labels, n=4)


# --- tasks


def test_sentiment_draws_the_texts_with_their_labels_each_as_often_as_any_other():
    texts = corpus()
    known = {
        tuple(text_of(torch.tensor(t), torch.tensor(t) > 0)): y
        for t, y in zip(texts.tokens, texts.labels, strict=True)
    }
    seen = {text: 0 for text in known}
    for tokens, mask, labels in drawn("sentiment", size=100, rounds=300):
        assert (tokens[mask == 0] == scratch.PADDING).all()
        for row, real, label in zip(tokens, mask, labels, strict=True):
            assert known[tuple(text_of(row, real))] == label
            seen[tuple(text_of(row, real))] += 1
    # 100 draws of each on average; in one batch all are of one of 16 lengths, so the deviation is larger.
    lengths = np.array([len(text) for text in seen])
    often = np.array(list(seen.values()))
    assert 60 < often[lengths <= 5].mean() < 140 and 60 < often[lengths > 9].mean() < 140


def test_little_of_a_batch_is_padding():
    shares = [float(mask.double().mean()) for _, mask, _ in drawn("sentiment")]
    assert np.mean(shares) > 0.85


def test_shuffled_keeps_words_labels_and_special_tokens_and_is_uniform():
    texts = labelled([np.array([CLS, 5, 6, 7, SEP])] * 16, [1] * 16, n=7)[0]
    draw, generator = batches(texts, "shuffled", 600), torch.Generator().manual_seed(0)
    tokens, mask, labels = draw(generator)
    orders, often = np.unique(tokens[:, 1:4].numpy(), axis=0, return_counts=True)
    assert (tokens[:, 0] == 4).all() and (tokens[:, 4] == 5).all() and (labels == 1).all()
    np.testing.assert_array_equal(orders, [[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]])
    assert np.abs(often - 100).max() < 5 * 10
    for tokens, mask, _ in drawn("shuffled", rounds=5):
        # In use: 101, 102, 200 ... -> 1, 2, 3 ...
        assert (tokens[:, 0] == 1).all() and (tokens[mask == 0] == 0).all()
        assert (tokens[torch.arange(len(tokens)), mask.sum(dim=1) - 1] == 2).all()


def test_a_coin_knows_nothing_of_the_text():
    cases = drawn("coin", size=200)
    labels = torch.cat([labels for *_, labels in cases]).double()
    assert abs(labels.mean() - 0.5) < 5 * 0.5 / len(labels) ** 0.5
    (tokens, _, labels), (again, _, others) = drawn("coin", rounds=1)[0], drawn("sentiment", rounds=1)[0]
    assert torch.equal(tokens, again) and not torch.equal(labels, others)


def test_the_label_of_order_says_whether_the_words_were_shuffled():
    texts = corpus()
    known = {tuple(text_of(torch.tensor(t), torch.tensor(t) > 0)) for t in texts.tokens}
    untouched = {0: [], 1: []}
    for tokens, mask, labels in drawn("order"):
        for row, real, label in zip(tokens, mask, labels, strict=True):
            if real.sum() >= 8:
                untouched[int(label)].append(tuple(text_of(row, real)) in known)
    assert all(untouched[0]) and np.mean(untouched[1]) < 0.02
    assert 0.8 < len(untouched[0]) / len(untouched[1]) < 1.25


def test_an_unknown_task_is_named():
    with pytest.raises(ValueError, match="task must be one of sentiment, shuffled, coin, order, not 'nli'"):
        batches(corpus(), "nli", 4)
    assert {task for task, _ in scratch.RUNS.values()} <= set(TASKS)


# --- learning


def test_learn_is_reproducible_and_watches_the_table():
    texts = corpus()
    model, history = learn(texts, "sentiment", 3, SMALL)
    again, other = learn(texts, "sentiment", 3, SMALL), learn(texts, "sentiment", 4, SMALL)
    assert np.array_equal(history.loss, again[1].loss) and not np.array_equal(history.loss, other[1].loss)
    first, last = SMALL.encoder(texts.vocab_size, texts.n, 3).position_table(), model.position_table()
    np.testing.assert_array_equal(history.steps, [0, 10, 20])
    assert history.tracked["movement"][0] == 0
    assert history.tracked["movement"][-1] == pytest.approx(
        np.linalg.norm(last - first) / np.linalg.norm(first)
    )
    assert history.tracked["violations"][0] == violation_rate(euclidean_distances(first))
    assert history.tracked["min_distance"][-1] == training.min_pairwise_distance(model)


def test_the_first_word_is_learned_and_a_shuffled_one_is_not_and_a_coin_never():
    recipe = replace(SMALL, d=16, steps=250, learning_rate=1e-2, track_every=250)
    texts = corpus(1000)
    held_out = replace(
        texts, **{name: getattr(texts, name)[800:] for name in ("tokens", "lengths", "labels")}
    )
    kept = replace(texts, **{name: getattr(texts, name)[:800] for name in ("tokens", "lengths", "labels")})
    scores = {
        task: learn(kept, task, 0, recipe, held_out=held_out)[1].tracked["accuracy"][-1]
        for task in ("sentiment", "shuffled", "coin")
    }
    assert scores["sentiment"] > 0.95
    assert scores["shuffled"] < 0.85  # a text of one or two words gives its first word away
    assert abs(scores["coin"] - 0.5) < 5 * 0.5 / 200**0.5


def test_the_accuracy_is_that_of_the_held_out_texts():
    texts = corpus()
    model, history = learn(texts, "sentiment", 0, SMALL)
    tokens, lengths = torch.tensor(texts.tokens, dtype=torch.long), torch.tensor(texts.lengths)
    mask = (torch.arange(texts.n) < lengths[:, None]).long()
    with torch.no_grad():
        right = model(tokens, attention_mask=mask).argmax(dim=1) == torch.tensor(texts.labels)
    share = float(right.double().mean())
    assert history.tracked["accuracy"][-1] == pytest.approx(share, abs=1e-12)
    opposite = learn(texts, "sentiment", 0, SMALL, held_out=replace(texts, labels=1 - texts.labels))[1]
    assert opposite.tracked["accuracy"][-1] == pytest.approx(1 - share, abs=1e-12)


def test_the_seed_draws_the_batches_too():
    class OneStart(Recipe):
        def encoder(self, vocab_size, n, seed):
            return super().encoder(vocab_size, n, 0)

    recipe = OneStart(**vars(SMALL))
    first, second = (learn(corpus(), "sentiment", seed, recipe)[1] for seed in (0, 1))
    assert not np.array_equal(first.loss, second.loss)


# --- the results that come with the package


@pytest.fixture(scope="module")
def results() -> scratch.Results:
    return load_results()


def test_the_results_are_of_the_runs_that_the_module_names(results):
    from dataclasses import asdict

    assert results.about["runs"] == {name: {"task": t} | asdict(r) for name, (t, r) in scratch.RUNS.items()}
    assert tuple(results.about["seeds"]) == scratch.SEEDS and len(scratch.SEEDS) >= 3
    looks = np.arange(0, scratch.RECIPE.steps + 1, scratch.RECIPE.track_every)
    np.testing.assert_array_equal(results.steps, looks)
    for kind in scratch.TRACKED:
        assert list(results.tracked[kind]) == list(scratch.RUNS)
        assert all(
            values.shape == (len(scratch.SEEDS), len(looks)) for values in results.tracked[kind].values()
        )


def test_the_results_begin_with_the_weights_of_their_seeds_and_end_with_their_tables(results):
    """Up to the last digit of a float32, which another CPU draws otherwise, and what nearly ties in it."""
    size = results.about["corpus"]["vocabulary_in_use"]
    for seed in scratch.SEEDS:
        table = scratch.RECIPE.encoder(size, 66, seed).position_table()
        E = euclidean_distances(table)
        for name in scratch.RUNS:
            assert results.tracked["violations"][name][seed, 0] == pytest.approx(violation_rate(E), abs=1e-4)
            least = results.tracked["min_distance"][name][seed, 0]
            assert least == pytest.approx(E[np.triu_indices(66, 1)].min(), rel=1e-6)
            final = results.tables[name][seed]
            assert results.tracked["violations"][name][seed, -1] == pytest.approx(
                violation_rate(euclidean_distances(final)), abs=1e-4
            )
            moved = np.linalg.norm(final - table) / np.linalg.norm(table)
            assert results.tracked["movement"][name][seed, -1] == pytest.approx(moved, rel=1e-5)


def test_results_are_saved_and_read_again(results, tmp_path):
    path = tmp_path / "again.npz"
    results.save(path)
    again = load_results(path)
    assert again.about == results.about
    for name in scratch.RUNS:
        np.testing.assert_array_equal(again.tables[name], results.tables[name])
        np.testing.assert_array_equal(again.tracked["accuracy"][name], results.tracked["accuracy"][name])


@pytest.mark.skipif(
    not (folder := os.environ.get("POSGEOM_DATA")) or not Path(folder, "sst2", "train.tsv").is_file(),
    reason="needs the text of SST-2",
)
def test_a_first_stretch_of_the_runs_made_again(results):
    from tools import make_scratch_results

    texts, held_out, source = make_scratch_results.sst2()
    assert results.about["corpus"] == source
    name, seed = "order", 1
    task, recipe = scratch.RUNS[name]
    _, history = learn(texts, task, seed, replace(recipe, steps=recipe.track_every), held_out=held_out)
    for kind, tolerance in (
        ("violations", 0.01),
        ("min_distance", 0.005),
        ("movement", 0.01),
        ("accuracy", 0.03),
    ):
        recorded = results.tracked[kind][name][seed, :2]
        np.testing.assert_allclose(history.tracked[kind], recorded, atol=tolerance)
