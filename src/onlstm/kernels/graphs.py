"""The steps of a scan on a GPU: one after the other, or BLOCK of them replayed at once as a CUDA graph.

A graph holds the addresses of its tensors, so it has tensors of its own, and rows are copied in and out; that is a few
percent of the traffic. Blocks of a fixed number of steps serve windows of every length, both directions, and packed
sequences as long as no sequence ends. Only `triton` imports this.
"""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

BLOCK = 10
"""Steps of a graph."""
REPLAY_AFTER = 50
"""Blocks of the same shapes that run before they are recorded, which takes milliseconds and memory; inf: never."""

Tensors = Sequence[Tensor | None]
Step = Callable[[slice, Tensors, Tensors, Tensors, Tensor, int], None]
"""Takes the rows of a step, inputs and outputs (N, …), the state (B, D), w_hh and chunk_size."""

_lock = threading.Lock()
_sightings: Counter[Any] = Counter()


class _Recording(NamedTuple):
    """BLOCK steps on tensors of their own."""

    inputs: Tensors
    outputs: Tensors
    state: Tensors
    w_hh: Tensor
    replay: Callable[[], None]


@lru_cache(maxsize=32)
def _record(
    step: Step, rows: int, descending: bool, shapes: Any, chunk_size: int, dtype: Any, device: Any, stream: int
) -> _Recording:
    """Return BLOCK steps of `rows` rows as a CUDA graph; on a CPU (in tests) they are merely called again."""
    with torch.inference_mode(False):  # or training could not write to what an evaluation has recorded
        inputs, outputs, state, (w_hh,) = (
            [None if shape is None else torch.zeros(shape, dtype=dtype, device=device) for shape in group]
            for group in shapes
        )
    order = [slice(k * rows, (k + 1) * rows) for k in range(BLOCK)]

    def steps() -> None:
        for t in reversed(order) if descending else order:
            step(t, inputs, outputs, state, w_hh, chunk_size)

    if device.type != "cuda":
        return _Recording(inputs, outputs, state, w_hh, steps)
    steps()  # compiles and loads what must not be loaded while recording
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        steps()
    return _Recording(inputs, outputs, state, w_hh, graph.replay)


def _recording(step: Step, block: list[slice], groups: Sequence[Tensors], chunk_size: int) -> _Recording | None:
    """Return the recording of steps of these shapes, if they have come often enough; none inside another graph."""
    w_hh, rows = groups[-1][0], block[0].stop - block[0].start
    assert w_hh is not None
    if w_hh.is_cuda and torch.cuda.is_current_stream_capturing():
        return None
    lengths = BLOCK * rows, BLOCK * rows, rows, len(w_hh)
    shapes = tuple(
        tuple(None if x is None else (length, *x.shape[1:]) for x in group)
        for group, length in zip(groups, lengths, strict=True)
    )
    stream = torch.cuda.current_stream().cuda_stream if w_hh.is_cuda else 0
    key = step, rows, block[0].start > block[-1].start, shapes, chunk_size, w_hh.dtype, w_hh.device, stream
    _sightings[key] += 1
    return _record(*key) if _sightings[key] > REPLAY_AFTER else None


def _copy(targets: Tensors, sources: Tensors) -> None:
    """Copy in one launch."""
    pairs = [(to, x) for to, x in zip(targets, sources, strict=True) if to is not None and x is not None]
    torch._foreach_copy_([to for to, _ in pairs], [x for _, x in pairs])


def _rows(tensors: Tensors, t: slice) -> Tensors:
    return [None if x is None else x[t] for x in tensors]


def run(
    step: Step, order: list[slice], inputs: Tensors, outputs: Tensors, state: Tensors, w_hh: Tensor, chunk_size: int
) -> None:
    """Take the steps in their order, from recordings where BLOCK of them have as many rows."""
    known, k = None, 0
    with torch.cuda.device_of(w_hh), _lock:  # a recording has one set of tensors
        while k < len(order):
            block = order[k : k + BLOCK]
            rows = slice(block[0].stop - block[0].start)
            even = len(block) == BLOCK and block[-1].stop - block[-1].start == rows.stop
            recording = _recording(step, block, (inputs, outputs, state, (w_hh,)), chunk_size) if even else None
            if recording is not None:
                if recording is not known:
                    recording.w_hh.copy_(w_hh)
                    known = recording
                t = slice(min(block[0].start, block[-1].start), max(block[0].stop, block[-1].stop))
                _copy((*recording.inputs, *recording.state), (*_rows(inputs, t), *_rows(state, rows)))
                recording.replay()
                _copy((*_rows(outputs, t), *_rows(state, rows)), (*recording.outputs, *recording.state))
            else:
                block = block if even else block[:1]
                for t in block:
                    step(t, inputs, outputs, state, w_hh, chunk_size)
            k += len(block)
