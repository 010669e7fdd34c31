"""The encoder against torch's, against BERT's, and against the symmetries it must have and break."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from posgeom.encodings import formulas as encodings
from posgeom.models.encoder import (
    POSITION_SCHEMES,
    Encoder,
    EncoderConfig,
    PositionScheme,
    encoder_from_bert,
    equivariance_error,
    torch_generator,
)

V, N_POSITIONS, D = 11, 7, 16
POINTS = np.random.default_rng(5).normal(size=(N_POSITIONS, D))
SMALL = EncoderConfig(
    vocab_size=V, n=N_POSITIONS, d=D, heads=2, layers=2, position_std=1.0, embedding_std=1.0, dtype="float64"
)


def encoder_with(position: str, **options) -> Encoder:
    config = replace(SMALL, position=position, P=POINTS if position == "mds" else None, **options)
    return Encoder(config, rng=3).eval()


def random_tokens(texts: int = 5, n: int = N_POSITIONS, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, V, (texts, n), generator=torch.Generator().manual_seed(seed))


def largest_gap(a: torch.Tensor, b: torch.Tensor) -> float:
    return (a - b).abs().max().item()


# --- against independent implementations


def copied_from_torch(layers: nn.ModuleList, encoder: Encoder) -> None:
    """Write the weights of torch's layers into the blocks of ours."""
    with torch.no_grad():
        for theirs, ours in zip(layers, encoder.blocks, strict=True):
            packed = theirs.self_attn.in_proj_weight.chunk(3), theirs.self_attn.in_proj_bias.chunk(3)
            for part, weight, bias in zip(("query", "key", "value"), *packed, strict=True):
                getattr(ours.attention, part).weight.copy_(weight)
                getattr(ours.attention, part).bias.copy_(bias)
            ours.attention.output.load_state_dict(theirs.self_attn.out_proj.state_dict())
            ours.feed_forward[0].load_state_dict(theirs.linear1.state_dict())
            ours.feed_forward[2].load_state_dict(theirs.linear2.state_dict())
            ours.attention_norm.load_state_dict(theirs.norm1.state_dict())
            ours.feed_forward_norm.load_state_dict(theirs.norm2.state_dict())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_equals_torch_transformer_encoder(norm, activation, causal):
    encoder = encoder_with("none", norm=norm, activation=activation, causal=causal, width=24)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        layer = nn.TransformerEncoderLayer(
            D, 2, 24, 0.0, activation, batch_first=True, norm_first=norm == "pre", dtype=torch.float64
        )
        final = nn.LayerNorm(D, dtype=torch.float64) if norm == "pre" else None
        theirs = nn.TransformerEncoder(layer, 2, norm=final, enable_nested_tensor=False).eval()
        for parameter in theirs.parameters():  # biases start at 0 and norms at 1: a mix-up would not show
            nn.init.normal_(parameter, std=0.3)
    copied_from_torch(theirs.layers, encoder)
    if norm == "pre":
        encoder.final_norm.load_state_dict(final.state_dict())
    tokens = random_tokens()
    keep = torch.ones_like(tokens)
    keep[0, 4:], keep[1, 6:] = 0, 0
    mask = torch.triu(torch.ones(N_POSITIONS, N_POSITIONS, dtype=torch.bool), 1) if causal else None
    with torch.no_grad():
        ours = encoder(tokens, attention_mask=keep)
        expected = theirs(encoder.embedding(tokens), mask=mask, src_key_padding_mask=keep == 0)
    assert largest_gap(ours[keep == 1], expected[keep == 1]) < 1e-12


@pytest.fixture(scope="module")
def bert():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=V, hidden_size=D, num_hidden_layers=3, num_attention_heads=4, intermediate_size=40,
        max_position_embeddings=12, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(2)
        model = transformers.BertModel(config, add_pooling_layer=False).double().eval()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.4)
    return model


def test_equals_bert_with_copied_weights(bert):
    encoder = encoder_from_bert(bert)
    tokens = random_tokens(n=9)
    keep = torch.ones_like(tokens)
    keep[0, 5:], keep[3, 2:] = 0, 0
    positions = torch.stack([torch.randperm(9, generator=torch.Generator().manual_seed(i)) for i in range(5)])
    with torch.no_grad():
        for given in (None, positions):
            theirs = bert(tokens, attention_mask=keep, position_ids=given, output_hidden_states=True)
            ours = encoder.hidden_states(tokens, attention_mask=keep, positions=given)
            assert len(ours) == len(theirs.hidden_states) == 4
            for a, b in zip(ours, theirs.hidden_states, strict=True):
                assert largest_gap(a[keep == 1], b[keep == 1]) < 1e-12


