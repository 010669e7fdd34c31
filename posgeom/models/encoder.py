"""A transformer encoder small enough to read, and the position schemes that plug into it.

Everything a token can learn about its place enters through one small object, the position scheme: it may add
a vector to the token's embedding, rotate queries and keys, or bias the attention scores. The causal mask is
the one other way in. Take both away and the model commutes with every permutation of its tokens (chapter 1).

Shapes in the comments: N texts of n tokens each, width d, h heads of width c = d / h.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from posgeom import checks
from posgeom.encodings import formulas as encodings

__all__ = [
    "POSITION_SCHEMES",
    "Encoder",
    "EncoderConfig",
    "PositionScheme",
    "encoder_from_bert",
    "equivariance_error",
    "torch_generator",
]

ACTIVATIONS = {"gelu": nn.GELU, "relu": nn.ReLU}
NORMS = ("post", "pre", "none")
READOUTS = ("tokens", "mean", "first", "last")
Randomness = int | np.random.Generator | torch.Generator
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class EncoderConfig:
    """What an :class:`Encoder` is made of. An impossible value is a ``ValueError`` here and now."""

    vocab_size: int  # V: token ids are 0 ... V - 1
    n: int  # positions that the scheme's table holds
    d: int = 32  # width
    heads: int = 4
    layers: int = 1
    position: str = "learned"  # a name in POSITION_SCHEMES
    causal: bool = False  # a token sees only tokens at its own position or an earlier one
    readout: str = "tokens"  # "tokens": one output a token; "mean", "first", "last": one a text
    outputs: int | None = None  # size of the linear head; None: the hidden vectors themselves
    width: int | None = None  # of the feed-forward layer; None: 4 d
    activation: str = "gelu"
    norm: str = "post"  # "post": after the residual sum (BERT); "pre": before each layer; "none"
    norm_eps: float = 1e-5
    embedding_norm: bool = False  # normalise token + position, as BERT does
    dropout: float = 0.0
    embedding_std: float = 0.02  # of the initial token vectors
    position_std: float = 0.02  # of the initial learned positions
    # (n, d) points: "mds" adds them as they are, "learned" starts from them.
    P: np.ndarray | None = field(default=None, compare=False, repr=False)
    rope_layout: str = "interleaved"  # or "half"
    rope_base: float = 10000.0
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name in ("vocab_size", "n", "d", "heads", "layers"):
            checks.positive_int(getattr(self, name), name)
        for name in ("outputs", "width"):
            if getattr(self, name) is not None:
                checks.positive_int(getattr(self, name), name)
        for name, known in CHOICES.items():
            value = getattr(self, name)
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(sorted(known))}, not {value!r}")
        for name in ("embedding_std", "position_std", "norm_eps"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise ValueError(f"{name} must be a finite number >= 0, not {getattr(self, name)!r}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), not {self.dropout!r}")
        if self.d % self.heads:
            raise ValueError(
                f"d = {self.d} is not divisible by heads = {self.heads}: a head has width d / heads"
            )
        if self.P is not None and checks.points(self.P, "P").shape != (self.n, self.d):
            raise ValueError(f"P has shape {np.shape(self.P)}, but must be (n, d) = ({self.n}, {self.d})")


class PositionScheme(nn.Module):
    """How a model learns where a token is. This one, ``"none"``, says nothing.

    A scheme overrides one method or more. ``positions`` is ``(1, n)`` or ``(N, n)``, integers. A seventh
    scheme is one subclass and one line: ``POSITION_SCHEMES["mine"] = Mine``.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()

    def add(self, x: Tensor, positions: Tensor) -> Tensor:
        """Token vectors ``(N, n, d)`` -> token vectors that know their positions ``(N, n, d)``."""
        return x

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Queries or keys ``(N, h, n, c)`` -> the same, turned by their positions ``(N, h, n, c)``."""
        return x

    def bias(self, positions: Tensor) -> Tensor | None:
        """What is added to the scores, ``(1 or N, 1 or h, n, n)``, queries by keys; ``None`` for nothing."""
        return None


class Table(PositionScheme):
    """Adds row i of a fixed table ``(n, d)`` at position i."""

    def __init__(self, config: EncoderConfig, rows: np.ndarray) -> None:
        super().__init__(config)
        self.name = config.position
        self.register_buffer("table", torch.tensor(rows, dtype=torch.float64))  # (n, d)

    def add(self, x: Tensor, positions: Tensor) -> Tensor:
        beyond = positions[(positions < 0) | (positions >= len(self.table))]
        if len(beyond):
            n = len(self.table)
            raise ValueError(
                f"position {beyond[0].item()} is beyond the {self.name!r} table of n = {n} positions, "
                f"0 ... {n - 1}: shorten the texts or build the encoder with a larger n"
            )
        return x + self.table[positions]  # (N, n, d)


class Learned(Table):
    """Adds a trained vector for each position (BERT, GPT-2)."""

    def __init__(self, config: EncoderConfig) -> None:
        drawn = config.position_std * torch.randn(config.n, config.d).numpy()  # (n, d)
        super().__init__(config, drawn if config.P is None else config.P)
        rows = self.table
        del self.table
        self.table = nn.Parameter(rows)  # (n, d)


class Sinusoidal(Table):
    """Adds sines and cosines of the position (Vaswani et al. 2017)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config, encodings.sinusoidal(config.n, config.d))


