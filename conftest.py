"""For pytest, which looks for examples in every module: leave out those whose library is not installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("transformers") else ["src/onlstm/adapters/huggingface.py"]
