"""The tasks, the schemes, the runs and the statistics of chapter 11."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from posbook.experiments import accuracy  # noqa: E402
from posbook.experiments.accuracy import (  # noqa: E402
    BUDGET,
    TASKS,
    TUNING_SEED,
    Budget,
    Geometry,
    Part,
    arms,
    beginnings,
    between_groups,
    build,
    chosen_rates,
    geometry,
    load_results,
    one_run,
    outcomes,
    plan,
    rank_correlation,
    swapped,
)
from posgeom.corpora.named import Corpus, load_corpus  # noqa: E402
from posgeom.encodings import formulas as encodings  # noqa: E402
from posgeom.geometry.distances import euclidean_distances  # noqa: E402
from posgeom.models import encoder as attention  # noqa: E402
from tools import make_accuracy_results  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

N, D = 8, 16
SMALL = Budget(
    n=N, vocab_size=40, d=D, heads=4, batch=16, order_steps=12, sentiment_steps=6, warm_up=2,
    validation=20, test=40, learning_rates=(1e-3, 1e-2), seeds=(1, 2),
)  # fmt: skip
WORDS = "the a cat dog bird saw heard chased big small old red house tree and or with near over under".split()


def made_up(count: int = 400, seed: int = 0) -> Corpus:
    """Sentences whose first word is one of two; label 1 where a certain word occurs."""
    rng = np.random.default_rng(seed)
    texts = [" ".join([WORDS[rng.integers(2)], *rng.choice(WORDS[2:], N + 1)]) for _ in range(count)]
    labels = np.array(["cat" in text.split()[:N] for text in texts], dtype=int)
    return Corpus("made up", tuple(texts), labels, "made up", "0" * 64)


@pytest.fixture(scope="module")
def small():
    texts = beginnings(made_up(), SMALL)
    # Four axes, whatever the noise of so small a corpus says.
    rng = np.random.default_rng(1)
    corrected = euclidean_distances(rng.normal(size=(N, 3)) / 5)
    space = Geometry(geometry(texts).plug_in, corrected, 3, -0.5)
    return texts, space, arms(space, SMALL)


# --- texts and tasks


def test_swapped_exchanges_two_different_words_and_nothing_else():
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(5, (500, 9), generator=generator)
    other = swapped(tokens, generator)
    for before, after in zip(tokens.tolist(), other.tolist(), strict=True):
        (i, j) = [k for k in range(9) if before[k] != after[k]]
        assert (after[i], after[j]) == (before[j], before[i])


def test_swapped_draws_every_pair_of_different_words_equally_often():
    tokens = torch.tensor([[5, 5, 7, 8]]).repeat(6000, 1)
    found, often = np.unique(
        swapped(tokens, torch.Generator().manual_seed(0)).numpy(), axis=0, return_counts=True
    )
    # (0,2), (0,3), (1,2), (1,3), (2,3); the pair (0,1) holds one word twice
    wanted = [[5, 5, 8, 7], [5, 7, 5, 8], [5, 8, 7, 5], [7, 5, 5, 8], [8, 5, 7, 5]]
    np.testing.assert_array_equal(found, wanted)
    assert np.abs(often - 1200).max() < 5 * np.sqrt(6000 * 0.2 * 0.8)
    with pytest.raises(ValueError, match="text 1 of tokens holds one token only"):
        swapped(torch.tensor([[1, 2], [3, 3]]), torch.Generator())


def test_beginnings_by_hand():
    lines = [
        "the cat saw a dog today",  # the first four words are used
        "the cat saw a bird",  # the same beginning: left out
        "the dog",  # too short
        "the the the the",  # nothing to exchange
        "a dog saw the cat",
        "a bird heard the cat",
        "dog dog dog cat",
    ]
    corpus = Corpus("lines", tuple(lines), np.array([1, 0, 0, 0, 0, 1, 1]), "here", "0" * 64)
    budget = Budget(n=4, vocab_size=6, validation=1, test=1)
    texts = beginnings(corpus, budget)
    parts = (texts.train, texts.validation, texts.test)
    assert [len(part.tokens) for part in parts] == [2, 1, 1]
    found = {
        (*row, y) for part in parts for row, y in zip(part.tokens.tolist(), part.labels.tolist(), strict=True)
    }
    # Of the texts left: the 7 times, dog 4, a 3, then saw and cat, twice each; saw is BERT's lower id.
    the, dog, a, saw, rest = 2, 3, 4, 5, 1
    assert found == {
        (the, rest, saw, a, 1),
        (a, dog, saw, the, 0),
        (a, rest, rest, the, 1),
        (dog, dog, dog, rest, 1),
    }
    assert torch.equal(beginnings(corpus, budget).test.tokens, texts.test.tokens)
    with pytest.raises(ValueError, match="4 usable texts, but 4 are to be held out"):
        beginnings(corpus, replace(budget, test=3))
    with pytest.raises(ValueError, match="has no labels"):
        beginnings(Corpus("bare", tuple(lines), None, "here", "0" * 64), budget)


def test_the_parts_of_imdb_are_balanced_and_disjoint():
    texts = beginnings(load_corpus("imdb"))
    parts = (texts.train, texts.validation, texts.test)
    assert [len(part.tokens) for part in parts[1:]] == [BUDGET.validation, BUDGET.test]
    for part in parts:
        assert abs(part.labels.double().mean() - 0.5) < 4 * 0.5 / len(part.labels) ** 0.5
        assert (
            part.tokens.shape[1] == BUDGET.n
            and 1 <= part.tokens.min()
            and part.tokens.max() < BUDGET.vocab_size
        )
    assert sum(len(part.tokens) for part in parts) > 24_000


def test_batches_of_order_are_texts_beside_their_own_corruption():
    part = beginnings(made_up(), SMALL).train
    draw, generator = accuracy._batches(part, "order", 64), torch.Generator().manual_seed(0)
    known = {tuple(row) for row in part.tokens.tolist()}
    originals, others = draw(generator)
    assert len(originals) == len(others) == 32
    assert all(tuple(row) in known for row in originals.tolist())
    assert torch.equal(originals.sort(dim=1).values, others.sort(dim=1).values)
    assert ((originals != others).sum(dim=1) == 2).all()
    tokens, labels = accuracy._batches(part, "sentiment", 64)(generator)
    cat = int(part.tokens[part.labels == 1].flatten().mode().values)
    assert torch.equal((tokens == cat).any(dim=1), labels.bool()) and len(tokens) == 64


def test_losses_by_hand():
    class Scores(torch.nn.Module):
        def forward(self, tokens):
            return tokens[:, :1].double()

    ones, others = torch.tensor([[2], [0]]), torch.tensor([[1], [3]])
    wanted = (np.log1p(np.exp(-1.0)) + np.log1p(np.exp(3.0))) / 2
    assert accuracy._order_loss(Scores(), ones, others).item() == pytest.approx(wanted)
    labels = torch.tensor([1, 0])
    wanted = (np.log1p(np.exp(-2.0)) + np.log(2)) / 2
    assert accuracy._sentiment_loss(Scores(), ones, labels).item() == pytest.approx(wanted)


def test_accuracy_counts_right_answers_and_half_of_the_ties(small):
    texts, _, schemes = small

    class Second(torch.nn.Module):  # scores a text by its second word
        def forward(self, tokens):
            return tokens[:, 1:2].float()

    others = swapped(texts.test.tokens, torch.Generator().manual_seed(0))
    lead = (texts.test.tokens[:, 1] - others[:, 1]).sign()
    assert {-1, 0, 1} == set(lead.tolist())
    wanted = float((lead + 1).double().mean() / 2)
    assert accuracy.accuracy(Second(), texts.test, "order") == pytest.approx(wanted)
    assert accuracy.accuracy(Second(), texts.test, "sentiment") == pytest.approx(
        texts.test.labels.double().mean()
    )
    assert accuracy.accuracy(build(schemes["none"], 3, SMALL), texts.test, "order") == 0.5
    with pytest.raises(ValueError, match="task must be one of order, sentiment, not 'colour'"):
        accuracy.accuracy(Second(), texts.test, "colour")


# --- schemes


def test_every_scheme_reaches_the_encoder_and_nothing_else_differs(small):
    texts, _, schemes = small
    tokens = texts.test.tokens
    others = swapped(tokens, torch.Generator().manual_seed(0))
    bare = build(schemes["none"], 5, SMALL)
    seen = {}
    for name, arm in schemes.items():
        model = build(arm, 5, SMALL)
        if name == "T5":  # its numbers start at 0
            with torch.no_grad():
                model.scheme.values.normal_(generator=torch.Generator().manual_seed(0))
        for key, tensor in bare.state_dict().items():
            assert torch.equal(model.state_dict()[key], tensor)
        with torch.no_grad():
            seen[name] = model(tokens)[:, 0]
            change = (seen[name] - model(others)[:, 0]).abs().max().item()
        assert (change < 1e-6) == (name == "none"), (name, change)
    names = list(seen)
    for k, name in enumerate(names):
        for other in names[:k]:
            apart = (seen[name] - seen[other]).abs().max().item()
            # A factorised table starts as the table that it was made from.
            assert (apart < 1e-6) == (name == f"ABᵀ from {other}"), (name, other, apart)


def test_what_a_scheme_draws_comes_from_the_seed(small):
    *_, schemes = small
    for name in ("random", "MDS", "learned"):
        one, again, other = (build(schemes[name], seed, SMALL).scheme.table() for seed in (5, 5, 6))
        assert torch.equal(one, again) and not torch.allclose(one, other)


def test_alibi_rope_and_factors_are_what_their_names_say(small):
    _, space, schemes = small
    config = attention.EncoderConfig(vocab_size=9, n=N, d=D, heads=4, position="alibi")
    places, rng = torch.arange(N)[None], np.random.default_rng(0)
    own = schemes["ALiBi"].make(rng).bias(places)
    torch.testing.assert_close(own.double(), attention.Alibi(config).bias(places), rtol=1e-6, atol=0)
    assert isinstance(schemes["RoPE"].make(rng), attention.Rope)

    power = schemes["power bias"].make(rng).bias(places)[0, 1]  # second of four heads: slope 1/16
    assert power[0, 3].item() == pytest.approx(-(4**-0.5 - 1) / -0.5 / 16)
    stretched = schemes["power bias, stretched"].make(rng).bias(places)
    assert stretched.min().item() == pytest.approx(own.min().item())

    factors = schemes["ABᵀ from MDS"].make(rng)
    torch.testing.assert_close(factors.table(), factors.A @ factors.B.T)
    np.testing.assert_allclose(schemes["ABᵀ from MDS"].distances(factors), space.plug_in, atol=1e-6)
    signal = schemes["ABᵀ from corrected MDS"]
    np.testing.assert_allclose(signal.distances(signal.make(rng)), space.corrected, atol=1e-6)


def test_buckets_by_hand():
    scheme = accuracy.Buckets(4, heads=2)
    with torch.no_grad():
        scheme.values.copy_(torch.arange(2.0 * len(scheme.values)).reshape(-1, 2))
    bias = scheme.bias(torch.arange(4)[None])
    assert bias.shape == (1, 2, 4, 4)
    # query 0, key 1: bucket 16 + 1; query 1, key 0: bucket 1; two numbers a bucket
    assert bias[0, :, 0, 1].tolist() == [34.0, 35.0] and bias[0, :, 1, 0].tolist() == [2.0, 3.0]
    assert bias[0, 0, 2, 2] == 0.0


def test_trained_parameters_by_hand(small):
    *_, schemes = small
    rng = np.random.default_rng(0)
    count = {name: sum(p.numel() for p in arm.make(rng).parameters()) for name, arm in schemes.items()}
    assert count.pop("learned") == N * D
    assert count.pop("ABᵀ from MDS") == (N - 1) * (N + D)  # more than the table has
    assert count.pop("ABᵀ from corrected MDS") == 3 * (N + D)
    assert count.pop("T5") == 4 * (int(encodings.t5_buckets(N).max()) + 1)
    assert set(count.values()) == {0}


def test_scales(small):
    _, space, schemes = small
    rng = np.random.default_rng(0)
    for scheme in ("random", "sinusoid", "corrected MDS", "power line"):
        E = {}
        for scale in accuracy.SCALES:
            arm = schemes[scheme if scale == "native" else f"{scheme}, {scale}"]
            assert (arm.scheme, arm.scale, arm.family) == (scheme, scale, "fixed vectors")
            E[scale] = arm.distances(arm.make(np.random.default_rng(7)))
        # sum over i < j of ||p_i - p_j||^2 is n sum ||p_i - mean||^2 = n^2 at root mean square 1
        assert (np.triu(E["unit"]) ** 2).sum() == pytest.approx(N**2, rel=1e-5)
        stresses = {scale: space.stresses(e) for scale, e in E.items()}
        for kind in ("scaled", "corrected"):
            assert len({round(s[kind], 5) for s in stresses.values()}) == 1
        assert stresses["fitted"]["raw"] == pytest.approx(stresses["native"]["scaled"], abs=1e-5)
        assert stresses["fitted"]["raw"] <= min(s["raw"] for s in stresses.values()) + 1e-9
    native = schemes["sinusoid"].make(rng).table().double().numpy()
    np.testing.assert_allclose(native, encodings.sinusoidal(N, D), atol=1e-6)
    line = schemes["power line"].distances(schemes["power line"].make(rng))
    np.testing.assert_allclose(line, encodings.power_line(N, -0.5), atol=1e-6)
    mds = schemes["MDS"].distances(schemes["MDS"].make(rng))
    np.testing.assert_allclose(mds, space.plug_in, atol=1e-6)
    assert space.stresses(mds)["raw"] < 1e-9


def test_widening_keeps_distances_and_refuses_what_does_not_fit():
    P = np.random.default_rng(0).normal(size=(6, 3))
    wide = accuracy._widened(P, 10, np.random.default_rng(1))
    assert wide.shape == (6, 10)
    np.testing.assert_allclose(euclidean_distances(wide), euclidean_distances(P), atol=1e-12)
    with pytest.raises(ValueError, match="P has width 3, and no isometry into d = 2"):
        accuracy._widened(P, 2, np.random.default_rng(1))


def test_stresses_by_hand():
    line = np.abs(np.subtract.outer(np.arange(3.0), np.arange(3.0)))
    even = 1.0 - np.eye(3)
    space = Geometry(even, line, 1, 0.0)
    # against 1, 1, 1: misfit 0, 0, 1; best scale 4/6 leaves 1 - 16/(6 * 3)
    found = space.stresses(line)
    assert found["raw"] == pytest.approx(1 / 3) and found["scaled"] == pytest.approx(1 / 9)
    assert found["corrected"] == pytest.approx(0.0, abs=1e-12)
    assert space.stresses(np.zeros((3, 3))) == {"raw": 1.0, "scaled": 1.0, "corrected": 1.0}


# --- runs


def test_a_run_is_reproducible_trains_what_is_to_be_trained_and_reports_the_scheme_after_it(small):
    texts, space, schemes = small
    common = {"texts": texts, "geometry": space, "budget": SMALL}
    run = one_run(schemes["learned"], "order", 3, 1e-2, **common)
    assert run == one_run(schemes["learned"], "order", 3, 1e-2, **common)
    assert run != one_run(schemes["learned"], "order", 4, 1e-2, **common) | {"seed": 3}
    before = schemes["learned"].make(np.random.default_rng([3, 1]))
    start = space.stresses(schemes["learned"].distances(before))
    assert abs(run["stress"]["raw"] - start["raw"]) > 1e-3
    fixed = one_run(schemes["sinusoid"], "sentiment", 3, 1e-2, **common)
    wanted = space.stresses(euclidean_distances(encodings.sinusoidal(N, D)))
    assert fixed["stress"] == pytest.approx(wanted, rel=1e-4)
    assert fixed["parameters"] == 0 and run["parameters"] == N * D
    json.dumps([run, fixed])


def test_order_is_learned_with_positions_and_cannot_be_without():
    """Texts that rise: with the place of each word an exchange is plain, without it nothing is."""
    rng = np.random.default_rng(0)
    rows = np.sort(np.stack([rng.choice(38, N, replace=False) for _ in range(2000)]), axis=1) + 2
    tokens, labels = torch.tensor(rows), torch.zeros(2000, dtype=torch.long)
    texts = accuracy.Beginnings(
        Part(tokens[:1500], labels[:1500]),
        Part(tokens[1500:1600], labels[1500:1600]),
        Part(tokens[1600:], labels[1600:]),
    )
    space = geometry(texts)
    budget = replace(SMALL, order_steps=250, batch=64, warm_up=20)
    schemes = arms(space, budget)
    found = {
        name: one_run(schemes[name], "order", 1, 1e-2, texts=texts, geometry=space, budget=budget)["test"]
        for name in ("none", "sinusoid", "ALiBi")
    }
    assert found["none"] == 0.5
    assert found["sinusoid"] > 0.85, found


def test_the_plan_tunes_first_and_then_goes_seed_by_seed():
    names = ["none", "RoPE"]
    first = plan(names, [], SMALL)
    assert len(first) == 2 * 2 * 2 and {job[2] for job in first} == {TUNING_SEED}

    def run(job, validation):
        name, task, seed, rate = job
        return {"arm": name, "task": task, "seed": seed, "learning_rate": rate, "validation": validation}

    # RoPE is better at the higher rate, none is equal at both: the lower one is taken
    runs = [run(job, 0.5 + 0.1 * (job[0] == "RoPE" and job[3] == 1e-2)) for job in first]
    assert plan(names, runs[:-1], SMALL) == first[-1:]
    assert chosen_rates(runs) == {
        (task, name): 1e-2 if name == "RoPE" else 1e-3 for task in TASKS for name in names
    }
    second = plan(names, runs, SMALL)
    assert [job[2] for job in second] == [1] * 4 + [2] * 4
    assert all(rate == (1e-2 if name == "RoPE" else 1e-3) for name, _, _, rate in second)
    assert plan(names, runs + [run(job, 0.5) for job in second], SMALL) == []


def test_a_file_that_was_broken_off_and_resumed_is_the_same_file(tmp_path):
    names, corpus = ["none", "learned"], made_up()
    whole, parts = tmp_path / "whole.json", tmp_path / "parts.json"
    make_accuracy_results.make(whole, corpus, SMALL, names)
    for limit in (1, 6, 5, 5, None):
        make_accuracy_results.make(parts, corpus, SMALL, names, limit)
    assert parts.read_bytes() == whole.read_bytes()
    results = load_results(whole)
    assert len(results["runs"]) == 2 * 2 * (2 + 2) and results["settings"]["n"] == N
    assert [(run["arm"], run["seed"]) for run in results["longer"]] == [
        ("learned", seed) for seed in (1, 2, 3)
    ]
    assert not list(tmp_path.glob("*.partial"))
    before = whole.read_bytes()
    with pytest.raises(SystemExit, match="other settings"):
        make_accuracy_results.make(whole, corpus, replace(SMALL, batch=8), names)
    assert whole.read_bytes() == before


# --- what came out


def record_of(arm, seed, test, task="order"):
    stresses = {"raw": 0.1 * seed, "scaled": 0.5, "corrected": 0.5}
    return {
        "arm": arm, "task": task, "seed": seed, "learning_rate": 1e-3, "validation": 0.0, "test": test,
        "parameters": 4, "stress": stresses,
    }  # fmt: skip


def test_outcomes_take_the_seeds_that_all_arms_have():
    runs = [record_of("a", TUNING_SEED, 0.9), record_of("b", TUNING_SEED, 0.9)]
    runs += [record_of("a", seed, 0.6 + 0.1 * seed) for seed in (1, 2, 3)]
    runs += [record_of("b", seed, 0.5) for seed in (2, 1)] + [record_of("a", 4, 0.1, "sentiment")]
    found = outcomes(runs, "order")
    np.testing.assert_allclose(found["a"].accuracies, [0.7, 0.8])
    assert found["a"].mean == pytest.approx(0.75) and found["b"].low == pytest.approx(0.5)
    # two seeds: t = 12.706, s / sqrt 2 = 0.05
    assert found["a"].high == pytest.approx(0.75 + 12.7062 * 0.05, abs=1e-4)
    assert found["a"].stress["raw"] == pytest.approx(0.15) and found["a"].parameters == 4
    with pytest.raises(ValueError, match="needs two seeds"):
        outcomes(runs[:3], "order")
    with pytest.raises(ValueError, match="task must be"):
        outcomes(runs, "colour")


def test_rank_correlation_by_hand():
    rng = np.random.default_rng(0)
    means = np.array([0.5, 0.6, 0.7, 0.9])
    table = means[:, None] + rng.normal(size=(4, 6)) * 1e-4
    found = rank_correlation([4.0, 3.0, 2.0, 1.0], table, draws=300, rng=0)
    assert found.rho == pytest.approx(-1) and found.seeds == pytest.approx((-1, -1))
    assert 2 / 24 * 0.6 < found.p < 2 / 24 * 1.6  # of the 24 orders two are as far from 0
    # ranks 1, 2, 3, 4 against 2, 1, 3, 4: 1 - 6 * 2 / (4 * 15)
    assert rank_correlation([1, 2, 3, 4], table[[1, 0, 2, 3]], draws=50, rng=0).rho == pytest.approx(0.8)
    # two arms that change places from seed to seed, two that never do
    table = np.array([[0.5, 0.6], [0.6, 0.51], [0.7, 0.7], [0.9, 0.9]])
    found = rank_correlation([1, 2, 3, 4], table, draws=400, rng=0)
    assert found.rho == pytest.approx(1)
    assert found.seeds == pytest.approx((0.8, 1.0))
    turned = rank_correlation([1, 2, 4, 3], table, draws=400, rng=0)
    assert turned.schemes[0] < 0 and turned.schemes[1] == pytest.approx(1)
    assert found == rank_correlation([10, 20, 30, 40], table, draws=400, rng=0)


@pytest.mark.parametrize(
    ("x", "table", "message"),
    [
        ([1, 2], np.ones((2, 3)), "m >= 3"),
        ([1, 2, 3], np.ones(3), r"must be \(m,\)"),
        ([1, 1, 1], np.arange(6.0).reshape(3, 2), "must vary"),
        ([1, 2, 3], np.ones((3, 2)), "must vary"),
    ],
)
def test_rank_correlation_names_what_does_not_fit(x, table, message):
    with pytest.raises(ValueError, match=message):
        rank_correlation(x, table, rng=0)


def test_between_groups_by_hand():
    assert between_groups([1, 1, 3, 3], ["a", "a", "b", "b"]) == pytest.approx(1)
    assert between_groups([1, 3, 1, 3], ["a", "a", "b", "b"]) == pytest.approx(0)
    # mean 2: total 1 + 1 + 0 + 4 = 6... of which inside a (1, 3): 2, inside b (2, 4): 2, mean 2.5: total 5
    assert between_groups([1, 3, 2, 4], ["a", "a", "b", "b"]) == pytest.approx(1 / 5)
    rng = np.random.default_rng(0)
    chance = [between_groups(rng.normal(size=13), list("aabbbbbcccddd")) for _ in range(2000)]
    assert np.mean(chance) == pytest.approx(3 / 12, abs=0.02)
    with pytest.raises(ValueError, match="one label each"):
        between_groups([1, 2], ["a"])
    with pytest.raises(ValueError, match="vary"):
        between_groups([1, 1], ["a", "b"])


# --- the runs that come with the package


def test_the_recorded_runs_are_complete_and_are_those_of_this_code():
    results = load_results()
    assert results["settings"] == accuracy.settings(BUDGET)
    texts = beginnings(load_corpus("imdb"))
    space = geometry(texts)
    assert results["texts"] == {
        part: len(getattr(texts, part).tokens) for part in ("train", "validation", "test")
    }
    assert results["signal_rank"] == space.rank
    assert results["exponent"] == pytest.approx(space.exponent, abs=2e-4)
    schemes = arms(space)
    assert list(results["arms"]) == list(schemes)
    assert accuracy.longer_plan(schemes, results["longer"]) == []
    assert plan(schemes, results["runs"]) == [] and len(results["runs"]) == len(schemes) * 2 * (
        len(BUDGET.learning_rates) + len(BUDGET.seeds)
    )
    for run in results["runs"]:
        assert 0.4 < run["test"] < 1 and np.isfinite(run["loss"])
        if run["arm"] == "none" and run["task"] == "order":
            assert run["test"] == run["validation"] == 0.5
        if run["parameters"] == 0:  # untrained: its stress is that of the formula
            arm = schemes[run["arm"]]
            E = arm.distances(arm.make(np.random.default_rng([run["seed"], 1])))
            assert run["stress"] == pytest.approx(space.stresses(E), rel=1e-3, abs=1e-9)