class Given(Table):
    """Adds the rows of ``config.P`` and never changes them: multidimensional scaling, or any other points."""

    def __init__(self, config: EncoderConfig) -> None:
        if config.P is None:
            raise ValueError(f"position {config.position!r} needs points P of shape (n, d) in the config")
        super().__init__(config, config.P)


class Rope(PositionScheme):
    """Rotates pairs of coordinates of queries and keys by angles that grow with position (Su et al. 2021)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        c = config.d // config.heads
        if c % 2:
            raise ValueError(
                f"the head width d / heads = {c} is odd, but 'rope' rotates pairs of coordinates: choose d "
                "and heads so that d / heads is even"
            )
        if config.rope_layout == "interleaved":
            self.first, self.second = slice(0, None, 2), slice(1, None, 2)
        else:
            self.first, self.second = slice(0, c // 2), slice(c // 2, None)
        # Not a buffer: Module.to(dtype) would round it, and angles stay float64 in every model.
        self.frequencies = torch.tensor(encodings.rope_frequencies(c, config.rope_base))  # (c/2,)

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        angles = positions[:, None, :, None].double() * self.frequencies  # (N, 1, n, c/2)
        precision = torch.promote_types(x.dtype, torch.float32)
        cosine, sine = angles.cos().to(precision), angles.sin().to(precision)  # (N, 1, n, c/2)
        a, b = x[..., self.first], x[..., self.second]  # (N, h, n, c/2)
        turned = torch.empty(x.shape, dtype=precision)  # (N, h, n, c)
        turned[..., self.first] = a * cosine - b * sine  # (N, h, n, c/2)
        turned[..., self.second] = a * sine + b * cosine  # (N, h, n, c/2)
        return turned.to(x.dtype)  # (N, h, n, c)


class Alibi(PositionScheme):
    """Subtracts slope * lag from the scores (Press et al. 2022): both ways, or under the causal mask."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.slopes = torch.tensor(encodings.alibi_slopes(config.heads))  # (h,)

    def bias(self, positions: Tensor) -> Tensor:
        lag = (positions[:, :, None] - positions[:, None, :]).abs().double()  # (N, n, n)
        return -self.slopes[:, None, None] * lag[:, None]  # (N, h, n, n)


POSITION_SCHEMES: dict[str, type[PositionScheme]] = {
    "none": PositionScheme,
    "learned": Learned,
    "sinusoidal": Sinusoidal,
    "rope": Rope,
    "alibi": Alibi,
    "mds": Given,
}

CHOICES = {
    "position": POSITION_SCHEMES,
    "readout": READOUTS,
    "activation": ACTIVATIONS,
    "norm": NORMS,
    "rope_layout": ("interleaved", "half"),
    "dtype": DTYPES,
}