def test_bert_conversion_refuses_another_model(bert):
    with pytest.raises(ValueError, match="bert must be a transformers.BertModel, not Linear"):
        encoder_from_bert(nn.Linear(2, 2))


def test_attention_by_hand():
    """One head of width 2, two tokens, identity maps: the softmax average written out."""
    encoder = Encoder(
        EncoderConfig(vocab_size=2, n=2, d=2, heads=1, position="none", norm="none", dtype="float64")
    ).eval()
    with torch.no_grad():
        encoder.embedding.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
        for name in ("query", "key", "value", "output"):
            nn.init.eye_(getattr(encoder.blocks[0].attention, name).weight)
            nn.init.zeros_(getattr(encoder.blocks[0].attention, name).bias)
        nn.init.zeros_(encoder.blocks[0].feed_forward[2].weight)
        nn.init.zeros_(encoder.blocks[0].feed_forward[2].bias)
        output = encoder(torch.tensor([[0, 1]]))[0].numpy()
    first = 1 / (1 + math.exp(-1 / math.sqrt(2)))  # token 0 scores 1 / sqrt(2) on itself and 0 on token 1
    second = 1 / (1 + math.exp(-4 / math.sqrt(2)))  # token 1 scores 4 / sqrt(2) on itself and 0 on token 0
    expected = [[1 + first, 2 * (1 - first)], [1 - second, 2 + 2 * second]]
    np.testing.assert_allclose(output, expected, rtol=1e-14)


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_rope_rotation_is_the_formula(layout):
    scheme = encoder_with("rope", rope_layout=layout, rope_base=100.0).scheme
    x = torch.randn(2, 2, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    positions = torch.tensor([[0, 4, 1, 1000, 3]])
    expected = encodings.apply_rope(x.numpy(), positions[0].numpy(), base=100.0, layout=layout)
    np.testing.assert_allclose(scheme.rotate(x, positions).numpy(), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_rope_layouts_are_one_model_after_reordering_the_head(layout):
    """The half layout is the interleaved one with each head's coordinates taken in another order."""
    interleaved, half = encoder_with("rope", layers=1), encoder_with("rope", rope_layout="half", layers=1)
    order = torch.cat([torch.arange(0, 8, 2), torch.arange(1, 8, 2)])
    order = torch.cat([order, 8 + order])  # two heads of width 8
    with torch.no_grad():
        for name in ("query", "key"):
            ours, theirs = (
                getattr(half.blocks[0].attention, name),
                getattr(interleaved.blocks[0].attention, name),
            )
            ours.weight.copy_(theirs.weight[order])
            ours.bias.copy_(theirs.bias[order])
        tokens = random_tokens()
        assert largest_gap(half(tokens), interleaved(tokens)) < 1e-13
        half.scheme.first, half.scheme.second = interleaved.scheme.first, interleaved.scheme.second
        assert largest_gap(half(tokens), interleaved(tokens)) > 1e-3


def test_alibi_bias_is_minus_slope_times_lag():
    bias = encoder_with("alibi").scheme.bias(torch.arange(N_POSITIONS)[None])[0].numpy()
    for head, slope in enumerate(encodings.alibi_slopes(2)):
        np.testing.assert_array_equal(bias[head], -encodings.alibi_distances(N_POSITIONS, slope))


def test_tables_are_the_formulas():
    np.testing.assert_array_equal(
        encoder_with("sinusoidal").position_table(), encodings.sinusoidal(N_POSITIONS, D)
    )
    np.testing.assert_array_equal(encoder_with("mds").position_table(), POINTS)
    np.testing.assert_array_equal(Encoder(replace(SMALL, P=POINTS)).position_table(), POINTS)
    assert not any(name.startswith("scheme") for name, _ in encoder_with("mds").named_parameters())
    assert "scheme.table" in dict(encoder_with("learned").named_parameters())


# --- symmetries


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("position", ["learned", "sinusoidal", "rope", "alibi", "mds"])
def test_output_changes_with_the_positions(position, causal):
    encoder = encoder_with(position, causal=causal)
    tokens = random_tokens()
    with torch.no_grad():
        here = encoder(tokens)
        there = encoder(tokens, positions=torch.tensor([0, 2, 1, 3, 5, 4, 6]))
    assert largest_gap(here, there) > 1e-3


def test_without_scheme_and_mask_positions_are_not_read():
    encoder, tokens = encoder_with("none"), random_tokens()
    with torch.no_grad():
        assert torch.equal(encoder(tokens), encoder(tokens, positions=torch.zeros(N_POSITIONS, dtype=int)))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("position", sorted(POSITION_SCHEMES))
def test_positions_that_move_along_only_relabel(position, causal):
    encoder, tokens = encoder_with(position, causal=causal), random_tokens()
    order = torch.tensor([3, 0, 6, 2, 1, 5, 4])
    keep = torch.ones_like(tokens)
    keep[:2, 5:] = 0
    with torch.no_grad():
        before = encoder(tokens, attention_mask=keep)[:, order]
        after = encoder(tokens[:, order], positions=order, attention_mask=keep[:, order])
    real = keep[:, order] == 1
    assert largest_gap(before[real], after[real]) < 1e-12


def test_permutation_equivariance_and_what_breaks_it():
    order, tokens = torch.tensor([3, 0, 6, 2, 1, 5, 4]), random_tokens()
    with torch.no_grad():
        for position, causal, symmetric in (
            ("none", False, True),
            ("none", True, False),
            ("learned", False, False),
        ):
            encoder = encoder_with(position, causal=causal)
            gap = largest_gap(encoder(tokens)[:, order], encoder(tokens[:, order]))
            assert gap < 1e-12 if symmetric else gap > 1e-3


def test_equivariance_error_by_hand():
    """f(x)_i = x_i + i: the exchange of tokens 3 and 5 is off by 1, and the largest output is 6."""
    tokens = torch.tensor([[3, 5]])

    def adds_position(x):
        return (x + torch.arange(2))[..., None].double()

    assert equivariance_error(adds_position, tokens, torch.tensor([1, 0])) == pytest.approx(1 / 6)
    assert equivariance_error(adds_position, tokens, torch.tensor([0, 1])) == 0
    assert equivariance_error(lambda x: x[..., None].double(), tokens, torch.tensor([1, 0])) == 0
    with pytest.raises(ValueError, match="order must be a permutation of 0 ... 1"):
        equivariance_error(adds_position, tokens, torch.tensor([1, 1]))


def test_symmetric_alibi_cannot_see_a_reversal_but_causal_alibi_can():
    tokens = random_tokens()
    with torch.no_grad():
        for causal in (False, True):
            encoder = encoder_with("alibi", causal=causal, readout="mean", outputs=3)
            gap = largest_gap(encoder(tokens), encoder(tokens.flip(1)))
            assert gap > 1e-3 if causal else gap < 1e-12


@pytest.mark.parametrize("position", ["rope", "alibi"])
def test_relative_schemes_ignore_a_common_shift(position):
    tokens = random_tokens()
    with torch.no_grad():
        encoder = encoder_with(position)
        shifted = encoder(tokens, positions=torch.arange(N_POSITIONS) + 40)
        assert largest_gap(encoder(tokens), shifted) < 1e-12


def test_causal_mask_hides_the_future_only():
    encoder, tokens = encoder_with("learned", causal=True), random_tokens()
    changed = tokens.clone()
    changed[:, 4] = (changed[:, 4] + 1) % V
    with torch.no_grad():
        gap = (encoder(tokens) - encoder(changed)).abs().amax(dim=(0, 2))
    assert gap[:4].max() == 0 and gap[4:].min() > 1e-4


@pytest.mark.parametrize("readout", ["tokens", "mean", "first", "last"])
@pytest.mark.parametrize("position", sorted(POSITION_SCHEMES))
def test_padding_changes_nothing(position, readout):
    encoder = encoder_with(position, readout=readout, outputs=3)
    tokens = random_tokens(n=4)
    padded = torch.cat([tokens, torch.full((5, 3), 9)], dim=1)
    keep = torch.cat([torch.ones(5, 4), torch.zeros(5, 3)], dim=1)
    with torch.no_grad():
        short, long = encoder(tokens), encoder(padded, attention_mask=keep)
    assert largest_gap(short, long[:, :4] if readout == "tokens" else long) < 1e-13


def test_left_padding_under_a_causal_mask_is_finite_and_unread():
    encoder, tokens = encoder_with("none", causal=True, readout="last"), random_tokens(n=4)
    padded = torch.cat([torch.full((5, 2), 9), tokens], dim=1)
    keep = torch.cat([torch.zeros(5, 2), torch.ones(5, 4)], dim=1)
    with torch.no_grad():
        long = encoder(padded, attention_mask=keep)
    assert torch.isfinite(long).all()
    assert largest_gap(encoder(tokens), long) < 1e-13


def test_readouts_are_what_they_say():
    tokens = random_tokens()
    keep = torch.ones_like(tokens)
    keep[:, 5:] = 0
    keep[0, 0] = 0
    with torch.no_grad():
        states = encoder_with("learned").forward(tokens, attention_mask=keep)
        mean = encoder_with("learned", readout="mean")(tokens, attention_mask=keep)
        first = encoder_with("learned", readout="first")(tokens, attention_mask=keep)
        last = encoder_with("learned", readout="last")(tokens, attention_mask=keep)
    assert largest_gap(mean[1], states[1, :5].mean(0)) < 1e-14
    assert largest_gap(mean[0], states[0, 1:5].mean(0)) < 1e-14
    assert torch.equal(first[0], states[0, 1]) and torch.equal(first[1], states[1, 0])
    assert torch.equal(last, states[:, 4])


# --- a seventh scheme, dtypes and seeds


def test_a_seventh_scheme_is_one_class_and_one_line(monkeypatch):
    class Logarithmic(PositionScheme):
        """Subtracts |log(1 + i) - log(1 + j)| from the scores."""

        def bias(self, positions):
            places = torch.log1p(positions.double())
            return -(places[:, None, :, None] - places[:, None, None, :]).abs()

    monkeypatch.setitem(POSITION_SCHEMES, "logarithmic", Logarithmic)
    encoder, tokens = encoder_with("logarithmic"), random_tokens()
    with torch.no_grad():
        assert largest_gap(encoder(tokens), encoder(tokens, positions=torch.arange(6, -1, -1))) > 1e-3
        assert largest_gap(encoder(tokens).flip(1), encoder(tokens.flip(1))) > 1e-3  # it sees a reversal


@pytest.mark.parametrize("position", sorted(POSITION_SCHEMES))
def test_same_seed_same_weights_in_every_dtype(position):
    double, single = encoder_with(position), encoder_with(position, dtype="float32")
    tokens = random_tokens()
    with torch.no_grad():
        outputs = double(tokens), single(tokens)
    assert outputs[0].dtype == torch.float64 and outputs[1].dtype == torch.float32
    assert 0 < largest_gap(*outputs) < 1e-4


def test_positions_keep_their_digits_in_a_bfloat16_model():
    """bfloat16 has no 257 or 4097: rounding positions or angles there would merge neighbours."""
    positions = torch.tensor([[4096, 4097]])
    rope, alibi = (
        encoder_with("rope", dtype="bfloat16").scheme,
        encoder_with("alibi", dtype="bfloat16").scheme,
    )
    turned = rope.rotate(torch.ones(1, 2, 2, 8, dtype=torch.bfloat16), positions)
    expected = encodings.apply_rope(np.ones((2, 8)), positions[0].numpy())
    np.testing.assert_allclose(turned[0, 0].float().numpy(), expected, atol=2.0**-8)
    assert alibi.bias(torch.tensor([[0, 257]]))[0, 0, 0, 1].item() == -257 * encodings.alibi_slopes(2)[0]


def test_seeds_decide_the_weights_and_leave_the_global_generator_alone():
    before = torch.get_rng_state()
    models = [Encoder(SMALL, rng=seed) for seed in (1, 1, 2)]
    weights = [model.blocks[0].attention.query.weight for model in models]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    assert torch.equal(torch.get_rng_state(), before)
    numpy_seeded = [Encoder(SMALL, rng=np.random.default_rng(4)).embedding.weight for _ in range(2)]
    assert torch.equal(*numpy_seeded)
    schemes = [Encoder(replace(SMALL, position=position)) for position in ("none", "learned", "rope")]
    assert all(torch.equal(schemes[0].embedding.weight, other.embedding.weight) for other in schemes)


def test_torch_generator_takes_every_kind_of_randomness():
    given = torch.Generator().manual_seed(1)
    assert torch_generator(given) is given
    assert torch.equal(torch_generator(7).get_state(), torch.Generator().manual_seed(7).get_state())
    draws = [torch_generator(np.random.default_rng(0)).initial_seed() for _ in range(2)]
    assert draws[0] == draws[1] == np.random.default_rng(0).integers(2**63)
    for bad in (-1, 0.5, None):
        with pytest.raises(ValueError, match="rng"):
            torch_generator(bad)


def test_gradient_reaches_every_parameter():
    encoder = encoder_with("learned", readout="mean", outputs=2, layers=1)
    encoder(random_tokens()).square().sum().backward()
    # A common shift of all keys changes no softmax, so the key bias alone has no gradient.
    silent = {name for name, p in encoder.named_parameters() if p.grad is None or p.grad.abs().max() < 1e-12}
    assert silent == {"blocks.0.attention.key.bias"}


# --- bad input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"position": "absolute"}, "position must be one of alibi, learned, .*not 'absolute'"),
        ({"d": 18, "heads": 4}, "d = 18 is not divisible by heads = 4"),
        ({"P": np.zeros((3, D))}, r"P has shape \(3, 16\), but must be \(n, d\) = \(7, 16\)"),
        ({"P": np.full((N_POSITIONS, D), np.nan)}, r"P\[0, 0\] is nan"),
        ({"layers": 0}, "layers must be at least 1"),
        ({"n": 2.5}, "n must be an integer"),
        ({"outputs": 0}, "outputs must be at least 1"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\)"),
        ({"readout": "cls"}, "readout must be one of"),
        ({"norm": "rms"}, "norm must be one of"),
        ({"dtype": "float16"}, "dtype must be one of"),
        ({"rope_layout": "pairs"}, "rope_layout must be one of"),
        ({"embedding_std": -1.0}, "embedding_std must be a finite number >= 0"),
    ],
)
def test_impossible_configurations_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **change)


