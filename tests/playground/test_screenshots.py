"""Pictures of six states for the docs; with ONLSTM_WRITE_SCREENSHOTS=1 they are taken anew. Look at each of them."""

import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser

PICTURES = Path(__file__).parents[2] / "docs" / "playground"
GOLD = "(S (NP (NP The cat) (SBAR that (S (NP the dogs) (VP chased)))) (VP was tired))"
PEOPLE = "Most of the people in the room knew him."
STATES = {
    "default": ("", {}),
    "time": ("#time=6&beside=none", {"color_scheme": "dark"}),
    "compare": (f"#text={PEOPLE.replace(' ', '+')}&layer=1&beside=en-small&besideDecoder=paper", {}),
    "gold": (f"#beside=gold&gold={GOLD.replace(' ', '+')}", {}),
    "phone": ("#beside=none", {"viewport": {"width": 390, "height": 780}}),
    "rtl": ("#beside=none&text=הילדה+הקטנה+קראה+ספר+ישן+בגן", {"viewport": {"width": 760, "height": 780}}),
}
LARGEST = 150_000


@pytest.mark.parametrize("name", STATES)
def test_a_picture_of_the_state(show, name):
    fragment, options = STATES[name]
    with show(fragment, **{"viewport": {"width": 1180, "height": 940}} | options) as page:
        page.wait_for_selector(".panel:last-child .bracket")
        if "beside=none" not in fragment:
            page.wait_for_selector(".panel:nth-child(2) .bracket", timeout=60_000)
        page.wait_for_timeout(600)  # brackets that are new fade in
        picture = page.screenshot()
    if os.environ.get("ONLSTM_WRITE_SCREENSHOTS"):
        (PICTURES / f"{name}.png").write_bytes(picture)
    assert 10_000 < (PICTURES / f"{name}.png").stat().st_size < LARGEST