class SelfAttention(nn.Module):
    """Scaled dot-product attention with h heads (Vaswani et al. 2017)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.query = nn.Linear(config.d, config.d)
        self.key = nn.Linear(config.d, config.d)
        self.value = nn.Linear(config.d, config.d)
        self.output = nn.Linear(config.d, config.d)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, scheme: PositionScheme, positions: Tensor, bias: Tensor | None) -> Tensor:
        q = scheme.rotate(self.split(self.query(x)), positions)  # (N, h, n, c)
        k = scheme.rotate(self.split(self.key(x)), positions)  # (N, h, n, c)
        v = self.split(self.value(x))  # (N, h, n, c)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (N, h, n, n)
        if bias is not None:
            scores = scores + bias  # (N, h, n, n)
        weights = self.dropout(scores.softmax(dim=-1))  # (N, h, n, n), each row sums to 1
        mixed = (weights @ v).transpose(1, 2).flatten(2)  # (N, n, d)
        return self.output(mixed)  # (N, n, d)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (N, n, d) -> (N, h, n, c)


class Block(nn.Module):
    """Attention, then the same two-layer network at every token; a residual sum around each."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.width or 4 * config.d
        self.norm = config.norm
        self.attention = SelfAttention(config)
        self.feed_forward = nn.Sequential(
            nn.Linear(config.d, width), ACTIVATIONS[config.activation](), nn.Linear(width, config.d)
        )
        self.attention_norm = _norm(config, config.norm != "none")
        self.feed_forward_norm = _norm(config, config.norm != "none")
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, scheme: PositionScheme, positions: Tensor, bias: Tensor | None) -> Tensor:
        if self.norm == "pre":
            x = x + self.dropout(self.attention(self.attention_norm(x), scheme, positions, bias))  # (N, n, d)
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))  # (N, n, d)
        x = self.attention_norm(x + self.dropout(self.attention(x, scheme, positions, bias)))  # (N, n, d)
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))  # (N, n, d)


