"""The `onlstm` command. Nothing heavy is imported before a command needs it: help and version never load torch."""

import os
import sys
from io import TextIOWrapper

from cyclopts import CoercionError, CycloptsError

# They register the commands.
from onlstm.cli import basics, evaluation, inspection, language, logic, parse, pictures, reproduce, syntax, text  # noqa: F401
from onlstm.cli.common import STDIN, app
from onlstm.errors import UserError


def main() -> None:
    """Run the command line; a user's mistake is one line on stderr and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal that lacks an arrow or an é is no reason to stop
            stream.reconfigure(errors="replace")
    try:
        # The parser takes a lone - for an option.
        app([STDIN if word == "-" else word for word in sys.argv[1:]], exit_on_error=False, print_error=False)
    except (CycloptsError, UserError) as error:
        print(f"onlstm: {' '.join(_message(error).split())}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("onlstm: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # `onlstm ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _message(error: Exception) -> str:
    """What went wrong; options of `train` that are not settings (--model.x) are unknown options."""
    if isinstance(error, CoercionError) and error.target_type == dict[str, str] and error.token:
        return f"Unknown option: {error.token.keyword}. (Settings of a recipe are --text.…, --model.…, --train.….)"
    return str(error)
