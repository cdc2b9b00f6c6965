"""The commands of language modelling: recipes, train, eval, score, generate, convert, report."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from onlstm.cli.common import STDIN, Json, Threads, app, json_text, many, say, set_threads, sources
from onlstm.cli.parse import Words, lines_of, run_and_text
from onlstm.cli.text import Text
from onlstm.models import DEFAULT

Run = Annotated[Path, Parameter(help=f"A run folder, or {DEFAULT}.")]


@app.command
def recipes(name: Annotated[str | None, Parameter(help="Print this recipe in full.")] = None) -> None:
    """List the recipes that `onlstm train` knows, or print one."""
    import yaml

    from onlstm import recipe

    if name:
        print(yaml.safe_dump(recipe.read(name), sort_keys=False, allow_unicode=True, width=110), end="")
        return
    for each in recipe.names():
        found = recipe.read(each)
        print(f"{each}\n    {found['about']}\n    {found['command']}\n    expect: {found['expected']}")


@app.command
def train(
    *text: Text,
    recipe: Annotated[
        str | None, Parameter(help="A name from `onlstm recipes`, or a YAML file (default: quick).")
    ] = None,
    out: Annotated[Path | None, Parameter(help="Run folder (default: runs/RECIPE).")] = None,
    resume: Annotated[bool, Parameter(negative="", help="Go on with the run in --out.")] = False,
    seed: Annotated[int | None, Parameter(help="Instead of the recipe's.")] = None,
    threads: Threads = None,
    tensorboard: Annotated[bool, Parameter(negative="", help="Write TensorBoard files too (extra `log`).")] = False,
    json: Json = False,
    **settings: Annotated[
        dict[str, str],
        Parameter(help="Any setting of the recipe: --model.hidden-size 650, --train.lr 20, --text.profile generic."),
    ],
) -> None:
    """Train a language model on text; the run folder holds the best model, a checkpoint, a log and the result.

    A run that was interrupted goes on, bit for bit, with --resume. `torchrun --nproc-per-node N -m onlstm train …`
    splits the batch over N processes.
    """
    from onlstm.cli.progress import TrainingProgress
    from onlstm.cli.progress import tensorboard as tensorboard_listener
    from onlstm.paper import language_modelling as task

    started = time.perf_counter()
    set_threads(threads)
    run = out or Path("runs") / Path(recipe or "quick").stem
    first = os.environ.get("RANK", "0") == "0"  # of torchrun's processes
    request = task.Request(
        sources=sources(*text),
        recipe=recipe,
        overrides=settings | ({} if seed is None else {"seed": seed}),
        out=run,
        resume=resume,
        command=" ".join(["onlstm", *sys.argv[1:]]),
    )
    if not first:
        task.run(request)
        _end_of_rank()
    with TrainingProgress(sys.stderr if json else sys.stdout) as progress:
        more = [tensorboard_listener(run)] if tensorboard else []
        found = task.run(request, progress.say, [progress, *more])
    if isinstance(found, int):  # a signal
        sys.exit(128 + found)
    if json:
        print(json_text("train", started, found["seed"], {"run": str(run), "result": found}))
    else:
        numbers = found["numbers"]
        test = f", test {numbers['test_perplexity']:.2f}" if "test_perplexity" in numbers else ""
        best = f"valid {numbers['valid_perplexity']:.2f}{test} (epoch {numbers['best_epoch']})"
        print(f"Perplexity: {best}; model in {run}")
    if "RANK" in os.environ:
        _end_of_rank()


def _end_of_rank() -> None:
    """End a process of torchrun at once: now and then gloo's threads abort one while Python shuts down."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


