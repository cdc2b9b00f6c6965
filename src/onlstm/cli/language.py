"""The commands that use a language model: eval, score, generate, convert."""

import json as json_module
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from onlstm.cli.console import Answer, Json, Progress, many, notice, put, say, warn_of_unknown, watched
from onlstm.cli.engine import Engine
from onlstm.cli.inputs import (
    STDIN,
    Device,
    Run,
    Sentences,
    Text,
    Threads,
    check_output,
    command_line,
    line_count,
    lines_of,
    run_and_text,
    set_threads,
    texts,
)
from onlstm.cli.inputs import sources as text_sources
from onlstm.cli.main import app
from onlstm.errors import UserError
from onlstm.grammar.config import GrammarConfig
from onlstm.lm.config import LMConfig, Sampling

if TYPE_CHECKING:
    from onlstm.lm.score import SentenceScore


@app.command(name="eval")
def evaluate(
    run: Run,
    *text: Text,
    split: Annotated[str, Parameter(help="Which part of a folder with train, valid and test.")] = "test",
    cache: Annotated[bool, Parameter(help="Also with a neural cache, tuned on validation text.")] = False,
    dynamic: Annotated[bool, Parameter(help="Also with dynamic evaluation, tuned the same way.")] = False,
    valid: Annotated[str | None, Parameter(help="Text to tune on (default: the run's own validation text).")] = None,
    batch_size: Annotated[int, Parameter(help="Columns read in parallel: faster, slightly worse.")] = 1,
    compat: Annotated[Literal["original"] | None, Parameter(help="Count as the original code does.")] = None,
    out: Annotated[Path | None, Parameter(help="Save the result here, for `onlstm report`: results/NAME.json.")] = None,
    threads: Threads = None,
    device: Device = "auto",
    json: Json = False,
) -> Answer:
    """Print the perplexity of a run on text: per token with the end of each line, one stream, state carried."""
    from onlstm.paper import perplexity

    set_threads(threads)
    check_output("--out", out, "results/NAME.json", map(Path, (*text, *filter(None, [valid]))))
    with Progress("tokens", much=50_000) as progress:
        result = perplexity.run(
            run,
            text_sources(*text),
            split=split,
            cache=cache,
            dynamic=dynamic,
            valid=valid,
            batch=batch_size,
            compat=compat == "original",
            device=device,
            out=out,
            command=command_line(),
            say=lambda line: say(line, json),
            on_progress=progress.update,
        )
    lines = []
    for name, row in (("", vars(result)), ("   with cache", result.cache), ("   dynamic", result.dynamic)):
        if row:
            lines.append(f"perplexity {row['perplexity']:9.3f}   {row['bits_per_word']:6.3f} bits per word{name}")
        if row and name:
            tuned = [f"{key} {value:g}" for key, value in row.items() if key not in (*perplexity.NUMBERS, "valid_nll")]
            lines.append(f"    {', '.join(tuned)}, tuned on validation text")
    lines.append(f"{result.tokens:,} tokens with <eos>; {result.unk_rate:.2%} of the words unknown")
    warn_of_unknown(result.unk_rate, str(run), "this perplexity is mostly that of <unk>, and compares with no other")
    return Answer(result, lines, json)


@app.command
def score(
    *words: Sentences,
    out: Annotated[
        Path | None, Parameter(help="File to write (default: standard output); with --ray a folder.")
    ] = None,
    engine: Annotated[Engine, Parameter(name="*")] = Engine(),  # noqa: B008  (frozen)
    threads: Threads = None,
    device: Device = "auto",
    json: Annotated[bool, Parameter(name="--json", help="JSON lines instead of a table.")] = False,
) -> None:
    """Print the surprisal (-log p, in nats) of each word of each sentence.

    Each line is read alone from a zero state, after an `<eos>`: the first word is predicted from that, and the `<eos>`
    at the end of the line is predicted too (the last row of a sentence, field `eos`). A line without words has only
    that row.
    """
    parts = engine.folder(out, {})
    from onlstm.lm.model import LanguageModel
    from onlstm.lm.score import score_each

    set_threads(threads)
    run, text = run_and_text(words)
    lines = lines_of(text)
    if not parts:
        check_output("--out", out, "surprisal.tsv", map(Path, text))
    model = LanguageModel.load(run, device=device)
    if parts:
        engine.run("ScoreBatch", run, texts(text), parts, threads, device=device)
        return

    def rows(scored: Iterator["SentenceScore"]) -> Iterator[str]:
        if not json:
            yield "sentence\tposition\tword\tsurprisal"
        count = unknown = 0
        for number, sentence in enumerate(scored):
            count, unknown = count + len(sentence.ids), unknown + model.tokenizer.unknown(sentence.ids)
            if json:
                yield json_module.dumps({"id": number} | sentence.record(), ensure_ascii=False)
                continue
            pairs = zip([*sentence.words, "<eos>"], [*sentence.surprisal, sentence.eos], strict=True)
            yield from (f"{number}\t{place}\t{word}\t{nats:.5f}" for place, (word, nats) in enumerate(pairs, 1))
        warn_of_unknown(unknown / max(1, count), run, "most of these figures are the surprisal of <unk>")

    notice("Surprisal in nats; the first word given <eos>; the row <eos> is the end of the line.")
    with ExitStack() as stack:
        scored = score_each(model, lines)
        if out or not sys.stdout.isatty():
            scored = stack.enter_context(watched(scored, "sentences", line_count(texts(text))))
        put(rows(scored), out)


