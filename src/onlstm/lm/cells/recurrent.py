"""What the language model asks of its layers, and the loop over time that most of them share.

A layer has two methods. `start` declares its state, a tuple of tensors (K, B, F) before the first word: everything that
carries a state (trainer, reader, generation, Hugging Face) works on such tuples alone. `read` reads T words; the
language model calls the module itself, see `Called`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onlstm.cell import Distances, MasterGates
from onlstm.lm.config import LMConfig
from onlstm.lm.dropout import Masks

LayerState = tuple[Tensor, ...]
"""What a layer carries from word to word; each tensor is (K, B, F), with the batch in the middle."""
Drop = Callable[[Tensor], Tensor]
"""Dropout of a state on its way into a recurrent product."""


class Reading(NamedTuple):
    """What a layer makes of x (T, B, input)."""

    output: Tensor
    """(T, B, H)."""
    state: LayerState
    distances: Distances | None = None
    """(1, T, B) each, or one row for each layer inside; None if they were not asked for."""
    gates: MasterGates | None = None
    """(T, B, M) each, of ON-LSTM layers."""


class Layer(Protocol):
    """A layer, or a network of its own, between embedding and softmax."""

    def start(self, batch: int, like: Tensor) -> LayerState:
        """Return the state before the first word, of the device and type of `like`."""

    def read(
        self, x: Tensor, state: LayerState, masks: Masks, *, distances: bool = False, gates: bool = False
    ) -> Reading:
        """Return what x (T, B, input) becomes; dropout masks come from `masks`, in training only."""


class Called:
    """Makes a module read when it is called: so forward hooks run, and wrappers such as PEFT's can take its place."""

    read: Callable[..., Reading]

    def forward(self, *args: Any, **options: Any) -> Reading:
        """Return what `read` does."""
        return self.read(*args, **options)


class Step(NamedTuple):
    """One step of a recurrent cell."""

    state: LayerState
    """(B, F) each; the first is the output."""
    kept: Tensor | None = None
    """How much of the old state stays, (B, H), in [0, 1]; the distance is 1 minus its mean. None: no such gate."""
    written: Tensor | None = None
    """How much of the word gets in, (B, H)."""


class Recurrent(Called, nn.Module, ABC):
    """A layer given by `step` alone: weight_ih and bias for the input, weight_hh for the state.

    Drop-connect is the same as an LSTM's; `dropout_recurrent` is one mask of the state for all times (Gal and
    Ghahramani 2016).
    """

    def __init__(self, config: LMConfig, input_size: int, hidden_size: int, inputs: int, states: int) -> None:
        """Make parameters: `inputs` and `states` rows of weights for each neuron."""
        super().__init__()
        self.config, self.hidden_size = config, hidden_size
        self.weight_ih = nn.Parameter(torch.empty(inputs * hidden_size, input_size))
        self.weight_hh = nn.Parameter(torch.empty(states * hidden_size, hidden_size))
        self.bias = nn.Parameter(torch.empty(max(inputs, states) * hidden_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights from U(±1/sqrt(hidden_size)), as `nn.LSTM` does."""
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(self.hidden_size**-0.5), self.hidden_size**-0.5)

    def start(self, batch: int, like: Tensor) -> LayerState:
        return (like.new_zeros(1, batch, self.hidden_size),) * 2

    @abstractmethod
    def step(self, x: Tensor, state: LayerState, w_hh: Tensor, drop: Drop) -> Step:
        """Return the step from W x (B, inputs H) and the state before it."""

    def read(
        self, x: Tensor, state: LayerState, masks: Masks, *, distances: bool = False, gates: bool = False
    ) -> Reading:
        w_hh, drop = self.dropped(masks), self.state_dropout(x, masks)
        now, steps = tuple(part[0] for part in state), []
        for row in self.project(x):
            steps.append(self.step(row, now, w_hh, drop))
            now = steps[-1].state
        output = torch.stack([step.state[0] for step in steps])
        return Reading(output, tuple(part[None] for part in now), _distances(steps) if distances else None)

    def project(self, x: Tensor) -> Tensor:
        """Return W x + b of all times."""
        return F.linear(x, self.weight_ih, self.bias)

    def dropped(self, masks: Masks) -> Tensor:
        """Return the recurrent weights of this reading."""
        return drop_connect(self.weight_hh, self.config, masks, self.training)

    def state_dropout(self, x: Tensor, masks: Masks) -> Drop:
        """Return the dropout of the state."""
        return state_dropout(x, self.hidden_size, self.config.dropout_recurrent if self.training else 0.0, masks)


def drop_connect(weight: Tensor, config: LMConfig, masks: Masks, training: bool) -> Tensor:
    """Return recurrent weights, some of them dropped."""
    p, inverted = config.weight_dropout, config.weight_dropout_scale == "inverted"
    if not p or (inverted and not training):
        return weight
    kept = masks.kept(tuple(weight.shape), p, weight) if training else 1 - p
    return weight * (kept / (1 - p) if inverted else kept)


def state_dropout(x: Tensor, size: int, p: float, masks: Masks) -> Drop:
    """Return dropout of a state (B, size), the same at all times of x (T, B, …)."""
    if not p:
        return lambda h: h
    mask = masks.locked(x.new_ones(1, x.shape[1], size), p)[0]
    return lambda h: h * mask


def _distances(steps: list[Step]) -> Distances | None:
    """Return 1 - mean kept and mean written, (1, T, B), as for an LSTM's own gates."""
    kept: list[Any] = [step.kept for step in steps]
    written: list[Any] = [step.written for step in steps]
    if kept[0] is None:
        return None
    return Distances(1 - torch.stack(kept).mean(-1)[None], torch.stack(written).mean(-1)[None])
