"""The page in a real browser: what a person can do with it, by pointer, keyboard and link, on any screen."""

import json
import re
import shutil

import pytest
from nasty import HOSTILE

pytestmark = pytest.mark.browser

TEXT = "The cat that the dogs chased was tired."


def brackets(page) -> str:
    return page.inner_text("#brackets")


def wait(page, selector):
    page.wait_for_selector(selector, timeout=60_000, state="attached")


def move_to(page, selector):
    """Move the mouse to the middle of a path's length: the middle of its box may be beside it."""
    place = page.locator(selector).first.evaluate(
        """(path) => {
          const point = path.getPointAtLength(path.getTotalLength() / 2).matrixTransform(path.getScreenCTM());
          return [point.x, point.y];
        }"""
    )
    page.mouse.move(*place)


def test_typing_draws_and_appending_continues(show):
    with show("#beside=none") as page:
        assert page.input_value("#text") == TEXT
        assert brackets(page) == "( ( ( The cat ) ( that ( the ( dogs chased ) ) ) ) ( was tired ) )"
        assert page.locator(".bar.distance").count() == 8
        page.fill("#text", "The old man")
        wait(page, "text[data-word='2']:text-is('man')")
        assert page.locator("#next li").count() == 10
        page.locator("#next li").first.click()
        wait(page, "text[data-word='3']")
        assert page.input_value("#text").startswith("The old man ")
        page.fill("#text", "?! …")
        wait(page, "#status:text-is('There is no word in it.')")
        assert brackets(page) == ""


def test_pointer_and_arrow_keys_explain_brackets(show):
    with show("#beside=none", viewport={"width": 1280, "height": 1500}) as page:
        move_to(page, ".hit[data-span='0,2']")
        pointed = page.inner_text("#readout")
        assert pointed == (
            "“The cat”: its boundaries are 0.650 at “that”; the largest distance inside is 0.482 at “The”: margin 0.168"
        )
        assert page.locator(".bracket.on").count() == 1
        assert page.locator(".bar.on").count() == 2
        box = page.locator(".map .heat").bounding_box()
        page.mouse.move(box["x"] + 10, box["y"] + 10)
        assert "they hold “The" in page.inner_text("#readout")
        page.locator(".scroll").focus()
        for _ in range(3):
            page.keyboard.press("ArrowRight")
        assert page.inner_text("#readout") == pointed
        page.keyboard.press("Escape")
        assert page.inner_text("#readout") == ""


def test_time_goes_word_by_word(show):
    with show("#beside=none") as page:
        page.locator("#time").fill("6")
        wait(page, ".unread >> nth=1")
        assert brackets(page) == "( ( The cat ) ( that ( the ( dogs chased ) ) ) )"
        assert page.inner_text("#readout") == "“chased” comes in and erases 50 % of the memory."
        assert page.locator(".erased path").count() > 0
        assert page.inner_text("#clock") == "6 of 8 words"
        page.wait_for_url("**time=6**")
        page.locator("#time").press("ArrowRight")
        wait(page, "#clock:text-is('7 of 8 words')")
        assert "Closed: “The cat that the dogs chased”" in page.inner_text("#readout")
        page.click("#play")
        assert page.get_attribute("#play", "aria-label") == "Pause"
        wait(page, "#clock:text-is('8 of 8 words')")
        wait(page, "#play[aria-label^='Play']")
        assert page.locator(".unread").count() == 0


def test_layers_decoders_votes_and_a_second_tree(show):
    with show() as page:
        wait(page, ".panel:nth-child(2)")
        assert page.locator(".panel figcaption").all_inner_texts() == [
            "en-small · layer 2, the paper’s decoder",
            "en · grammar · 67 % of the brackets shared",
        ]
        assert page.locator("path.only-here").count() == page.locator("path.only-there").count() == 2
        assert {line.get_attribute("stroke-dasharray") for line in page.locator("path.only-here").all()} == {"5 3"}
        page.select_option("#layer", "vote")
        page.select_option("#beside", "en-small")
        page.select_option("#besideLayer", "1,2,3")
        wait(page, "figcaption:has-text('average of all, unbiased decoder')")
        page.select_option("#decoder", "unbiased")
        wait(page, "figcaption:has-text('vote of all layers, unbiased decoder')")
        page.select_option("#beside", "none")
        wait(page, "#panels:not(:has(.panel:nth-child(2)))")
        widths = {line.get_attribute("stroke-width") for line in page.locator(".bracket").all()}
        assert widths <= {"1.2", "1.1", "1.6", "2.2"}  # 1, 2 or 3 of 3 votes; the whole sentence
        page.select_option("#model", "en")
        page.check("#labels")
        wait(page, "figcaption:has-text('grammar')")
        wait(page, "#brackets:has-text('(N')")  # the labels come with the next drawing
        assert re.fullmatch(r"\(N\d+ \(N\d+ .*\(T\d+ tired\)\)\)", brackets(page))


