"""Sphinx: the pages of this folder, and those of the repository's root as far as readers of the site want them."""

import posixpath
import re
from pathlib import Path, PurePosixPath

from sphinx.application import Sphinx

import onlstm
from onlstm.playground.export import write

project = "onlstm"
release = version = onlstm.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "onlstm"
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

smartquotes_action = "D"  # dashes, not quotes: strings are code
highlight_language = "none"
default_role = "code"  # docstrings write `name`, as Markdown does
add_module_names = False
python_use_unqualified_type_names = True
python_display_short_literal_types = True
maximum_signature_line_length = 90
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False

_PAGES = {  # where a page of the root is on the site
    "README.md": "/index.md",
    "RESULTS.md": "/results.md",
    "PAPER.md": "/reference/paper.md",
    "CHANGELOG.md": "/changelog.md",
    "CONTRIBUTING.md": "/contributing.md",
}
_ARGS = re.compile(r"Args\b.*:$")
_ARGUMENT = re.compile(r" {4}(\w+): (.*)")
_LINK = re.compile(r"(?<=\]\()(?!\w+:|[/#])([^)#\s]+)")


def _linked(text: str, folder: PurePosixPath) -> str:
    """Return the page with links that hold on the site, where they were those of a file in this folder of the root."""

    def target(link: re.Match[str]) -> str:
        path = posixpath.normpath(folder / link[1])
        return _PAGES.get(path) or (f"/{path.removeprefix('docs/')}" if path.startswith("docs/") else link[1])

    return _LINK.sub(target, text)


def _on_source(app: Sphinx, name: str, source: list[str]) -> None:
    source[0] = _linked(source[0], PurePosixPath("docs", name).parent)


def _on_include(app: Sphinx, path: PurePosixPath, name: str, source: list[str]) -> None:
    source[0] = _linked(source[0], PurePosixPath(posixpath.normpath(PurePosixPath("docs", path))).parent)


def _on_docstring(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Write a section `Args:` as fields, and what else is indented as it stands."""
    section, pages = "", list(lines)
    lines.clear()
    for line in pages:
        if line.startswith("Alias for field number"):  # what Python says of a field of a tuple
            continue
        if line and not line.startswith("    "):
            section = "args" if _ARGS.match(line) else ""
            lines += [""] if line == "Args:" else [line, ""] if section else [line]
        elif line and section == "args":
            argument = _ARGUMENT.match(line)
            lines.append(f":param {argument[1]}: {argument[2]}" if argument else f"  {line.strip()}")
        elif line and not section and not lines[-1]:
            section = "literal"
            lines += ["::", "", line]
        else:
            lines.append(line)


def _on_finish(app: Sphinx, error: Exception | None) -> None:
    """Write the playground that a page embeds."""
    if not error and app.builder.format == "html":
        write(["en-small", "en"], Path(app.outdir) / "playground")


def setup(app: Sphinx) -> None:
    app.connect("build-finished", _on_finish)
    app.connect("autodoc-process-docstring", _on_docstring)
    app.connect("source-read", _on_source)
    app.connect("include-read", _on_include)
