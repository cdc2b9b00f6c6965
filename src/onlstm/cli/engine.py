"""Options of commands that can leave the work to Ray: files in, parts in a folder out, by many processes."""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from onlstm import files
from onlstm.cli.console import NAMED, Progress, notice, tell_of_bad, warn_of_unknown
from onlstm.cli.inputs import check_threads
from onlstm.cli.shards import Marker
from onlstm.errors import UserError, at_least_one, at_most
from onlstm.models import locate

_MOST_WORKERS = 100_000
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""How gRPC, which Ray speaks, begins: with a frame of type 4, from either side."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """How the work is shared out."""

    ray: str | None = None
    """local, or the host:port of a Ray cluster: many processes write parts into the folder --out."""
    workers: int | None = None
    """With --ray: processes, each with a model of its own (default: one for each core)."""
    parts: Literal["json", "parquet"] = "json"
    """With --ray: write JSON lines or Parquet."""

    def folder(self, out: Path | None, refused: Mapping[str, object]) -> Path | None:
        """Return the folder for the parts, None without Ray; or raise a `UserError` for options that do not fit."""
        if self.ray is None:
            for option, typed in (("--workers", self.workers is not None), ("--parts", self.parts != "json")):
                if typed:
                    raise UserError(f"{option}: only with --ray")
            return None
        if self.workers is not None:
            at_least_one(workers=self.workers)
            at_most(workers=(self.workers, _MOST_WORKERS))
        for option, value in refused.items():
            if value:
                raise UserError(f"{option}: not with --ray, which writes records with --parts json or parquet")
        if not out:
            raise UserError("--ray: --out FOLDER is needed, for the parts")
        if missing := [name for name in ("ray", "pyarrow") if not find_spec(name)]:
            raise UserError(f"--ray: {missing[0]} is not installed; pip install 'onlstm[ray]'")
        if self.ray != "local":
            _check(self.ray)
        return out

    def run(
        self,
        kind: Literal["ParseBatch", "ScoreBatch"],
        run: str,
        inputs: Sequence[Path | str],
        out: Path,
        threads: int | None,
        *,
        tokenized: bool = False,
        **options: object,
    ) -> None:
        """Do the work, and say how far it is."""
        from onlstm.adapters import ray, ray_corpus

        check_threads(threads or 1)
        paths = [path for path in inputs if isinstance(path, Path) and path.is_file()]
        if len(paths) < len(inputs):
            raise UserError("--ray: name files, which all workers can read; no sentences, pipes or standard input")
        self._claim(out, locate(run), paths, {"kind": kind, "tokenized": tokenized, **options})
        make = partial(getattr(ray, kind), str(locate(run).resolve()), threads=threads or 1, **options)
        lines = words = unknown = bad = 0
        errors = list[str]()
        with (
            ray_corpus.cluster(str(self.ray), self.workers, threads or 1) as workers,
            Progress("sentences") as progress,
        ):
            total, parts = ray_corpus.work(
                make, paths, out, workers=workers, columnar=self.parts == "parquet", tokenized=tokenized
            )
            progress.update(0, total)
            for part in parts:
                lines, words, unknown = lines + part.lines, words + part.words, unknown + part.unknown
                bad, errors = bad + part.bad, [*errors, *part.errors][:NAMED]
                progress.update(lines)
        tell_of_bad(bad, total, errors, "records")
        warn_of_unknown(unknown / max(1, words), run, "do not trust these results")
        notice(f"{total:,} sentences in {out}")

    def _claim(self, out: Path, run: Path, paths: Sequence[Path], options: dict[str, object]) -> None:
        """Make the folder this run's, or raise a `UserError` if it is another's."""
        files.make_folder(out)
        marker = Marker.of(out / "settings.json", run, paths, {**options, "parts": self.parts})
        if not marker.agrees(out) and any(out.glob("part-*")):
            raise UserError(f"--out {out}: has parts of something else; name another folder")
        marker.write()


def _check(address: str) -> None:
    """Raise a `UserError` unless something like Ray answers; Ray itself would wait for minutes."""
    host, _, port = address.rpartition(":")
    why, answer = "what is there is not Ray", b""
    try:
        with socket.create_connection((host, int(port)), timeout=4) as connection:
            connection.sendall(_HELLO)
            answer = connection.recv(9)
    except (ValueError, OverflowError):
        why = "write local or host:port"
    except OSError as error:
        why = error.strerror or "no answer"
    if answer[3:4] != b"\4":
        raise UserError(f"--ray {address}: no Ray cluster can be reached ({why}); `ray start` prints the address")
