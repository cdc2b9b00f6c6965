"""Triton's kernel: what `test_scan` does not ask of it. Compiled for GPUs that are not here; on one, if it is.

Registers and spills are those that the vendors' own assemblers report.
"""

import subprocess
from importlib import import_module

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence
from torch.testing import assert_close

from kernel_inputs import INTERPRETED, inputs, interpreted, needs_triton, triton_on_cpu
from onlstm import ONLSTM
from onlstm.kernels import graphs, ops, reference

pytestmark = needs_triton
compiled = pytest.mark.skipif(INTERPRETED, reason="an interpreted kernel is not compiled")
TARGETS = {
    "sm_80": ("cuda", 80, 32),
    "sm_90": ("cuda", 90, 32),
    "sm_100": ("cuda", 100, 32),
    "gfx942": ("hip", "gfx942", 64),
}


def test_gpus_get_it():
    assert torch._C._dispatch_has_kernel_for_dispatch_key("onlstm::scan", "CUDA")
    assert torch._C._dispatch_has_kernel_for_dispatch_key("onlstm::scan_backward", "CUDA")
    assert ops.gpu_kernel() is import_module("onlstm.kernels.triton")


@interpreted
@pytest.mark.parametrize("sizes", [None, [4, 2, 1]])
def test_the_dispatchers_rules_are_kept(sizes):
    args = [x.requires_grad_() for x in inputs(3, 4, 12, 3, sizes=sizes)]
    with triton_on_cpu():
        options = torch.tensor(sizes) if sizes else None, 3, bool(sizes), True, True
        torch.library.opcheck(torch.ops.onlstm.scan, (*args, *options))
        transposed = [x.detach().mT.contiguous().mT.requires_grad_() if x.dim() == 2 else x for x in args]
        torch.library.opcheck(torch.ops.onlstm.scan, (*transposed, *options))


@interpreted
def test_a_layer_with_everything(monkeypatch):
    """Packed, two layers, two directions, drop-connect, a free last chunk; first evaluated, then trained."""
    monkeypatch.setattr(graphs, "BLOCK", 2)
    monkeypatch.setattr(graphs, "REPLAY_AFTER", 0)
    draw = torch.Generator().manual_seed(0)
    options = {"chunk_size": 3, "weight_dropout": 0.4, "free_last_chunk": True, "dtype": torch.float64}
    fused, eager = (ONLSTM(5, 12, 2, bidirectional=True, backend=backend, **options) for backend in ("fused", "eager"))
    eager.load_state_dict(fused.state_dict())
    x = pack_sequence([torch.randn(length, 5, generator=draw, dtype=torch.float64) for length in (6, 6, 3, 1)])
    masks = [torch.rand(w.shape, generator=draw) > 0.4 for name, w in fused.named_parameters() if "weight_hh" in name]

    def results(layer):
        with torch.inference_mode():
            layer.eval()(x)
        with torch.no_grad():
            evaluated = layer(x)[0].data
        trained = layer.train().scan(x, weight_mask=masks)
        (trained.output.data.square().sum() + trained.distances.forget.sum()).backward()
        return evaluated, trained.output.data, *trained.state, *(p.grad for p in layer.parameters())

    with triton_on_cpu():
        got = results(fused)
    assert_close(got, results(eager), atol=1e-12, rtol=0)


@interpreted
@pytest.mark.parametrize("sizes", [None, [20, 20, 3]], ids=["dense", "packed"])
def test_inference_is_what_training_computes(sizes):
    triton = import_module("onlstm.kernels.triton")
    args = *inputs(3, 20, 24, 4, sizes=sizes), sizes and torch.tensor(sizes), 4, bool(sizes)
    saved, lean = triton.forward(*args, True, True), triton.forward(*args, False, False)
    assert_close(lean[:5], saved[:5], atol=1e-13, rtol=0)
    assert [tuple(x.shape) for x in lean[5:]] == [(0, 108), (0, 24)]


@interpreted
@pytest.mark.parametrize("replay_after", [0, 50])
def test_factors_are_rounded_as_the_reference_rounds_them(replay_after, monkeypatch):
    monkeypatch.setattr(graphs, "REPLAY_AFTER", replay_after)
    triton = import_module("onlstm.kernels.triton")
    x, w_ih, w_hh, _, h0, c0 = args = inputs(25, 3, 20, 5)
    forwards = [kernel.forward(*args, None, 5, False, True, True, narrow=True) for kernel in (triton, reference)]
    assert_close(*forwards, atol=1e-11, rtol=0)
    h, *_, gates, c_prev = forwards[1]
    draw = torch.Generator().manual_seed(1)
    d = [torch.randn(y.shape, generator=draw, dtype=y.dtype) for y in forwards[1][:5]]
    saved = x, w_ih, w_hh, h0, c0, h, gates, c_prev, None, 5, False, True, True
    backwards = [kernel.backward(*d, *saved, narrow=True) for kernel in (triton, reference)]
    assert_close(*backwards, atol=1e-11, rtol=0)
    assert (reference.backward(*d, *saved)[1] - backwards[1][1]).abs().max() > 1e-3


