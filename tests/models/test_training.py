"""The loop against a loop written out, resumption to the bit, and what must stop or leave no trace."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from posbook.experiments.tasks import FiniteTask, a_before_b, product_task
from posgeom.models import training
from posgeom.models.encoder import Encoder, EncoderConfig
from posgeom.models.training import (
    accuracy,
    draws_from,
    log_loss,
    loss_over,
    min_pairwise_distance,
    squared_error,
    train,
    violation_rate,
    whole_law,
)

pytestmark = pytest.mark.usefixtures("one_thread")

TASK = a_before_b(4, 3)
CONFIG = EncoderConfig(vocab_size=3, n=4, d=8, heads=2, readout="mean", outputs=2, dropout=0.2)
TRACKERS = {"gap": min_pairwise_distance, "violations": violation_rate}


def run(model: nn.Module, **options):
    defaults = {"steps": 20, "rng": 7, "learning_rate": 1e-2, "trackers": TRACKERS, "track_every": 7}
    return train(model, draws_from(TASK, 16), log_loss, **(defaults | options))


def same_weights(a: nn.Module, b: nn.Module) -> bool:
    ours, theirs = a.state_dict(), b.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def same_history(a, b) -> bool:
    return (
        np.array_equal(a.loss, b.loss)
        and np.array_equal(a.steps, b.steps)
        and a.tracked.keys() == b.tracked.keys()
        and all(np.array_equal(a.tracked[name], b.tracked[name]) for name in a.tracked)
        and a.finished == b.finished
    )


class Scale(nn.Module):
    """f(x) = a * (number of tokens 1 in x)."""

    def __init__(self, a: float) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor(a, dtype=torch.float64))

    def forward(self, tokens):
        return self.a * (tokens == 1).sum(dim=1)


def test_gradient_descent_by_hand():
    """E (a s - 3 s)^2 = 3/2 (a - 3)^2 for s ~ Bin(2, 1/2): a step multiplies a - 3 by 1 - 3 lr."""
    task = product_task(np.full((2, 2), 0.5), lambda x: 3 * x.sum(axis=1))
    model = Scale(1.0)
    seen = {"a": lambda m: m.a.item()}
    history = train(
        model, whole_law(task), squared_error, steps=5, rng=0, optimiser="sgd",
        learning_rate=lambda step: 0.1 / (1 + step), trackers=seen, track_every=2,
    )  # fmt: skip
    distances = 2 * np.cumprod([1] + [1 - 0.3 / (1 + step) for step in range(5)])
    np.testing.assert_allclose(history.loss, 1.5 * distances[:5] ** 2, rtol=1e-14)
    np.testing.assert_array_equal(history.steps, [0, 2, 4, 5])
    np.testing.assert_allclose(history.tracked["a"], 3 - distances[[0, 2, 4, 5]], rtol=1e-14)
    assert history.finished and not model.training


@pytest.mark.parametrize(("name", "optimiser"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)])
def test_equals_a_loop_written_out(name, optimiser):
    """In float64: a bias of the keys has gradient 0, and Adam makes steps of what rounding leaves of it."""
    config = replace(CONFIG, dropout=0.0)
    ours, theirs = Encoder(config).double(), Encoder(config).double()
    history = run(ours, optimiser=name, weight_decay=0.1)
    generator, step = (
        torch.Generator().manual_seed(7),
        optimiser(theirs.parameters(), lr=1e-2, weight_decay=0.1),
    )
    expected = []
    for _ in range(20):
        tokens, targets, weights = draws_from(TASK, 16)(generator)
        loss = nn.functional.cross_entropy(theirs(tokens), targets.long())
        step.zero_grad()
        loss.backward()
        step.step()
        expected.append(loss.item())
    np.testing.assert_allclose(history.loss, expected, rtol=1e-12)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@pytest.mark.parametrize("optimiser", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("position", ["learned", "mds"])
def test_a_resumed_run_equals_an_unbroken_one_to_the_bit(tmp_path, position, optimiser):
    P = np.random.default_rng(0).normal(size=(4, 8)) if position == "mds" else None
    config, path = replace(CONFIG, position=position, P=P), tmp_path / "run.safetensors"
    options = {"optimiser": optimiser, "learning_rate": lambda step: 1e-2 / (1 + step), "weight_decay": 0.01}
    unbroken, broken = Encoder(config, rng=1), Encoder(config, rng=1)
    expected = run(unbroken, **options)
    run(broken, steps=10, checkpoint=path, **options)
    assert not same_weights(unbroken, broken)
    other = Encoder(config, rng=2)  # nothing of this start may survive
    history = run(other, checkpoint=path, resume=True, **options)
    assert same_weights(unbroken, other)
    assert same_history(history, expected)
    assert list(history.steps) == [0, 7, 14, 20] and len(history.loss) == 20


def test_a_run_stopped_by_the_clock_goes_on_to_the_same_end(tmp_path):
    path, unbroken, broken = tmp_path / "run.safetensors", Encoder(CONFIG), Encoder(CONFIG)
    expected = run(unbroken)
    first = run(broken, time_limit=0.0, checkpoint=path)
    assert not first.finished and len(first.loss) < 20
    history = run(broken, checkpoint=path, resume=True)
    assert same_weights(unbroken, broken) and same_history(history, expected)


def test_checkpoints_within_a_run_do_not_change_it(tmp_path):
    path, plain, saved = tmp_path / "run.safetensors", Encoder(CONFIG), Encoder(CONFIG)
    assert same_history(run(plain), run(saved, checkpoint=path, checkpoint_every=3))
    assert same_weights(plain, saved)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="what is mapped is read from /proc")
def test_a_resumed_run_keeps_no_checkpoint_mapped(tmp_path, monkeypatch):
    """Windows refuses to replace a file that is mapped."""
    path, seen = tmp_path / "run.safetensors", []
    run(Encoder(CONFIG), steps=10, checkpoint=path)
    put = os.replace

    def looking(part, target):
        seen.append(str(path) in Path("/proc/self/maps").read_text())
        put(part, target)

    monkeypatch.setattr(os, "replace", looking)
    run(Encoder(CONFIG, rng=9), checkpoint=path, resume=True)
    assert seen and not any(seen)


def test_a_crash_loses_only_the_steps_since_the_last_checkpoint(tmp_path):
    path, unbroken, broken = tmp_path / "run.safetensors", Encoder(CONFIG), Encoder(CONFIG)
    calls = []

    def failing_loss(model, *tensors):
        calls.append(1)
        if len(calls) == 13:
            raise KeyboardInterrupt
        return log_loss(model, *tensors)

    options = {"steps": 20, "rng": 7, "learning_rate": 1e-2, "trackers": TRACKERS, "track_every": 7}
    with pytest.raises(KeyboardInterrupt):
        train(broken, draws_from(TASK, 16), failing_loss, checkpoint=path, checkpoint_every=5, **options)
    assert same_history(run(Encoder(CONFIG, rng=9), checkpoint=path, resume=True), run(unbroken))


def test_a_write_that_fails_leaves_the_file_of_before(tmp_path, monkeypatch):
    path, model = tmp_path / "run.safetensors", Encoder(CONFIG)
    run(model, steps=5, checkpoint=path)
    before = path.read_bytes()

    def disk_full(tensors, target, metadata):
        target.write_bytes(b"half a file")
        raise OSError("no space left on device")

    monkeypatch.setattr(training, "save_file", disk_full)
    with pytest.raises(OSError, match="no space left"):
        run(model, checkpoint=path, resume=True)
    assert path.read_bytes() == before


def test_tied_weights_and_tensors_of_one_memory_can_be_saved(tmp_path):
    class Tied(Encoder):
        def __init__(self, config):
            super().__init__(config)
            self.output = nn.Linear(8, 3, bias=False)
            self.output.weight = self.embedding.weight

        def forward(self, tokens):
            return self.output(super().forward(tokens))

    config, path = replace(CONFIG, outputs=None), tmp_path / "run.safetensors"
    run(Tied(config), steps=5, checkpoint=path)
    resumed = Tied(config)
    run(resumed, checkpoint=path, resume=True)
    expected = Tied(config)
    run(expected)
    assert same_weights(resumed, expected) and resumed.output.weight is resumed.embedding.weight


def test_trackers_and_global_randomness_leave_no_trace():
    torch.manual_seed(123)
    before = torch.get_rng_state()
    watched, alone = Encoder(CONFIG), Encoder(CONFIG)
    modes = []

    def greedy(model):
        modes.append(model.training)
        return torch.rand(3).sum().item()

    history = run(watched, trackers={"noise": greedy}, track_every=1)
    assert np.array_equal(history.loss, run(alone, trackers=None).loss) and same_weights(watched, alone)
    assert torch.equal(torch.get_rng_state(), before) and not any(modes) and len(modes) == 21
    again = Encoder(CONFIG)
    torch.manual_seed(4)
    assert np.array_equal(run(again).loss, history.loss)
    assert not np.array_equal(run(Encoder(CONFIG), rng=8).loss, history.loss)


def test_a_frozen_parameter_stays():
    model = Encoder(CONFIG)
    model.scheme.table.requires_grad_(False)
    before = model.position_table()
    run(model)
    np.testing.assert_array_equal(model.position_table(), before)


def test_an_encoder_learns_an_order_and_without_positions_stays_on_the_ceiling():
    scores = {}
    for position in ("none", "learned"):
        model = Encoder(replace(CONFIG, position=position, d=16, dropout=0.0))
        train(model, whole_law(TASK), log_loss, steps=150, rng=0, learning_rate=1e-2)
        scores[position] = accuracy(model, TASK)
    assert scores["learned"] == pytest.approx(1, abs=1e-12)
    assert scores["none"] <= 0.5 + 1e-12


# --- losses and trackers by hand


def test_weighted_losses_by_hand():
    tokens, weights = torch.tensor([[1, 1], [1, 0]]), torch.tensor([0.25, 0.75], dtype=torch.float64)
    error = squared_error(Scale(2.0), tokens, torch.tensor([1.0, 5.0]), weights)
    assert error.item() == 0.25 * (4 - 1) ** 2 + 0.75 * (2 - 5) ** 2

    column = squared_error(lambda x: Scale(2.0)(x)[:, None], tokens, torch.tensor([1.0, 5.0]), weights)
    assert column.item() == error.item()

    def two_logits(tokens):
        return torch.stack([torch.zeros(len(tokens)), tokens.sum(dim=1) * np.log(3.0)], dim=1).double()

    expected = -0.25 * np.log(9 / 10) - 0.75 * np.log(1 / 4)
    assert log_loss(two_logits, tokens, torch.tensor([1.0, 0.0]), weights).item() == pytest.approx(expected)


def test_accuracy_is_the_probability_of_the_right_label():
    task = FiniteTask([[0, 0], [0, 1], [1, 1]], [0.5, 0.2, 0.3], [0, 0, 1])

    def says_first_token(tokens):
        return nn.functional.one_hot(tokens[:, 1], 2)

    assert accuracy(says_first_token, task) == pytest.approx(0.8)
    long = FiniteTask(np.arange(20_000)[:, None] % 2, np.full(20_000, 1 / 20_000), np.ones(20_000))
    assert accuracy(lambda tokens: nn.functional.one_hot(tokens[:, 0], 2), long) == pytest.approx(0.5)


def test_draws_follow_the_law():
    task = FiniteTask([[0, 1], [1, 0]], [0.2, 0.8], [0, 1])
    tokens, targets, weights = draws_from(task, 20_000)(torch.Generator().manual_seed(0))
    assert abs(targets.mean().item() - 0.8) < 5 * (0.16 / 20_000) ** 0.5
    assert torch.equal(tokens[:, 0].double(), targets) and weights.sum().item() == pytest.approx(1)


def test_trackers_read_the_table():
    class Line(nn.Module):
        def position_table(self):
            return np.array([[0.0], [3.0], [2.0]])

    assert min_pairwise_distance(Line()) == 1
    assert violation_rate(Line()) == 0.5  # position 0: |0 - 3| > |0 - 2|; position 2: |2 - 3| < |2 - 0|


def test_loss_tracker_is_the_expected_loss():
    task = product_task(np.full((2, 2), 0.5), lambda x: 3 * x.sum(axis=1))
    assert loss_over(squared_error, whole_law(task))(Scale(1.0)) == 6


# --- progress


def test_a_label_prints_one_line_and_none_is_silent(capfd, monkeypatch):
    monkeypatch.setenv("BOOK_BUILD", "1")
    run(Encoder(CONFIG), label="learned")
    out, err = capfd.readouterr()
    assert out.startswith("learned: 20 steps, loss ") and out.count("\n") == 1 and err == ""
    run(Encoder(CONFIG), label="learned", time_limit=0.0)
    assert "of 20, stopped by the time limit" in capfd.readouterr().out
    run(Encoder(CONFIG))
    assert capfd.readouterr() == ("", "")


def test_a_terminal_gets_a_running_line_outside_the_build(monkeypatch, capsys):
    monkeypatch.delenv("BOOK_BUILD", raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    run(Encoder(CONFIG), label="learned")
    assert "\rlearned: step 1 of 20" in capsys.readouterr().err
    monkeypatch.setenv("BOOK_BUILD", "1")
    run(Encoder(CONFIG), label="learned")
    assert capsys.readouterr().err == ""


# --- bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps must be at least 1"),
        ({"optimiser": "lion"}, "optimiser must be one of adam, adamw, sgd, not 'lion'"),
        ({"learning_rate": -1.0}, "learning_rate must be a finite number >= 0"),
        ({"weight_decay": float("nan")}, "weight_decay must be a finite number"),
        ({"time_limit": -1}, "time_limit must be"),
        ({"track_every": 0}, "track_every must be at least 1"),
        ({"resume": True}, "checkpoint must name a file"),
        ({"checkpoint_every": 5}, "checkpoint must name a file"),
        ({"rng": None}, "rng must be an integer"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        run(Encoder(CONFIG), **options)


def test_a_loss_that_is_no_number_names_its_step():
    losses = iter([1.0, 1.0, float("nan")])
    with pytest.raises(ValueError, match="loss is nan at step 2"):
        train(Scale(1.0), lambda g: (), lambda model: model.a * next(losses), steps=9, rng=0)


def test_nothing_to_train_is_an_error():
    with pytest.raises(ValueError, match="no parameter that requires a gradient"):
        run(Encoder(CONFIG).requires_grad_(False))


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    path = tmp_path / "run.safetensors"
    run(Encoder(CONFIG), checkpoint=path)
    for options, message in (
        ({"rng": 8}, "made with seed = 7, not 8"),
        ({"learning_rate": 0.5}, "made with learning_rate = 0.01, not 0.5"),
        ({"optimiser": "adamw"}, "made with optimiser = 'adam'"),
        ({"trackers": None}, "made with trackers"),
        ({"steps": 10}, "is at step 20, beyond steps = 10"),
    ):
        with pytest.raises(ValueError, match=message):
            run(Encoder(CONFIG), checkpoint=path, resume=True, **options)
    with pytest.raises(ValueError, match="does not fit the model"):
        run(Encoder(replace(CONFIG, d=16)), checkpoint=path, resume=True)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match="is not one that train"):
        run(Encoder(CONFIG), checkpoint=path, resume=True)
    fresh = tmp_path / "absent.safetensors"
    run(Encoder(CONFIG), checkpoint=fresh, resume=True)  # nothing to resume: a first run
    assert sorted(os.listdir(tmp_path)) == ["absent.safetensors", "run.safetensors"]