def test_a_gold_tree_is_scored(show):
    gold = "(S (NP (NP (DT The) (NN cat)) (SBAR that (S (NP the dogs) (VP chased (-NONE- *T*))))) (VP was tired) (. .))"
    with show() as page:
        page.select_option("#beside", "gold")
        page.fill("#gold", gold)
        wait(page, "figcaption:has-text('F1 83.3')")
        assert page.locator("path.only-there").count() == 1
        page.fill("#gold", "(S (NP A dog) (VP barked))")
        wait(page, "#status.bad:has-text('it has “A” where the sentence has “The”')")
        page.click("#gold-words")
        wait(page, "text[data-word='2']:text-is('barked')")
        assert page.input_value("#text") == "A dog barked"
        page.fill("#gold", "((((")
        wait(page, "#status.bad:has-text('an unclosed (')")


def test_what_is_taken_away(show, tmp_path):
    with show("#beside=none") as page:
        saved = {}
        for kind in ("svg", "png", "tex", "txt", "json"):
            with page.expect_download() as download:
                page.click(f"[data-take={kind}]")
            assert download.value.suggested_filename == f"tree.{kind}"
            saved[kind] = download.value.path().read_bytes()
        assert saved["svg"].startswith(b"<svg ")
        assert b"class=" not in saved["svg"]
        assert b"<title>The cat that" in saved["svg"]
        assert saved["png"].startswith(b"\x89PNG")
        assert saved["txt"].decode().strip() == brackets(page)
        assert json.loads(saved["json"])["words"][5] == "chased"
        assert b"\\begin{forest} words below [{} [{} [{} [{The}] [{cat}]]" in saved["tex"]
        if program := shutil.which("rsvg-convert"):
            import subprocess

            subprocess.run([program, "-o", str(tmp_path / "tree.png")], input=saved["svg"], check=True)


def test_a_link_restores_everything(show):
    fragment = "#text=Dogs+bark+%26+run&layer=3&decoder=unbiased&lines=votes&heat=input&beside=en&time=2"
    with show(fragment) as page:
        assert page.input_value("#text") == "Dogs bark & run"
        names = ("layer", "decoder", "lines", "heat", "beside", "time")
        assert [page.input_value(f"#{name}") for name in names] == ["3", "unbiased", "votes", "input", "en", "2"]
        page.select_option("#heat", "memory")
        page.wait_for_url("**heat=memory**")
        link = page.url
    with show(link[link.index("#") :]) as page:
        assert page.input_value("#heat") == "memory"
        assert page.input_value("#time") == "2"


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_becomes_markup(show, text):
    from urllib.parse import quote

    hostile = quote(text, safe="")
    names = ("text", "gold", "model", "layer", "beside", "time", "heat", "nosuch", hostile, "__proto__")
    with show("#" + "&".join(f"{name}={hostile}" for name in names)) as page:
        page.select_option("#beside", "gold")
        page.fill("#gold", f"(S ({text.replace('(', '').replace(')', '')} x) y)")
        page.wait_for_timeout(100)
        assert page.title() == "onlstm playground"
        assert page.locator("main script, main img, main a, main iframe, svg svg, main title").count() == 0
        assert page.locator("b").all_inner_texts() in (["en-small"], ["en-small", "gold"])
        words = page.locator("text[data-word]").all_text_contents()
        assert all(word in text.replace("\x00", "") for word in words)
        if words:
            with page.expect_download() as saved:
                page.click("[data-take=svg]")
            content = saved.value.path().read_text("utf-8")
            assert re.findall(r"<(?:script|img|a|iframe|foreignObject)\b|\son\w+=", content) == []


