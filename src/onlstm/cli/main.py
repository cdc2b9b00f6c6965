"""The application and its entry point. Nothing heavy is imported before a command needs it: help never loads torch."""

import gc
import os
import pkgutil
import re
import signal
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Annotated, Literal

from cyclopts import App, ArgumentCollection, CycloptsError, Parameter
from cyclopts.completion.detect import ShellDetectionError

import onlstm.cli
from onlstm import __version__, device
from onlstm.cli import streams
from onlstm.cli.console import Answer
from onlstm.cli.inputs import STDIN
from onlstm.errors import UserError

app = App(
    name="onlstm",
    version=f"onlstm {__version__}",
    help="Recurrent networks that find syntax by themselves: the ON-LSTM of Shen et al. 2019.",
    help_format="plaintext",  # of the list of commands; markdown costs a sixth of the start
    default_parameter=Parameter(negative=()),
    suppress_keyboard_interrupt=False,  # `main` reports it
)
_SETTING = re.compile(r"--[a-z]+\.[\w-]+")
_WHOLE = re.compile(r"[-+]?[\d_]+|null|none|\[[\d,\s]+\]", re.IGNORECASE)


def whole_numbers(command: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Refuse 2.5 where a whole number is needed; the parser would round it."""
    for argument in arguments:
        is_sizes = argument.name == "--model.hidden-size"
        if is_sizes or argument.hint in (int, int | None, list[int] | None):
            wanted = "a whole number" + " or a list such as [1150, 1150, 400]" * is_sizes
            for token in argument.tokens:
                if not _WHOLE.fullmatch(token.value):
                    name = argument.name.removeprefix("--").replace("-", "_")
                    raise UserError(f"{name} {token.value}: {wanted} is needed")


app.config = (whole_numbers,)


def main() -> None:
    """Run the command line; a user's mistake is one line on stderr and exit code 2."""
    gc.set_threshold(100_000)  # importing torch makes many objects and no garbage: a tenth of the start
    streams.prepare()
    code, line = 0, ""
    try:
        try:
            run(sys.argv[1:])
        finally:
            sys.stdout.flush()
    except (CycloptsError, UserError) as error:
        code, line = 2, _with_option(" ".join(str(error).split()))
    except KeyboardInterrupt:
        code, line = 128 + signal.SIGINT, "interrupted"
    except BrokenPipeError:  # `onlstm ... | head`
        code = streams.NO_READER
    except SystemExit as leave:
        if not isinstance(leave.__context__, BrokenPipeError):
            raise
        code = streams.NO_READER  # rich, which prints the help, would have 1
    except (RuntimeError, MemoryError) as error:
        if not (line := device.failure(error)):
            raise
        code = 2
    except OSError as error:
        if not streams.is_of_stdout(error):
            raise
        code, line = 2, streams.cannot_write(error)
    streams.last_words(f"onlstm: {line}" if line else "")
    if "RANK" in os.environ and not code:  # of torchrun: now and then gloo's threads abort it while Python shuts down
        os._exit(0)
    sys.exit(code)


def _with_option(message: str) -> str:
    """Return the message of the library about an option, such as `top_k -1: …`, with the option as it was typed."""
    name = re.split("[ :]", message, maxsplit=1)[0]
    option = f"--{name.replace('_', '-')}"
    typed = {word.partition("=")[0].replace("_", "-") for word in sys.argv}
    return f"{option}{message.removeprefix(name)}" if option in typed else message


def run(words: Iterable[str]) -> None:
    """Run a command as typed, without the word `onlstm`, and print its answer; errors are raised."""
    started = time.perf_counter()
    words = list(joined(words))
    load_commands(words[0] if words else "")
    answer = app(words, exit_on_error=False, print_error=False, result_action="return_value")
    if isinstance(answer, Answer) and (text := answer.text(started)):
        print(text)


@app.command(name="--install-completion")
def install_completion(
    *,
    shell: Annotated[
        Literal["zsh", "bash", "fish", "powershell"] | None, Parameter(help="Default: the one you type this in.")
    ] = None,
) -> None:
    """Install tab completion for your shell."""
    try:
        path = app.install_completion(shell=shell)
    except ShellDetectionError:
        raise UserError("--install-completion: the shell is not known; name it with --shell") from None
    except OSError as error:
        raise UserError(f"--install-completion: cannot write {error.filename}: {error.strerror}") from None
    print(f"{path} written; new shells complete onlstm's commands and options")


def load_commands(name: str = "") -> None:
    """Import the modules of this package, which register their commands; only one, if it has the name of a command."""
    modules = [module.name for module in pkgutil.iter_modules(onlstm.cli.__path__, "onlstm.cli.")]
    if (own := f"onlstm.cli.{name}") in modules:
        import_module(own)
    for module in modules if name not in app or name.startswith("-") else ():
        import_module(module)
    for command in app:
        if not command.startswith("-"):
            app[command].help_format = "markdown"


def joined(words: Iterable[str]) -> Iterator[str]:
    """Yield the words with a setting and its value in one, since `--model.tied false` is no flag and a word.

    >>> list(joined(["train", "-", "--model.hidden-size", "[8, 4]", "--out", "x"]))
    ['train', '/dev/stdin', '--model.hidden-size=[8, 4]', '--out', 'x']
    """
    rest = deque(words)
    while rest:
        word = rest.popleft()
        if _SETTING.fullmatch(word) and rest and not rest[0].startswith("--"):
            yield f"{word}={rest.popleft()}"
        else:
            yield STDIN if word == "-" else word  # the parser takes a lone - for an option