@app.command
def generate(
    run: Run,
    prompt: Annotated[str, Parameter(help="Text to continue, or - for standard input.")] = "",
    *,
    sampling: Annotated[Sampling, Parameter(name="*")] = Sampling(),  # noqa: B008  (frozen)
    across: Annotated[bool, Parameter(help="Continue after `<eos>`, over several lines.")] = False,
    threads: Threads = None,
    device: Device = "auto",
    json: Json = False,
) -> Answer | None:
    """Let a run write text."""
    from onlstm.lm.generate import generate_each, generate_words
    from onlstm.lm.model import LanguageModel

    set_threads(threads)
    if prompt == STDIN:
        prompt = "\n".join(lines_of("-")).strip()
    model, options = LanguageModel.load(run, device=device), {"stop_at_eos": not across, **vars(sampling)}
    if json:
        written = model.generate(prompt, **options)
        return Answer({"prompt": prompt, "texts": written}, json=True, seed=sampling.seed)
    start = list(filter(None, [prompt.strip()]))
    if sampling.count > 1:
        put(
            (" ".join([*start, *text]).replace("<eos>", "\n") for text in generate_each(model, prompt, **options)), None
        )
        return None
    for number, word in enumerate(chain(start, generate_words(model, prompt, **options))):  # they take time
        print(f"{' ' * bool(number)}{word}".replace("<eos>", "\n"), end="", flush=True)
    print()
    return None


@app.command
def convert(
    old: Annotated[Path, Parameter(help="A checkpoint of the original code (its .pt file), or a run folder.")],
    *,
    out: Annotated[Path, Parameter(help="Model folder to write.")],
    text: Annotated[
        list[str] | None, many("For a checkpoint: the text it was trained on, which gives the words.")
    ] = None,
    weight_dropout: Annotated[
        float | None, Parameter(help="For a checkpoint: the original's --wdrop, if the file does not say.")
    ] = None,
    half: Annotated[bool, Parameter(help="For a run: write the weights in half precision.")] = False,
    layer: Annotated[
        int | None, Parameter(help="For a language model: the layer to make trees of from now on.")
    ] = None,
    results: Annotated[
        Path | None, Parameter(help="For a run: folder of results; its scores go into the card.")
    ] = None,
    note: Annotated[list[str] | None, many("For a run: lines for the card, such as the licence of its text.")] = None,
    json: Json = False,
) -> Answer:
    """Import a checkpoint of the original code, executing nothing in the pickle; or make a run ready to ship.

    For a run, only the model goes to --out, with a card (README.md) and a line on how far to trust its trees.
    """
    from onlstm.lm import import_original
    from onlstm.paper import card

    config: LMConfig | GrammarConfig
    of_checkpoints = {"--text": text, "--weight-dropout": weight_dropout is not None}
    of_runs = {"--half": half, "--layer": layer is not None, "--results": results, "--note": note}
    is_run = old.is_dir()
    for option, typed in (of_checkpoints if is_run else of_runs).items():
        if typed:
            raise UserError(
                f"{option}: {old} is a {'run; only a checkpoint' if is_run else 'file; only a run'} takes it"
            )
    if is_run:
        config = card.ship(old, out, half=half, layer=layer, results=results, notes=note or ()).config
    else:
        config = import_original.convert(old, out, text or (), weight_dropout, lambda line: say(line, json)).config
    if isinstance(config, GrammarConfig):
        sizes = f"{config.nonterminals} nonterminals, {config.preterminals} preterminals"
    else:
        sizes = f"{'→'.join(map(str, (config.embedding_size, *config.sizes)))}, chunk {config.chunk_size}"
    megabytes = sum(path.stat().st_size for path in out.iterdir()) / 1e6
    line = f"{out}: {sizes}, {config.vocab_size:,} words, {megabytes:.1f} MB"
    return Answer({"run": out, "model": config}, [line], json)