@app.command(name="eval")
def evaluate(
    run: Run,
    *text: Text,
    split: Annotated[str, Parameter(help="Which part of a folder with train, valid and test.")] = "test",
    cache: Annotated[bool, Parameter(negative="", help="Also with a neural cache, tuned on validation text.")] = False,
    dynamic: Annotated[bool, Parameter(negative="", help="Also with dynamic evaluation, tuned likewise.")] = False,
    valid: Annotated[str | None, Parameter(help="Text to tune on (default: the run's own validation text).")] = None,
    batch_size: Annotated[int, Parameter(help="Columns read side by side: faster, a little worse.")] = 1,
    compat: Annotated[Literal["original"] | None, Parameter(help="Count as the original code does.")] = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Print the perplexity of a run on text: per token, the end of each line counted, one stream, state carried."""
    from onlstm.paper import perplexity as evaluation

    started = time.perf_counter()
    set_threads(threads)
    found = evaluation.run(
        run,
        sources(*text),
        split=split,
        cache=cache,
        dynamic=dynamic,
        valid=valid,
        batch=batch_size,
        compat=compat == "original",
        say=lambda line: say(line, json),
    )
    if json:
        print(json_text("eval", started, None, found))
        return
    rows = [("", found), ("with cache", found["cache"]), ("dynamic", found["dynamic"])]
    for name, row in rows:
        if row:
            print(f"perplexity {row['perplexity']:9.3f}   {row['bits_per_word']:6.3f} bits per word   {name}".rstrip())
            more = {key: row[key] for key in ("theta", "lam", "size", "lr", "decay", "window") if key in row}
            if more:
                print(
                    "    " + ", ".join(f"{key} {value:g}" for key, value in more.items()) + ", tuned on validation text"
                )
    print(f"{found['tokens']:,} tokens with <eos>; {found['unk_rate']:.2%} of the words unknown")


@app.command
def score(
    *words: Words,
    out: Annotated[Path | None, Parameter(help="File to write (default: standard output).")] = None,
    threads: Threads = None,
    json: Annotated[bool, Parameter(name="--json", negative="", help="JSON lines instead of a table.")] = False,
) -> None:
    """Print the surprisal (-log p, in nats) of each word of each sentence.

    Each line is read alone from a zero state, after an `<eos>`: the first word is predicted from that, and the `<eos>`
    at the line's end is predicted too (the last row of a sentence, field `eos`). A line without words has only that.
    """
    import json as form

    from onlstm import files
    from onlstm.lm.model import LanguageModel
    from onlstm.lm.score import score_each

    set_threads(threads)
    run, text = run_and_text(words)
    lines = lines_of(text)
    model = LanguageModel.load(run)

    def rows() -> Iterator[str]:
        if not json:
            yield "sentence\tposition\tword\tsurprisal"
        for number, found in enumerate(score_each(model, lines)):
            if json:
                row = {"id": number, "words": found.words, "surprisal": found.surprisal, "eos": found.eos}
                yield form.dumps(row, ensure_ascii=False)
                continue
            for place, (word, surprisal) in enumerate(zip(found.words, found.surprisal, strict=True), 1):
                yield f"{number}\t{place}\t{word}\t{surprisal:.5f}"
            yield f"{number}\t{len(found.words) + 1}\t<eos>\t{found.eos:.5f}"

    print("Surprisal in nats; the first word given <eos>; the row <eos> is the end of the line.", file=sys.stderr)
    if out:
        files.write(out, lambda file: [file.write((row + "\n").encode()) for row in rows()])
        return
    for row in rows():
        print(row)


@app.command
def generate(
    run: Run,
    prompt: Annotated[str, Parameter(help="Text to go on from, or - for standard input.")] = "",
    *,
    words: Annotated[int, Parameter(help="Words at most.")] = 50,
    count: Annotated[int, Parameter(help="How many texts.")] = 1,
    temperature: Annotated[float, Parameter(help="0 takes the likeliest word each time.")] = 1.0,
    top_k: Annotated[int, Parameter(help="Choose among so many of the likeliest words; 0: all.")] = 0,
    top_p: Annotated[float, Parameter(help="Choose among the words that hold this share of the probability.")] = 1.0,
    unk: Annotated[bool, Parameter(negative="", help="Allow <unk>.")] = False,
    across: Annotated[bool, Parameter(negative="", help="Go on after `<eos>`, over several lines.")] = False,
    seed: Annotated[int | None, Parameter(help="The same seed gives the same texts.")] = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Let a run write text."""
    from onlstm.lm.model import LanguageModel

    started = time.perf_counter()
    set_threads(threads)
    texts = LanguageModel.load(run).generate(
        sys.stdin.read().strip() if prompt == STDIN else prompt,
        words=words,
        count=count,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        unk=unk,
        stop_at_eos=not across,
    )
    if json:
        print(json_text("generate", started, seed, {"prompt": prompt, "texts": texts}))
        return
    for each in texts:
        print(" ".join([prompt, *each]).strip().replace("<eos>", "\n"))


@app.command
def convert(
    old: Annotated[Path, Parameter(help="A checkpoint of the original code (its .pt file), or a run folder.")],
    *,
    out: Annotated[Path, Parameter(help="Model folder to write.")],
    text: Annotated[
        list[str] | None, many("Of a checkpoint: the text it was trained on, which gives the words.")
    ] = None,
    weight_dropout: Annotated[
        float | None, Parameter(help="Of a checkpoint: the original's --wdrop, if the file does not say.")
    ] = None,
    half: Annotated[bool, Parameter(negative="", help="Of a run: write the weights in half precision.")] = False,
    layer: Annotated[int | None, Parameter(help="Of a run: make its trees of this layer from now on.")] = None,
    results: Annotated[Path | None, Parameter(help="Of a run: results/, whose scores go into the card.")] = None,
    note: Annotated[list[str] | None, many("Of a run: lines for the card, such as the licence of its text.")] = None,
    json: Json = False,
) -> None:
    """Import a checkpoint of the original code, executing nothing in the pickle; or make a run ready to ship.

    Of a run, the model alone goes to --out, with a card (README.md) and a line on how far to trust its trees.
    """
    from dataclasses import asdict

    from onlstm.paper import card
    from onlstm.paper import convert as task

    started = time.perf_counter()
    if old.is_dir():
        model = card.ship(old, out, half=half, layer=layer, results=results, notes=note or ())
    else:
        model = task.run(old, out, text or (), weight_dropout, lambda line: say(line, json))
    if json:
        print(json_text("convert", started, None, {"run": str(out), "model": asdict(model.config)}))
        return
    sizes = "→".join(map(str, (model.config.embedding_size, *model.config.sizes)))
    size = sum(path.stat().st_size for path in out.iterdir()) / 1e6
    print(f"{out}: {sizes}, chunk {model.config.chunk_size}, {model.config.vocab_size:,} words, {size:.1f} MB")


@app.command
def report(
    folder: Annotated[Path, Parameter(help="Folder of result files.")] = Path("results"),
    *,
    out: Annotated[Path, Parameter(help="Page to write.")] = Path("RESULTS.md"),
) -> None:
    """Write RESULTS.md from results/*.json, with the published numbers beside ours."""
    from onlstm.paper import report as page

    page.write(folder, out)
    print(f"{out} written")
