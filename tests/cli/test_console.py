"""The progress display, where there is no terminal."""

import io
import time

from onlstm.cli import console, train
from onlstm.train.fit import Record


def lines_of(monkeypatch, times, updates, **options):
    clock = iter(times)
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    stream = io.StringIO()
    progress = console.Progress(stream=stream, **options)
    for update in updates:
        progress.update(*update)
    return stream.getvalue().splitlines()


def test_the_time_left_counts_from_the_first_update(monkeypatch):
    updates = [(done, 901) for done in (1, 31, 61, 101, 401)]
    times = [90.0, 100.0, 103.0, 106.0, 110.0, 140.0]  # the model may take long to load before the first
    assert lines_of(monkeypatch, times, updates, unit="prefixes") == [
        "61 of 901 prefixes (7 %), 10/s, 84 s left",
        "401 of 901 prefixes (45 %), 10/s, 50 s left",
    ]


def test_much_work_has_a_line_at_the_start_and_the_next_part_another(monkeypatch):
    updates = [(0, 20_000), (100, 20_000), (20_000, 20_000), (0, 90_000), (40, 90_000)]
    assert lines_of(monkeypatch, [0, 0, 5, 40, 41, 81], updates, unit="tokens") == [
        "0 of 20,000 tokens (0 %)",
        "20,000 of 20,000 tokens (100 %), 500/s, 0 s left",
        "0 of 90,000 tokens (0 %)",
        "40 of 90,000 tokens (0 %), 1.0/s, 25.0 h left",
    ]


def test_shares_have_a_note_and_the_time_left(monkeypatch):
    assert lines_of(monkeypatch, [0, 0, 6, 7], [(0.0,), (0.01, None, "epoch 1"), (0.02, None, "epoch 1")]) == [
        "1 %, epoch 1, 10 min left"
    ]


def test_work_that_reports_nothing_shows_that_it_goes_on(monkeypatch):
    monkeypatch.setattr(console, "_TICK", 0.01)
    monkeypatch.setattr(console, "_EVERY", 0.02)
    monkeypatch.setattr(console, "_FIRST", 0.02)
    stream = io.StringIO()
    with console.Progress("sentences", stream=stream) as progress:
        wait_for(lambda: "working, 0 s so far\n" in stream.getvalue())
        progress.update(3, 10)
        wait_for(lambda: "3 of 10 sentences (30 %)" in stream.getvalue())


def wait_for(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_an_interruption_says_where():
    stream = io.StringIO()
    progress = console.Progress("sentences", 5600, stream=stream)
    progress.update(132)
    progress.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert stream.getvalue().splitlines()[-1] == "Stopped at 132 of 5,600 sentences (2 %)"


def test_a_continued_epoch_has_the_speed_of_this_process_alone(monkeypatch):
    clock = iter([0.0, 100.0, 102.0, 200.0, 202.0])  # of the display once, then for each step before and in it
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(console.time, "perf_counter", lambda: next(clock))
    show = train.epochs_shown(console.Progress(stream=(stream := io.StringIO())))
    for words, done in ((500_000, 0.5), (501_000, 0.6)):  # half a million was read before the interruption
        numbers = {"words": words, "mean_loss": 0.0, "lr": 1.0, "done": done}
        show(Record(event="tick", epoch=3, step=40, numbers=numbers, seconds=60.0))
    assert stream.getvalue().splitlines() == [
        "60 %, epoch 3, loss 0.000, perplexity 1.0, 10 tokens/s, lr 1, 7 min left",
    ]