class Encoder(nn.Module):
    """The transformer encoder of this book.

    Parameters
    ----------
    config
        see :class:`EncoderConfig`.
    rng
        of the initial weights: an int seed, a ``numpy.random.Generator`` or a ``torch.Generator``. The same
        seed gives the same weights in every ``dtype`` and leaves torch's global generator as it was.
    """

    def __init__(self, config: EncoderConfig, *, rng: Randomness = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(torch_generator(rng).get_state())
            self.config = config
            self.embedding = nn.Embedding(config.vocab_size, config.d)
            nn.init.normal_(self.embedding.weight, std=config.embedding_std)
            self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
            self.head = nn.Identity() if config.outputs is None else nn.Linear(config.d, config.outputs)
            self.embedding_norm = _norm(config, config.embedding_norm)
            self.final_norm = _norm(config, config.norm == "pre")
            self.dropout = nn.Dropout(config.dropout)
            # Last, so that encoders that differ in the scheme alone start from the same other weights.
            self.scheme = POSITION_SCHEMES[config.position](config)
        self.to(DTYPES[config.dtype])

    def forward(
        self, tokens: Tensor, *, positions: Tensor | None = None, attention_mask: Tensor | None = None
    ) -> Tensor:
        """Outputs of the head, ``(N, n, outputs)`` for the readout "tokens", else ``(N, outputs)``.

        Parameters
        ----------
        tokens
            ``(N, n)`` ids in 0 ... V - 1.
        positions
            ``(n,)`` or ``(N, n)`` integers: where each token is; 0 ... n - 1 by default. The causal mask goes
            by them too, so that tokens that move together with their positions keep all they had. Equal
            positions are one position: such tokens see each other.
        attention_mask
            ``(N, n)``, 1 for a token and 0 for padding, which no token attends to and no readout reads.

        Raises
        ------
        ValueError
            naming the argument: a shape that does not fit, an id beyond the vocabulary, a position beyond the
            scheme's table, a text without any token.
        """
        x = self.hidden_states(tokens, positions=positions, attention_mask=attention_mask)[-1]  # (N, n, d)
        return self.head(self._read(x, attention_mask))  # (N, n, outputs) or (N, outputs)

    def hidden_states(
        self, tokens: Tensor, *, positions: Tensor | None = None, attention_mask: Tensor | None = None
    ) -> list[Tensor]:
        """``layers + 1`` tensors ``(N, n, d)``: what enters the first block, then what leaves each block."""
        positions = self._checked(tokens, positions, attention_mask)  # (1 or N, n)
        bias = self._bias(positions, attention_mask)  # (1 or N, 1 or h, n, n) or None
        x = self.scheme.add(self.embedding(tokens), positions)  # (N, n, d)
        states = [self.dropout(self.embedding_norm(x))]  # (N, n, d)
        for block in self.blocks:
            states.append(block(states[-1], self.scheme, positions, bias))  # (N, n, d)
        states[-1] = self.final_norm(states[-1])  # (N, n, d)
        return states

    def position_table(self) -> np.ndarray:
        """The vectors that the scheme adds, ``(n, d)`` float64; ``ValueError`` when it adds none."""
        if not isinstance(self.scheme, Table):
            raise ValueError(f"position {self.config.position!r} adds no vectors, so it has no table of them")
        return self.scheme.table.detach().double().numpy().copy()

    def _bias(self, positions: Tensor, attention_mask: Tensor | None) -> Tensor | None:
        """The scheme's bias, and minus infinity where a query may not look."""
        bias = self.scheme.bias(positions)  # (1 or N, h, n, n) or None
        visible = None
        if self.config.causal:
            visible = (positions[:, None, :] <= positions[:, :, None])[:, None]  # (1 or N, 1, n, n)
        if attention_mask is not None:
            real = attention_mask.bool()[:, None, None, :]  # (N, 1, 1, n)
            visible = real if visible is None else visible & real  # (N, 1, 1 or n, n)
        if visible is not None:
            # Only padding can see nothing at all; let it see everything, so that no softmax is 0 / 0.
            visible = visible | ~visible.any(dim=-1, keepdim=True)  # (1 or N, 1, 1 or n, n)
            hidden = torch.zeros(visible.shape).masked_fill(~visible, -math.inf)  # (1 or N, 1, 1 or n, n)
            bias = hidden if bias is None else bias + hidden  # (1 or N, 1 or h, n, n)
        return None if bias is None else bias.to(self.embedding.weight.dtype)

    def _read(self, x: Tensor, attention_mask: Tensor | None) -> Tensor:
        """The tokens' vectors ``(N, n, d)`` -> themselves or one vector a text ``(N, d)``."""
        if self.config.readout == "tokens":
            return x
        real = torch.ones(x.shape[:2]) if attention_mask is None else attention_mask.bool()
        real = real.double()  # (N, n)
        if self.config.readout == "mean":
            share = (real / real.sum(dim=1, keepdim=True)).to(x.dtype)  # (N, n), each row sums to 1
            return torch.einsum("Nn,Nnd->Nd", share, x)
        n = real.shape[1]
        place = (
            real.argmax(dim=1) if self.config.readout == "first" else n - 1 - real.flip(1).argmax(dim=1)
        )  # (N,)
        return x[torch.arange(len(x)), place]  # (N, d)

    def _checked(self, tokens: Tensor, positions: Tensor | None, attention_mask: Tensor | None) -> Tensor:
        """The positions as ``(1 or N, n)`` integers, once every argument has been found to fit."""
        if tokens.ndim != 2 or tokens.numel() == 0:
            raise ValueError(f"tokens must have shape (N, n), one row a text, not {tuple(tokens.shape)}")
        V = self.config.vocab_size
        if tokens.is_floating_point() or not 0 <= tokens.min() <= tokens.max() < V:
            raise ValueError(
                f"tokens must be integers in 0 ... {V - 1} (vocab_size = {V}), "
                f"not {tokens.dtype} from {tokens.min().item()} to {tokens.max().item()}"
            )
        if attention_mask is not None:
            if attention_mask.shape != tokens.shape:
                raise ValueError(
                    f"attention_mask has shape {tuple(attention_mask.shape)}, but must have that of tokens, "
                    f"{tuple(tokens.shape)}"
                )
            empty = (~attention_mask.bool().any(dim=1)).nonzero()
            if len(empty):
                raise ValueError(f"attention_mask leaves text {empty[0].item()} without any token")
        if positions is None:
            return torch.arange(tokens.shape[1])[None]
        positions = torch.as_tensor(positions)
        if positions.is_floating_point() or positions.shape not in (tokens.shape, tokens.shape[1:]):
            raise ValueError(
                f"positions must be integers of shape ({tokens.shape[1]},) or {tuple(tokens.shape)}, "
                f"not {positions.dtype} of shape {tuple(positions.shape)}"
            )
        return positions.reshape(-1, tokens.shape[1]).long()


def equivariance_error(function: Callable[[Tensor], Tensor], tokens: Tensor, order: Tensor) -> float:
    """How far ``function`` is from commuting with a permutation of the tokens, relative to its outputs.

    .. math:: \\max |f(x)_{order} - f(x_{order})| \\; / \\; \\max |f(x)|

    ``function`` maps ``(N, n)`` tokens to ``(N, n, d)`` vectors; ``order`` is a permutation ``(n,)``. An
    equivariant function has 0 in exact arithmetic.
    """
    if sorted(order.tolist()) != list(range(tokens.shape[1])):
        raise ValueError(f"order must be a permutation of 0 ... {tokens.shape[1] - 1}, not {order.tolist()}")
    with torch.no_grad():
        before, after = function(tokens), function(tokens[:, order])  # (N, n, d)
    return ((before[:, order] - after).abs().max() / before.abs().max()).item()


def torch_generator(rng: Randomness) -> torch.Generator:
    """A ``torch.Generator`` from an int seed or from one draw of a numpy generator, or the one given."""
    if isinstance(rng, torch.Generator):
        return rng
    if isinstance(rng, np.random.Generator):
        return torch.Generator().manual_seed(int(rng.integers(2**63)))
    return torch.Generator().manual_seed(checks.positive_int(rng, "rng", minimum=0))


def encoder_from_bert(bert: nn.Module, *, dtype: str = "float64") -> Encoder:
    """This book's encoder with the weights of a ``transformers.BertModel``, ``readout="tokens"``.

    The vector of BERT's segment 0, which every token of a single text gets, is added to the token table. The
    pooler is left out. ``ValueError`` for a model with other parts than these.
    """
    bert_config = getattr(bert, "config", None)
    if getattr(bert_config, "model_type", None) != "bert" or not hasattr(bert, "embeddings"):
        raise ValueError(f"bert must be a transformers.BertModel, not {type(bert).__name__}")
    if bert_config.hidden_act not in ACTIVATIONS or getattr(bert_config, "is_decoder", False):
        raise ValueError(f"bert must be an encoder with one of the activations {', '.join(ACTIVATIONS)}")
    encoder = Encoder(
        EncoderConfig(
            vocab_size=bert_config.vocab_size,
            n=bert_config.max_position_embeddings,
            d=bert_config.hidden_size,
            heads=bert_config.num_attention_heads,
            layers=bert_config.num_hidden_layers,
            width=bert_config.intermediate_size,
            activation=bert_config.hidden_act,
            norm_eps=bert_config.layer_norm_eps,
            embedding_norm=True,
            dtype=dtype,
        )
    )
    source = {name: tensor.to(DTYPES[dtype]) for name, tensor in bert.state_dict().items()}
    segment = source["embeddings.token_type_embeddings.weight"][0]  # (d,)
    state = {
        "embedding.weight": source["embeddings.word_embeddings.weight"] + segment,
        "scheme.table": source["embeddings.position_embeddings.weight"],
    }
    state |= _renamed(source, "embeddings.LayerNorm", "embedding_norm")
    for layer in range(bert_config.num_hidden_layers):
        for theirs, ours in BERT_NAMES.items():
            state |= _renamed(source, f"encoder.layer.{layer}.{theirs}", f"blocks.{layer}.{ours}")
    encoder.load_state_dict(state)
    return encoder.eval()


BERT_NAMES = {
    "attention.self.query": "attention.query",
    "attention.self.key": "attention.key",
    "attention.self.value": "attention.value",
    "attention.output.dense": "attention.output",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "feed_forward.0",
    "output.dense": "feed_forward.2",
    "output.LayerNorm": "feed_forward_norm",
}


def _renamed(source: dict[str, Tensor], theirs: str, ours: str) -> dict[str, Tensor]:
    return {f"{ours}.{part}": source[f"{theirs}.{part}"] for part in ("weight", "bias")}


def _norm(config: EncoderConfig, wanted: bool) -> nn.Module:
    return nn.LayerNorm(config.d, eps=config.norm_eps) if wanted else nn.Identity()
