"""PRPN, the parsing-reading-predict network (Shen et al. 2018, "Neural Language Modeling by Jointly Learning Syntax and
Lexicon"), as its published code computes it.

A parser, a convolution over the last words, gives every word a distance; gates made of distances decide which earlier
states may be read; the reader, an LSTM, attends to these states instead of the last one; the predictor attends to them
once more, with the distance it expects of the next word. The ON-LSTM's decoders make trees from the distances.

    code          paper         meaning
    d, d_next     d_t, d'_t+1   syntactic distance of a word, and that expected of the next, (T, B) in [0, 1]
    gate          g^t_i         how open state i is to word t, (T, B, slots): slot k is the state k + 1 words ago
    memory_h, _c  h_i, c_i      the last states, the newest first, (slots, B, H)
    weights       s^t_i         gated attention, (B, slots)
    lookback      L             words before each that the parser sees
    resolution    1 / τ         difference of distances at which a gate is shut

Layer norm divides by the unbiased deviation. Batch norm takes the statistics of the columns at hand, so training
over several processes is not bit for bit that of one.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onlstm.cell import Distances
from onlstm.lm.cells.recurrent import Called, Drop, LayerState, Reading, drop_connect, state_dropout
from onlstm.lm.cells.window import products, sums
from onlstm.lm.config import LMConfig
from onlstm.lm.dropout import Masks


def memory_gates(d: Tensor, past: Tensor, resolution: float, soft: bool) -> Tensor:
    """Return the gates (T, B, slots) of distances d (T, B), given those of the last words.

    The k-th is the product over j = 0 … k of how little d_{t-j} exceeds d_t: a longer distance in between shuts off
    all that lies before it.

    Args:
        d: the distance to compare, of this word or expected of the next.
        past: d of the words t, t - 1, … t - slots + 1, (T, B, slots).
        resolution: see above.
        soft: a sigmoid instead of a clipped line.
    """
    more = (d[..., None] - past) / resolution
    open = torch.sigmoid(10 * more + 5) if soft else (more + 1).clamp(0, 1)
    return open.cumprod(-1)


def attention(scores: Tensor, gate: Tensor, size: int) -> Tensor:
    """Return weights (…, slots) of states from their products with a key of H = size: a softmax, then the gates."""
    logits = scores / math.sqrt(size)
    weights = (logits - logits.max(-1, keepdim=True).values).exp() * gate
    return weights / (weights.sum(-1, keepdim=True) + 1e-8)


class LayerNorm(nn.Module):
    """Layer norm by the unbiased deviation."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        deviation = torch.linalg.vector_norm(centred, dim=-1, keepdim=True) / math.sqrt(x.shape[-1] - 1)
        return torch.addcmul(self.beta, self.gamma, centred / (deviation + 1e-6))