# -------------------------------------------------------------------------------------------- ahead of time, for GPUs


def compile_kernel(name, D, target, *, chunk=10, missing=(), dtype="*fp32", free=False):
    """Return Triton's binary, compiled with what a launch passes."""
    triton = import_module("triton")
    kernels = import_module("onlstm.kernels.triton")
    GPUTarget = import_module("triton.backends.compiler").GPUTarget
    constants = kernels.launch_options(2 * (D // chunk + free) + 4 * D, D, chunk)
    warps = constants.pop("num_warps")
    constants |= dict.fromkeys(missing)
    kernel = getattr(kernels, name)
    types = {"first": "i32", "rows": "i32"} | dict.fromkeys(constants, "constexpr")
    signature = {argument: types.get(argument, dtype) for argument in kernel.arg_names}
    aligned = {(k,): [["tt.divisibility", 16]] for k, kind in enumerate(signature.values()) if kind == dtype}
    source = triton.compiler.ASTSource(kernel, signature, constants, aligned)
    return triton.compile(source, target=GPUTarget(*TARGETS[target]), options={"num_warps": warps})


def usage(binary, path):
    """Return registers of a thread and bytes of memory that spilled ones take."""
    if "amdgcn" in binary.asm:
        rows = dict(line.strip().split(":", 1) for line in binary.asm["amdgcn"].splitlines() if "_count:" in line)
        spilled = sum(int(count) for name, count in rows.items() if "spill" in name)
        return int(rows[".vgpr_count"]), spilled + int(binary.asm["amdgcn"].split("; ScratchSize: ")[1].split()[0])
    path.write_bytes(binary.asm["cubin"])
    tool = import_module("triton").knobs.nvidia.cuobjdump.path
    lines = subprocess.run([tool, "-res-usage", path], capture_output=True, text=True, check=True).stdout.split()
    counts = dict(word.split(":") for word in lines if word.count(":") == 1 and word[-1].isdigit())
    return int(counts["REG"]), int(counts["STACK"]) + int(counts["LOCAL"])


@compiled
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("D", [400, 650, 1150])
@pytest.mark.parametrize("name", ["forward_kernel", "backward_kernel"])
def test_compiled_for_the_recipes_no_register_spills(name, D, target, tmp_path):
    registers, spilled = usage(compile_kernel(name, D, target), tmp_path / "cubin")
    assert spilled == 0
    assert 32 <= registers <= 168


@compiled
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("forward_kernel", {"missing": ("gates", "c_prev")}),
        ("backward_kernel", {"missing": ("d_df", "d_di")}),
        ("backward_kernel", {"missing": ("d_h",), "free": True}),
        ("forward_kernel", {"dtype": "*fp64", "chunk": 1}),
        ("backward_kernel", {"dtype": "*fp64", "chunk": 200}),
    ],
    ids=str,
)
def test_every_variant_compiles(name, options):
    assert compile_kernel(name, 400, "sm_90", **options).asm["cubin"]


# ------------------------------------------------------------------------------------------------------ with a GPU


def milliseconds(call, repeats=20):
    """Median time of a call on the device."""
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times)[repeats // 2]


@pytest.mark.gpu
def test_steps_become_cuda_graphs(monkeypatch):
    monkeypatch.setattr(graphs, "REPLAY_AFTER", 0)
    layer, x = ONLSTM(24, 48, chunk_size=4, device="cuda"), torch.randn(33, 5, 24, device="cuda")
    layer(x)[0].sum().backward()
    with torch.profiler.profile() as profile:
        layer(x)[0].sum().backward()
    assert sum("cudaGraphLaunch" in event.name or "hipGraphLaunch" in event.name for event in profile.events()) == 6


@pytest.mark.gpu
def test_inside_a_graph_of_the_callers():
    layer, x = ONLSTM(24, 48, chunk_size=4, device="cuda"), torch.randn(33, 5, 24, device="cuda")
    with torch.no_grad():
        expected = layer(x)[0]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = layer(x)[0]
        got.zero_()
        graph.replay()
    assert_close(got, expected)


@pytest.mark.gpu
def test_it_is_much_faster_than_a_loop_of_equations(capsys):
    """One layer of the paper's, training: at least four times as fast; beside it cuDNN's LSTM."""
    x = torch.randn(70, 20, 1150, device="cuda")
    layers = {backend: ONLSTM(1150, 1150, device="cuda", backend=backend) for backend in ("fused", "eager")}
    layers["nn.LSTM"] = torch.nn.LSTM(1150, 1150, device="cuda")
    times = {}
    for name, layer in layers.items():

        def step(layer=layer):
            layer(x)[0].sum().backward()

        milliseconds(step)
        times[name] = milliseconds(step)
    with capsys.disabled():
        print("\n" + ", ".join(f"{name} {time:.2f} ms" for name, time in times.items()))  # noqa: T201
    assert times["eager"] / times["fused"] > 4
