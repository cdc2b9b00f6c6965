"""The networks between embedding and softmax, one file each: the paper's, and those it is compared with.

`LMConfig.rnn` names one; `onlstm.lm.config` knows, without torch, which settings each of them takes.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from torch import nn

from onlstm.lm.cells.clockwork import Clockwork
from onlstm.lm.cells.lstm import LSTM
from onlstm.lm.cells.melis import SkipLSTM
from onlstm.lm.cells.nas import Nas
from onlstm.lm.cells.nested import Nested
from onlstm.lm.cells.onlstm import OrderedNeurons
from onlstm.lm.cells.prpn import PRPN
from onlstm.lm.cells.rhn import RecurrentHighway
from onlstm.lm.cells.variational import Variational
from onlstm.lm.config import RNN, LMConfig

Make = Callable[[LMConfig], Sequence[nn.Module]]


def _stack(kind: Callable[[LMConfig, int, int], Any]) -> Make:
    """Return what makes a stack of layers, each of which reads the output of the one below."""
    return lambda config: [kind(config, a, b) for a, b in pairwise((config.embedding_size, *config.sizes))]


_NETWORKS: Mapping[RNN, Make] = {
    "onlstm": _stack(OrderedNeurons),
    "lstm": _stack(LSTM),
    "variational": _stack(Variational),
    "rhn": _stack(RecurrentHighway),
    "nas": _stack(Nas),
    "melis": lambda config: [SkipLSTM(config)],
    "prpn": lambda config: [PRPN(config)],
    "clockwork": _stack(Clockwork),
    "nested": _stack(Nested),
}


def layers_of(config: LMConfig) -> Sequence[nn.Module]:
    """Return the layers (`recurrent.Layer`) that a configuration names, with new weights."""
    return _NETWORKS[config.rnn](config)
