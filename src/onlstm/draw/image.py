"""Pictures as PNG and PDF, made of SVG by a program or package that is installed beside this one."""

import shutil
import subprocess
from collections.abc import Callable
from importlib import import_module
from typing import Literal

from onlstm.errors import UserError

ImageKind = Literal["png", "pdf"]
_SCALE = 2  # pixels of a PNG for one of the SVG


def converter(kind: ImageKind) -> Callable[[str], bytes]:
    """Return a function that makes an image of an SVG document, with `rsvg-convert` or else with CairoSVG."""
    if program := shutil.which("rsvg-convert"):
        command = [program, "-f", kind, *(["-z", str(_SCALE)] if kind == "png" else [])]
        return lambda svg: _run(command, svg)
    try:
        convert = getattr(import_module("cairosvg"), f"svg2{kind}")
    except (ImportError, OSError):  # OSError: without the library cairo
        raise UserError(
            f"{kind}: needs rsvg-convert (package librsvg2-bin or librsvg) or CairoSVG (pip install cairosvg)"
        ) from None
    return lambda svg: bytes(convert(bytestring=svg.encode(), **({"scale": _SCALE} if kind == "png" else {})))


def _run(command: list[str], svg: str) -> bytes:
    done = subprocess.run(command, input=svg.encode(), capture_output=True, check=False)
    if done.returncode:
        raise UserError(f"rsvg-convert: {done.stderr.decode(errors='replace').strip() or done.returncode}")
    return done.stdout
