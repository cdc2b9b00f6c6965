"""The command reproduce: a table or figure of the paper, from the text to the page, with the commands that are here."""

import shlex
import sys
import time
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from onlstm import files
from onlstm.cli.common import Json, Threads, app, json_text, say


@app.command
def reproduce(
    target: Annotated[str, Parameter(help="table1, table2, table3, figure-logic or figure-a1.")],
    *,
    scale: Annotated[
        Literal["small", "paper"],
        Parameter(help="small: an hour or two on two cores; paper: as published."),
    ] = "small",
    data: Annotated[Path, Parameter(help="Folder with ptb-lm, wsj-sample, wikitext-2, logic, …")] = Path("data"),
    out: Annotated[Path | None, Parameter(help="Folder for runs and results (default: runs/reproduce-SCALE).")] = None,
    dry_run: Annotated[bool, Parameter(negative="", help="Only print the commands, one a line.")] = False,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Run what is behind a table or figure of the paper and print it, the published numbers beside ours.

    Each step is an onlstm command that can be run by hand as well. What is done is not done again, and what was
    interrupted goes on: give the same command again. Tables share their runs.
    """
    from dataclasses import asdict

    from onlstm.paper import report
    from onlstm.paper import reproduce as task

    started = time.perf_counter()
    plan = task.plan(target, scale, data, out or Path("runs") / f"reproduce-{scale}", threads)
    lines = [shlex.join(["onlstm", *step.words]) for step in plan.steps]
    if dry_run:
        print("\n".join(lines))
        return
    plan.check()
    say(f"{target}, scale {scale}: {plan.cost}", json)
    plan.here.mkdir(parents=True, exist_ok=True)
    for number, (step, line) in enumerate(zip(plan.steps, lines, strict=True), 1):
        words = step.now()
        say(f"\n[{number}/{len(lines)}] {line}{'' if words else '  (done already)'}", json)
        if words:
            _run(words, json)
    page = plan.page()
    if json:
        results = {each.name: each.content for each in report.collect(plan.here)} if page else {}
        more = {"published": list(map(asdict, report.published()))}
        print(json_text("reproduce", started, None, {"target": target, "scale": scale, "results": results} | more))
    elif page:
        files.write(plan.here / f"{target}.md", page)
        print(f"\n{page}\n{plan.here / f'{target}.md'} written")


def _run(words: tuple[str, ...], json: bool) -> None:
    """Run a command as if it had been typed."""
    typed = sys.argv
    sys.argv = ["onlstm", *words]
    try:
        with redirect_stdout(sys.stderr) if json else nullcontext():
            app(words, exit_on_error=False, print_error=False, result_action="return_value")
    except (SystemExit, KeyboardInterrupt):
        print("onlstm: stopped; the same command goes on from here", file=sys.stderr)
        raise
    finally:
        sys.argv = typed
