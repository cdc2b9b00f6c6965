"""For pytest, which looks for examples in every module: leave out those whose library is not installed."""

from importlib.util import find_spec

_LIBRARIES = {"transformers": "huggingface", "spacy": "spacy", "ray": "ray"}
_MODULES = {library: f"adapters/{name}" for library, name in _LIBRARIES.items()} | {"triton": "kernels/triton"}
collect_ignore_glob = [f"src/onlstm/{name}*.py" for library, name in _MODULES.items() if not find_spec(library)]
