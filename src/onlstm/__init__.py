"""ON-LSTM: recurrent networks whose ordered neurons find constituency trees in raw text.

Public names are imported on first use, so that `import onlstm` stays cheap and the text commands never load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onlstm.grammar.pcfg import Grammar
    from onlstm.induction.pipeline import induce
    from onlstm.layer import ONLSTM, ONLSTMCell
    from onlstm.lm.model import LanguageModel
    from onlstm.parser import Parser
    from onlstm.trees.tree import Tree

__version__ = "0.1.0"
__all__ = ["ONLSTM", "Grammar", "LanguageModel", "ONLSTMCell", "Parser", "Tree", "__version__", "induce"]

_HOME = {
    "Grammar": "onlstm.grammar.pcfg",
    "induce": "onlstm.induction.pipeline",
    "ONLSTM": "onlstm.layer",
    "ONLSTMCell": "onlstm.layer",
    "LanguageModel": "onlstm.lm.model",
    "Parser": "onlstm.parser",
    "Tree": "onlstm.trees.tree",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'onlstm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
