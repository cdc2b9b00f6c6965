"""The steps of a scan on a GPU: one after the other, or BLOCK of them replayed at once as a CUDA graph.

A graph holds the addresses of its tensors, so it has tensors of its own, and rows are copied in and out; that adds an
eighth to what the products read (docs/design.md). Blocks of a fixed number of steps serve windows of every length, both
directions, and packed sequences as long as no sequence ends. Only `triton` imports this.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

BLOCK = 10
"""Steps of a graph."""
REPLAY_AFTER = 50
"""Blocks of the same shapes that run before they are recorded, which takes milliseconds and memory; inf: never."""
_MOST = 32
"""Recordings that are kept."""


class Buffers(NamedTuple):
    """What a step reads and writes."""

    inputs: Sequence[Tensor | None]
    """(N, …), a row for each row of all steps."""
    outputs: Sequence[Tensor | None]
    """(N, …), too."""
    state: Sequence[Tensor | None]
    """(B, D), of which a step reads and replaces its first rows."""
    w_hh: Tensor
    narrow: bool = False
    """Whether the factors of products are rounded to bfloat16, as w_hh is already."""


class _Recording(NamedTuple):
    buffers: Buffers
    replay: Callable[[], None]


Step = Callable[[slice, Buffers, int], None]
"""Takes the rows of a step, the buffers and chunk_size."""

_lock = threading.Lock()
_sightings: Counter[Any] = Counter()
_recordings: dict[Any, _Recording] = {}


def run(step: Step, order: list[slice], buffers: Buffers, chunk_size: int) -> None:
    """Take the steps in their order, from recordings where there are any."""
    w_hh = buffers.w_hh
    loaded = None
    with torch.cuda.device_of(w_hh), _lock:  # a recording has one set of tensors
        for block in _blocks(order):
            recording = _recording(step, block, buffers, chunk_size) if len(block) > 1 else None
            if recording is None:
                for t in block:
                    step(t, buffers, chunk_size)
                continue
            own = recording.buffers
            if recording is not loaded:
                own.w_hh.copy_(w_hh)
                loaded = recording
            rows = slice(min(block[0].start, block[-1].start), max(block[0].stop, block[-1].stop))
            state = _rows(buffers.state, slice(_size(block[0])))
            _copy((*own.inputs, *own.state), (*_rows(buffers.inputs, rows), *state))
            recording.replay()
            _copy((*_rows(buffers.outputs, rows), *state), (*own.outputs, *own.state))


def _blocks(order: list[slice]) -> Iterator[list[slice]]:
    """Yield BLOCK steps with as many rows, or a single step."""
    k = 0
    while k < len(order):
        block = order[k : k + BLOCK]
        even = len(block) == BLOCK and _size(block[0]) == _size(block[-1])  # sizes only fall, or only rise
        yield block if even else block[:1]
        k += BLOCK if even else 1


def _recording(step: Step, block: list[slice], buffers: Buffers, chunk_size: int) -> _Recording | None:
    """Return the recording of steps of these shapes, if they have come often enough; none inside a caller's graph."""
    w_hh, rows, descending = buffers.w_hh, _size(block[0]), block[0].start > block[-1].start
    if w_hh.is_cuda and torch.cuda.is_current_stream_capturing():
        return None
    stream = torch.cuda.current_stream().cuda_stream if w_hh.is_cuda else 0
    missing = tuple(x is None for x in (*buffers.inputs, *buffers.outputs))
    key = (
        step,
        rows,
        descending,
        chunk_size,
        w_hh.shape,
        w_hh.dtype,
        w_hh.device,
        buffers.narrow,
        stream,
        missing,
        BLOCK,
    )
    _sightings[key] += 1
    if key not in _recordings and _sightings[key] > REPLAY_AFTER:
        if len(_recordings) == _MOST:
            del _recordings[next(iter(_recordings))]  # the oldest
        _recordings[key] = _record(step, buffers, rows, descending, chunk_size)
    return _recordings.get(key)


def _record(step: Step, buffers: Buffers, rows: int, descending: bool, chunk_size: int) -> _Recording:
    """Return BLOCK steps of `rows` rows as a CUDA graph; on a CPU (in tests) they are merely called again."""
    with torch.inference_mode(False):  # or nothing else could write to what inference has recorded
        inputs, outputs, state = (
            [None if x is None else x.new_zeros(length, *x.shape[1:]) for x in group]
            for group, length in zip(buffers[:3], (BLOCK * rows, BLOCK * rows, rows), strict=True)
        )
        own = Buffers(inputs, outputs, state, torch.zeros_like(buffers.w_hh), buffers.narrow)
    order = [slice(k * rows, (k + 1) * rows) for k in range(BLOCK)]

    def steps() -> None:
        for t in reversed(order) if descending else order:
            step(t, own, chunk_size)

    if not own.w_hh.is_cuda:
        return _Recording(own, steps)
    steps()  # compiles and loads what must not be loaded while recording
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        steps()
    return _Recording(own, graph.replay)


def _size(t: slice) -> int:
    return int(t.stop - t.start)


def _rows(tensors: Sequence[Tensor | None], t: slice) -> list[Tensor | None]:
    return [None if x is None else x[t] for x in tensors]


def _copy(targets: Sequence[Tensor | None], sources: Sequence[Tensor | None]) -> None:
    """Copy in one launch."""
    pairs = [(to, x) for to, x in zip(targets, sources, strict=True) if to is not None and x is not None]
    torch._foreach_copy_([to for to, _ in pairs], [x for _, x in pairs])
