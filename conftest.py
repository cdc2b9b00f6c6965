"""For pytest, which looks for examples in every module: leave out those whose library is not installed."""

from importlib.util import find_spec

_LIBRARIES = {"transformers": "adapters/huggingface", "spacy": "adapters/spacy", "triton": "kernels/triton"}
collect_ignore_glob = [f"src/onlstm/{name}*.py" for library, name in _LIBRARIES.items() if not find_spec(library)]
