"""Language models by their perplexity: the section of `onlstm train`'s results."""

from collections.abc import Mapping, Sequence
from typing import Any

from onlstm.paper.report.result import Result, Section
from onlstm.paper.report.tables import NONE, commands, network, number, origin, table

_SPLITS = ("train", "valid", "test")
_PERPLEXITY = (
    "Rule *per token with `<eos>`*: perplexity is exp of the mean negative log-probability of all tokens of the split, "
    "in its natural order, each line's `<eos>` included. The epoch with the best validation perplexity is reported. "
    "Only runs on the same text share a table; a run is called by its file in the results folder."
)
_FULL_SIZE = (
    "The paper's own row is the recipe `ptb-paper`, 1,000 epochs of 25 million parameters: work for a GPU, 10 days on "
    "two cores (1,031 tokens a second, `benchmarks/train.py`). `onlstm reproduce table1 --scale paper` runs it and its "
    "LSTM."
)
_NO_SETTINGS = ("name", "about", "command", "expected", "source", "model.rnn")


def _language_models(runs: Sequence[Result]) -> list[str]:
    """Return the rule, then each text's runs, differences, learning rates, curves and commands."""
    texts: dict[str, list[Result]] = {}
    for run in runs:
        words = f"Profile `{run['data.profile']}`, vocabulary {run['data.vocabulary']:,}"
        splits = [(split, run[f"data.{split}"]) for split in _SPLITS if run[f"data.{split}"]]
        sizes = ", ".join(f"{name} {part['tokens']:,} tokens (sha256 {part['sha256'][:12]})" for name, part in splits)
        texts.setdefault(f"{words}; {sizes}.", []).append(run)
    blocks = [_PERPLEXITY]
    for k, (text, group) in enumerate(texts.items(), 1):
        title = group[0]["data.name"] or f"Text {k}"
        blocks += [f"### {title}", text, _runs(group), *_differences(group), *_grid(group), *_curve(group)]
        blocks += [commands(group), "\n".join(map(origin, group))]
    return blocks


def _runs(runs: Sequence[Result]) -> str:
    head = ["run", "model", "parameters", "epochs (best)", "minutes", "tokens/s", "seed", "validation", "test"]
    rows = []
    for run in runs:
        numbers, model = run["numbers"], _model(run["recipe.model"])
        row = [run.name, model, f"{run['parameters'] / 1e6:.2f}M", f"{numbers['epochs']} ({numbers['best_epoch']})"]
        row += [f"{run['seconds'] / 60:.1f}", f"{numbers['tokens_per_second']:,.0f}", str(run["seed"])]
        rows.append(row + [number(numbers.get(f"{split}_perplexity")) for split in _SPLITS[1:]])
    return table(head, rows)


def _model(model: Mapping[str, Any]) -> str:
    hidden, embedding, layers = model["hidden_size"], model["embedding_size"], model.get("num_layers")
    if not isinstance(hidden, list):  # with tied weights the last layer has the embeddings' size
        hidden = [hidden] * (layers - 1) + [embedding if model.get("tied") else hidden] if layers else [hidden, "…"]
    return network(model["rnn"], [embedding, *hidden])


def _differences(runs: Sequence[Result]) -> list[str]:
    """Return ON-LSTM minus LSTM, each against the LSTM run that is most like it; nothing without both."""
    ours, stock = ([run for run in runs if run["recipe.model.rnn"] == rnn] for rnn in ("onlstm", "lstm"))
    rows = []
    for run in ours if stock else []:
        other = min(stock, key=lambda each: (each["seed"] != run["seed"], len(_unlike(run["recipe"], each["recipe"]))))
        pairs = [(run[f"numbers.{split}_perplexity"], other[f"numbers.{split}_perplexity"]) for split in _SPLITS[1:]]
        change = [f"{a - b:+.2f} ({100 * (a / b - 1):+.1f} %)" if a and b else NONE for a, b in pairs]
        rows.append([run.name, other.name, *change, "; ".join(_unlike(run["recipe"], other["recipe"])) or "nothing"])
    spread = "" if len({run["seed"] for run in ours}) > 1 else " One seed: how much seeds differ is not known."
    caption = f"ON-LSTM minus LSTM, perplexity (negative: the ON-LSTM is better).{spread}"
    head = ["ON-LSTM run", "LSTM run", "validation", "test", "what differs besides the cell"]
    return [caption, table(head, rows)] if rows else []


def _unlike(ours: Mapping[str, Any], other: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return the settings in which two resolved recipes differ; what they say of themselves, and cells, apart."""
    found = []
    for key in dict.fromkeys([*ours, *other]):
        a, b = ours.get(key, NONE), other.get(key, NONE)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += _unlike(a, b, f"{prefix}{key}.")
        elif a != b and prefix + key not in _NO_SETTINGS:
            found.append(f"{prefix}{key} {a} / {b}")
    return found


def _grid(runs: Sequence[Result]) -> list[str]:
    tried = [(run.name, each) for run in runs for each in run["grid"] or []]
    rows = [[name, f"{each['lr']:g}", str(each["epochs"]), number(each["valid_perplexity"])] for name, each in tried]
    head = ["for run", "learning rate", "epochs", "validation"]
    return ["Learning rates tried beforehand, compared by validation perplexity:", table(head, rows)] if rows else []


def _curve(runs: Sequence[Result], most: int = 12) -> list[str]:
    """Return validation perplexity and training loss by epoch; of long runs some `most` epochs and the best."""
    curves = [{each["epoch"]: each for each in run["curve"]} for run in runs]
    epochs = sorted(set[int]().union(*curves))
    kept = {run["numbers.best_epoch"] for run in runs}.union(epochs[:: -(-len(epochs) // most) or 1], epochs[-1:])
    rows = [[str(epoch)] for epoch in epochs if epoch in kept]
    for row in rows:
        points = [curve.get(int(row[0])) for curve in curves]
        row += [f"{number(at['valid_perplexity'])} ({at['train_loss']:.3f})" if at else NONE for at in points]
    head = ["epoch", *(run.name for run in runs)]
    return ["Validation perplexity (and training loss in nats) by epoch, as seen during training:", table(head, rows)]


LANGUAGE_MODELLING = Section(
    title="Language modelling",
    tables={"language-modelling": _FULL_SIZE},
    keys={
        str: "data.profile data.name?",
        int: "seed parameters data.vocabulary numbers.best_epoch numbers.epochs",
        float: "numbers.valid_perplexity numbers.test_perplexity? numbers.tokens_per_second",
        **{list: "curve grid?", dict: "data.train data.valid data.test? recipe.model"},
    },
    entries={
        **{f"data.{split}": {int: "tokens", str: "sha256"} for split in _SPLITS},
        "recipe.model": {str: "rnn", int: "embedding_size num_layers?", object: "hidden_size"},
        "curve": {int: "epoch", float: "train_loss valid_perplexity"},
        "grid": {int: "epochs", float: "lr valid_perplexity"},
    },
    paragraphs=_language_models,
)