class BatchNorm(nn.Module):
    """Batch norm of (…, F) over all but the last dimension; evaluation uses running means."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))
        self.register_buffer("running_mean", torch.zeros(size))
        self.register_buffer("running_var", torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        running = self.running_mean, self.running_var
        return F.batch_norm(x.flatten(0, -2), *running, self.weight, self.bias, self.training).view(x.shape)


class Parser(nn.Module):
    """Distances of words from the `lookback` words before each."""

    def __init__(self, config: LMConfig) -> None:
        super().__init__()
        H = config.sizes[0]
        self.conv = nn.Conv1d(config.embedding_size, H, config.lookback + 1)
        self.norm = BatchNorm(H)
        self.out = nn.Conv1d(H, 2, 1, groups=2)

    def forward(self, words: Tensor, drop: Drop) -> tuple[Tensor, Tensor]:
        """Return d and d_next (T, B) of words (lookback + T, B, E)."""
        features = self.conv(words.permute(1, 2, 0)).permute(2, 0, 1)
        features = drop(F.relu(self.norm(features)))
        d, d_next = torch.sigmoid(self.out(features.permute(1, 2, 0))).unbind(1)
        return d.T, d_next.T


class Reader(nn.Module):
    """An LSTM that starts every step from the states it attends to."""

    def __init__(self, config: LMConfig, input_size: int) -> None:
        super().__init__()
        H = config.sizes[0]
        self.key = nn.Linear(input_size + H, H)
        self.ih, self.ih_norm = nn.Linear(input_size, 4 * H), LayerNorm(4 * H)
        self.hh, self.hh_norm = nn.Linear(H, 4 * H), LayerNorm(4 * H)
        self.c_norm = LayerNorm(H)

    def step(self, x: Tensor, h: Tensor, c: Tensor, w_hh: Tensor, drop: Drop) -> tuple[Tensor, Tensor]:
        """Return h and c (B, H) from the normed W x (B, 4 H) and the states recalled."""
        i, f, g, o = (x + self.hh_norm(F.linear(drop(h), w_hh, self.hh.bias))).chunk(4, -1)
        c_new = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * self.c_norm(c_new).tanh(), c_new

    def forward(self, x: Tensor, gate: Tensor, h: Tensor, c: Tensor, w_hh: Tensor, drop: Drop) -> tuple[Tensor, ...]:
        """Return h of all words (T, B, H), the weights (T, B, slots), and the memories after them."""
        H, memory = h.shape[-1], torch.cat((h, c), -1).transpose(0, 1)  # (B, slots, 2 H)
        of_word, of_state = self.key.weight.split((x.shape[-1], H), -1)
        inputs, keys, outputs, attended = self.ih_norm(self.ih(x)), F.linear(x, of_word, self.key.bias), [], []
        for x_t, key, gate_t in zip(inputs, keys, gate, strict=True):
            key = key + memory[:, 0, :H] @ of_state.T
            weights = attention((memory[..., :H] @ key[..., None])[..., 0], gate_t, H)
            h, c = (weights[:, None] @ memory)[:, 0].chunk(2, -1)
            new = self.step(x_t, h, c, w_hh, drop)
            memory = torch.cat((torch.cat(new, -1)[:, None], memory[:, :-1]), 1)
            outputs.append(new[0])
            attended.append(weights)
        return torch.stack(outputs), torch.stack(attended), *memory.transpose(0, 1).chunk(2, -1)


class Predictor(nn.Module):
    """From the reader's states to what the softmax reads."""

    def __init__(self, config: LMConfig) -> None:
        super().__init__()
        H = config.sizes[0]
        self.key = nn.Linear(H, H)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Linear(2 * H, 2 * H), BatchNorm(2 * H), nn.ReLU(), nn.Linear(2 * H, 2 * H), BatchNorm(2 * H)
            )
            for _ in range(config.residual_blocks)
        )
        self.out, self.norm = nn.Linear(2 * H, config.embedding_size), BatchNorm(config.embedding_size)

    def forward(self, h: Tensor, gate: Tensor, memory: Tensor, drop: Drop) -> tuple[Tensor, ...]:
        """Return the output (T, B, E), what was recalled (T, B, H), the weights (T, B, slots) and the memory after."""
        states = torch.cat((memory.flip(0), h))
        weights = attention(products(self.key(h), states[:-1]).flip(-1), gate, h.shape[-1])
        selected = sums(weights.flip(-1), states[:-1])
        x = torch.cat((h, selected), -1)
        for block in self.blocks:
            x = F.relu(x + block(x))
        return torch.tanh(self.norm(self.out(drop(x)))), selected, weights, states[-len(memory) :].flip(0)


class PRPN(Called, nn.Module):
    """The whole network between embedding and softmax.

    Its state: the last words (lookback, B, E), the last distances (slots, B, 1), infinite before the text, the
    predictor's memory, and h and c of each layer (slots, B, H).
    """

    def __init__(self, config: LMConfig) -> None:
        super().__init__()
        self.config = config
        self.parser = Parser(config)
        inputs = (config.embedding_size, *config.sizes[:-2])
        self.readers = nn.ModuleList(Reader(config, size) for size in inputs)
        self.predictor = Predictor(config)

    def start(self, batch: int, like: Tensor) -> LayerState:
        config = self.config
        memory = like.new_zeros(config.slots, batch, config.sizes[0])
        words = like.new_zeros(config.lookback, batch, config.embedding_size)
        return words, like.new_full((config.slots, batch, 1), torch.inf), *(memory,) * (1 + 2 * config.num_layers)

    def gates(self, d: Tensor, d_next: Tensor, before: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gates of each word and of the next (T, B, slots), and the last distances (slots, B, 1)."""
        config, every = self.config, torch.cat((before[..., 0], d))
        past = every.unfold(0, config.slots, 1)[1:].flip(-1)
        gate, gate_next = (memory_gates(x, past, config.resolution, config.soft_gates) for x in (d, d_next))
        return gate, gate_next, every[-config.slots :, :, None]

    def read(
        self, x: Tensor, state: LayerState, masks: Masks, *, distances: bool = False, gates: bool = False
    ) -> Reading:
        config, (words, before, memory, *states) = self.config, state
        p = config.dropout_hidden if self.training else 0.0

        def drop(values: Tensor) -> Tensor:
            return masks.locked(values, p, config.dropout_each_step)

        words = torch.cat((words, x))
        d, d_next = self.parser(words, drop)
        gate, gate_next, last = self.gates(d, d_next, before)
        for k, reader in enumerate(self.readers):
            w_hh = drop_connect(reader.hh.weight, config, masks, self.training)  # type: ignore[union-attr, arg-type]
            noise = state_dropout(x, config.sizes[0], config.dropout_recurrent if self.training else 0.0, masks)
            h, c = states[2 * k : 2 * k + 2]
            x, _, *states[2 * k : 2 * k + 2] = reader(drop(x) if k else x, gate, h, c, w_hh, noise)
        output, _, _, memory = self.predictor(x, gate_next, memory, drop)
        own = Distances(d[None], d_next[None]) if distances else None
        return Reading(output, (words[-config.lookback :], last, memory, *states), own)
