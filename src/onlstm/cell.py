"""The paper: cumax, the ON-LSTM cell and its scan over time, in the paper's own equations.

Shen et al. 2019, "Ordered Neurons: Integrating Tree Structures into Recurrent Neural Networks"; numbers in
parentheses at a line's end are its equations. Pure functions under autograd, no `nn.Module`: this is what every
kernel is measured against. Anybody may import it; it imports nothing of ours.

    code          paper                 meaning
    D, C          D, C                  hidden size, chunk_size
    M             D_m = D / C           master-gate width: each entry governs a chunk of C neighbouring neurons
    h, c          h_t, c_t              hidden state and cell state
    o, g, i, f    o_t, c^_t, i_t, f_t   the stock LSTM's output gate, candidate, input gate, forget gate
    f_m, i_m      f~_t, i~_t            master forget gate (rises 0 -> 1), master input gate (falls 1 -> 0)
    omega         ω_t                   where the two master gates overlap: incomplete constituents
    f_hat, i_hat  f^_t, i^_t            the gates that act on the cell
    distance      d^^f_t / D_m          expected split point, one number per word: a large one closes much

In letters: B rows of a batch, N rows of all time steps, G = 2 M + 4 D gate pre-activations ordered as in `GATES`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

GATES = ("i_m", "f_m", "o", "g", "i", "f")
"""Order of the row blocks of every weight and bias: M, M, D, D, D, D rows. The original code has the same."""


class MasterGates(NamedTuple):
    """The two master gates, (…, M) each."""

    forget: Float[Tensor, "*batch M"]
    input: Float[Tensor, "*batch M"]


class Distances(NamedTuple):
    """The expected split points of the two master gates, (…) each, in [0, 1]."""

    forget: Float[Tensor, "*batch"]
    input: Float[Tensor, "*batch"]


class Step(NamedTuple):
    """One step of the cell: new states (B, D) and the master gates (B, M) that made them."""

    h: Float[Tensor, "B D"]
    c: Float[Tensor, "B D"]
    gates: MasterGates


class Scan(NamedTuple):
    """All steps: h of every row (N, D), the last states (B, D) and the master gates of every row (N, M)."""

    h: Float[Tensor, "N D"]
    h_n: Float[Tensor, "B D"]
    c_n: Float[Tensor, "B D"]
    gates: MasterGates


def cumax(logits: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch K"]:
    """Return cumsum(softmax(logits)): the expectation of a gate (0, …, 0, 1, …, 1) (6)-(8).

    Half precision is summed, and returned, in float32.

    >>> cumax(torch.zeros(4))
    tensor([0.2500, 0.5000, 0.7500, 1.0000])
    """
    exact = torch.promote_types(logits.dtype, torch.float32)
    return torch.softmax(logits, -1, dtype=exact).cumsum(-1)


def master_gates(forget: Float[Tensor, "*batch K"], input: Float[Tensor, "*batch K"], M: int) -> MasterGates:
    """Return the master gates of their logits, M entries wide (9)-(10).

    With K = M logits the last forget entry is always 1 and the last input entry 0: the last chunk is never
    written (the paper's cell). K = M + 1 logits free it: the entry that is always 1 belongs to no chunk.
    """
    f_m = cumax(forget)[..., :M]  # (9)
    i_m = 1 - cumax(input)[..., :M]  # (10)
    return MasterGates(f_m, i_m)


def distances(gates: MasterGates) -> Distances:
    """Return the split-point distances in [0, 1] of master gates (…, M): 1 - mean f_m and mean i_m.

    The first is (15) divided by D_m; the second is the same expectation for the input gate's split point.
    """
    return Distances(1 - gates.forget.mean(-1), gates.input.mean(-1))


def step(gates: Float[Tensor, "B G"], c_prev: Float[Tensor, "B D"], chunk_size: int) -> Step:
    """Return the new states from the pre-activations W x_t + U h_{t-1} + b and the previous cell state."""
    D = c_prev.shape[-1]
    K = (gates.shape[-1] - 4 * D) // 2
    logits = dict(zip(GATES, gates.split((K, K, D, D, D, D), dim=-1), strict=True))

    f = torch.sigmoid(logits["f"])  # (1)
    i = torch.sigmoid(logits["i"])  # (2)
    o = torch.sigmoid(logits["o"])  # (3)
    g = torch.tanh(logits["g"])  # (4)

    master = master_gates(logits["f_m"], logits["i_m"], D // chunk_size)
    f_m, i_m = (gate.to(c_prev.dtype).repeat_interleave(chunk_size, -1) for gate in master)

    omega = f_m * i_m  # (11)
    f_hat = f * omega + (f_m - omega)  # (12)
    i_hat = i * omega + (i_m - omega)  # (13)
    c = f_hat * c_prev + i_hat * g  # (14)
    h = o * torch.tanh(c)  # (5)
    return Step(h, c, master)


def scan(
    x_gates: Float[Tensor, "N G"],
    w_hh: Float[Tensor, "G D"],
    h0: Float[Tensor, "B D"],
    c0: Float[Tensor, "B D"],
    chunk_size: int,
    batch_sizes: Sequence[int],
    reverse: bool = False,
) -> Scan:
    """Return the states of every step of B sequences, longest first.

    `x_gates` holds W x_t + b of all steps, row after row as in `PackedSequence.data`: first the `batch_sizes[0]`
    rows of step 0, and so on. A sequence that has ended (or, in `reverse`, not yet begun) keeps its state.
    """
    steps = list(torch.split(x_gates, list(batch_sizes)))
    h, c = h0, c0
    done = []
    for x_t in reversed(steps) if reverse else steps:
        rows = x_t.shape[0]
        now = step(x_t + h[:rows] @ w_hh.T, c[:rows], chunk_size)
        h, c = torch.cat((now.h, h[rows:])), torch.cat((now.c, c[rows:]))
        done.append(now)
    if reverse:
        done.reverse()
    forget = torch.cat([now.gates.forget for now in done])
    input = torch.cat([now.gates.input for now in done])
    return Scan(torch.cat([now.h for now in done]), h, c, MasterGates(forget, input))
