"""Trials of learning rates: what an epoch takes, also if it was cut off, and what a time allows."""

import pytest

from onlstm.paper import trials
from onlstm.train.fit import Record


def clocked(shares, step=2.0, validation=7.0):
    """Return what the clock makes of an epoch of ten steps of which it sees the shares."""
    times = iter([*(step * k for k in range(len(shares))), step * (len(shares) - 1) + validation])
    clock = trials._Clock(now=lambda: next(times))
    for k, done in enumerate(shares, 1):
        clock(Record(event="tick", epoch=1, step=k, numbers={"done": done}, seconds=0.0))
    clock(Record(event="epoch", epoch=1, step=len(shares), numbers={}, seconds=0.0))
    return clock.seconds


@pytest.mark.parametrize("first", [1, 5, 9])
def test_an_epoch_that_was_cut_off_takes_as_long_as_a_whole_one(first):
    assert clocked([k / 10 for k in range(first, 11)]) == pytest.approx(10 * 2.0 + 7.0)
