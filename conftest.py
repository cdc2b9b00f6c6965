"""For pytest, which looks for examples in every module: leave out those whose library is not installed."""

from importlib.util import find_spec

_LIBRARIES = {"transformers": "huggingface", "spacy": "spacy"}
collect_ignore_glob = [
    f"src/onlstm/adapters/{name}*.py" for library, name in _LIBRARIES.items() if not find_spec(library)
]