def test_schemes_name_what_they_cannot_do():
    with pytest.raises(ValueError, match="head width d / heads = 3 is odd, but 'rope'"):
        Encoder(EncoderConfig(vocab_size=V, n=4, d=6, heads=2, position="rope"))
    with pytest.raises(ValueError, match="'mds' needs points P"):
        Encoder(replace(SMALL, position="mds"))
    with pytest.raises(ValueError, match="'rope' adds no vectors"):
        encoder_with("rope").position_table()


@pytest.mark.parametrize("position", ["learned", "sinusoidal", "mds"])
def test_a_table_names_the_position_beyond_it(position):
    encoder = encoder_with(position)
    with pytest.raises(ValueError, match=f"position 7 is beyond the '{position}' table of n = 7"):
        encoder(random_tokens(n=8))
    with pytest.raises(ValueError, match="position -1 is beyond"):
        encoder(random_tokens(n=2), positions=torch.tensor([0, -1]))


@pytest.mark.parametrize("position", ["none", "rope", "alibi"])
def test_schemes_without_a_table_go_on(position):
    with torch.no_grad():
        assert encoder_with(position)(random_tokens(n=20)).shape == (5, 20, D)


def test_forward_names_the_argument_at_fault():
    encoder, tokens = encoder_with("learned"), random_tokens()
    with pytest.raises(ValueError, match=r"tokens must have shape \(N, n\)"):
        encoder(tokens[0])
    with pytest.raises(ValueError, match=r"tokens must be integers in 0 \.\.\. 10"):
        encoder(tokens + 5)
    with pytest.raises(ValueError, match="tokens must be integers"):
        encoder(tokens.double())
    with pytest.raises(ValueError, match=r"positions must be integers of shape \(7,\)"):
        encoder(tokens, positions=torch.arange(6))
    with pytest.raises(ValueError, match="positions must be integers"):
        encoder(tokens, positions=torch.arange(7) / 2)
    with pytest.raises(ValueError, match="attention_mask has shape"):
        encoder(tokens, attention_mask=torch.ones(5, 6))
    with pytest.raises(ValueError, match="attention_mask leaves text 2 without any token"):
        keep = torch.ones_like(tokens)
        keep[2] = 0
        encoder(tokens, attention_mask=keep)
