"""docs/notebooks: the notebook runs from top to bottom in a kernel, and shows what its outputs in the file show."""

import pytest

from pages import DOCS

nbformat = pytest.importorskip("nbformat", reason="needs the extra docs")
nbclient = pytest.importorskip("nbclient", reason="needs the extra docs")


def shown(notebook):
    """Return the kinds of what each cell shows, and what it prints."""
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return [output.get("text") or sorted(output["data"]) for output in outputs]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_tour(tmp_path):
    notebook = nbformat.read(DOCS / "notebooks" / "tour.ipynb", as_version=4)
    expected = shown(notebook)
    client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    assert shown(notebook) == expected
    assert sum("image/svg+xml" in output for output in expected) == 4
