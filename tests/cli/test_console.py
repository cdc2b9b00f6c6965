"""The progress display, where there is no terminal."""

import io

from onlstm.cli import console


def test_the_time_left_counts_from_the_first_update(monkeypatch):
    times = iter([100.0, 103.0, 106.0, 110.0, 140.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(times))
    stream = io.StringIO()
    progress = console.Progress("prefixes", stream=stream)  # the model may take long to load after this
    for done in (1, 31, 61, 101, 401):
        progress.update(done, 1001)
    assert stream.getvalue().splitlines() == [
        "61 of 1,001 prefixes, 10/s, 2 min left",
        "401 of 1,001 prefixes, 10/s, 1 min left",
    ]