def test_a_hostile_name_of_a_model_is_text(opened, serve, tmp_path):
    from helpers import random_model
    from onlstm.playground.export import write
    from onlstm.text.tokenizer import Tokenizer

    name = "<img src=x onerror=alert(1)>"
    random_model(Tokenizer.of_words(["the", "<b>"], "generic")).save(tmp_path / name)
    write([tmp_path / name], tmp_path / "page")
    with serve(tmp_path / "page") as server, opened(server.url) as page:
        assert page.inner_text("figcaption b") == name
        assert page.locator("main img").count() == 0
        assert "do not trust this tree" in page.inner_text("#status")


@pytest.mark.parametrize(("size", "name"), [(1000, "en.bin: 1000 bytes instead of"), (None, "en.bin: damaged")])
def test_damaged_weights_are_named(opened, serve, folder, tmp_path, size, name):
    shutil.copytree(folder, tmp_path / "page")
    weights = bytearray((folder / "en.bin").read_bytes())
    weights[5000] ^= 1
    (tmp_path / "page" / "en.bin").write_bytes(weights[:size])
    with serve(tmp_path / "page") as server, opened(f"{server.url}#beside=none") as page:
        page.select_option("#model", "en")
        wait(page, f"#status.bad:has-text('{name}')")
        page.select_option("#model", "en-small")
        wait(page, ".panel")


def test_an_old_browser_sees_a_sentence(browser, site):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(site.url)
    assert page.locator("#old").is_visible()
    assert "It needs JavaScript, a browser of 2024 or newer" in page.inner_text("#old")
    context.close()


def test_a_screen_reader_hears_the_tree(show):
    with show("#text=the+cat+sat&beside=none") as page:
        assert page.locator(".panel svg").get_attribute("aria-hidden") == "true"
        items = page.locator("#list > div > ul > li")
        assert items.count() == 1
        assert page.locator("#list li li").count() == 4
        assert page.locator("[aria-live=polite]").count() == 1
        unnamed = page.evaluate(
            """() => [...document.querySelectorAll("button, select, input, textarea")].filter((field) =>
              !field.hidden && !(field.textContent.trim() && field.matches("button")) && !field.labels?.length
              && !field.getAttribute("aria-label")).map((field) => field.id)"""
        )
        assert unnamed == []


def test_the_keyboard_reaches_everything(show):
    with show() as page:
        wait(page, ".panel:nth-child(2)")
        page.keyboard.press("Tab")
        reached = []
        for _ in range(45):
            reached.append(page.evaluate("() => document.activeElement.id || document.activeElement.className"))
            page.keyboard.press("Tab")
        expected = {"theme", "text", "model", "layer", "decoder", "lines", "heat", "beside", "scroll", "play", "time"}
        assert expected <= set(reached)


@pytest.mark.parametrize("width", [320, 390, 768, 1280, 1920])
def test_it_fits_every_screen(show, width):
    with show("#text=" + "+".join(["the old river"] * 9), viewport={"width": width, "height": 800}) as page:
        wait(page, ".panel:nth-child(2)")
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width
        assert page.locator("#examples button").first.bounding_box()["height"] >= 24


def test_right_to_left_light_dark_and_still(show):
    with show("#text=הילדה+קראה+ספר&beside=none", color_scheme="dark", reduced_motion="reduce") as page:
        places = [float(page.get_attribute(f"text[data-word='{i}']", "x")) for i in range(3)]
        assert places == sorted(places, reverse=True)
        assert page.get_attribute("#list", "dir") == "rtl"
        ground = "() => getComputedStyle(document.body).backgroundColor"
        assert page.evaluate(ground) == "rgb(15, 23, 42)"
        page.click("#theme")
        page.click("#theme")
        assert page.get_attribute("html", "data-theme") == "light"
        assert page.evaluate(ground) == "rgb(248, 250, 252)"
        page.locator("#time").fill("2")
        wait(page, ".unread")
        assert page.evaluate("() => document.getAnimations().length") == 0


def test_nothing_is_asked_of_anybody_else(browser, site):
    context = browser.new_context()
    page = context.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(site.url)
    wait(page, ".panel:nth-child(2)")
    assert len(asked) > 10
    assert [url for url in asked if not url.startswith(site.url)] == []
    context.close()
