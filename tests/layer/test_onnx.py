"""torch.onnx.export of the layer: the numbers of PyTorch for any length and batch, in ONNX Runtime."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence
from torch.testing import assert_close

from onlstm import ONLSTM, ONLSTMCell
from small_layers import both

onnx, _, onnxruntime = (
    pytest.importorskip(name, reason=f"ONNX export is tested where {name} is installed")
    for name in ("onnx", "onnxscript", "onnxruntime")
)
pytestmark = pytest.mark.filterwarnings("ignore")


def exported(module, args, path, **options):
    """Return a function that runs the exported module, and the names of its operators."""
    torch.onnx.export(module, args, path, dynamo=True, verbose=False, **options)
    session = onnxruntime.InferenceSession(path)
    names = [value.name for value in session.get_inputs()]
    operators = {node.op_type for node in onnx.load(path).graph.node}
    return lambda *tensors: session.run(None, {n: t.numpy() for n, t in zip(names, tensors, strict=True)}), operators


@both
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}], ids=str)
def test_any_length_and_batch(backend, options, tmp_path):
    ours = ONLSTM(5, 12, chunk_size=3, backend=backend, **options).eval()
    free = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    run, operators = exported(ours, (torch.randn(3, 2, 5),), tmp_path / "layer.onnx", dynamic_shapes=(free,))
    assert "Scan" in operators
    for shape in ((3, 2, 5), (9, 4, 5), (1, 3, 5)):
        x = torch.randn(shape)
        output, (h_n, c_n) = ours(x)
        got = [torch.from_numpy(array) for array in run(x)]
        assert_close(got, [output.detach(), h_n.detach(), c_n.detach()], atol=1e-6, rtol=0)


class Stateful(nn.Module):
    """A step of a stream: words and state in, distances and state out."""

    def __init__(self):
        super().__init__()
        self.layer = ONLSTM(5, 12, chunk_size=3)

    def forward(self, x, h, c):
        scanned = self.layer.scan(x, (h, c))
        return scanned.distances.forget, *scanned.state


def test_states_and_distances(tmp_path):
    ours, state = Stateful().eval(), (torch.randn(1, 2, 12), torch.randn(1, 2, 12))
    x = torch.randn(4, 2, 5)
    run, _ = exported(ours, (x, *state), tmp_path / "stream.onnx")
    got = [torch.from_numpy(array) for array in run(x, *state)]
    assert_close(got, [tensor.detach() for tensor in ours(x, *state)], atol=1e-6, rtol=0)


def test_an_exported_program_and_the_cell(tmp_path):
    ours, x = ONLSTMCell(5, 12).eval(), torch.randn(3, 5)
    run, _ = exported(torch.export.export(ours, (x,)), (), tmp_path / "cell.onnx")
    assert_close([torch.from_numpy(array) for array in run(x)], [s.detach() for s in ours(x)], atol=1e-6, rtol=0)


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = ONLSTM(5, 12)

    def forward(self, data, batch_sizes, order):
        return self.layer(PackedSequence(data, batch_sizes, order, order))[0].data


def test_packed_sequences_are_refused():
    args = torch.randn(5, 5), torch.tensor([2, 2, 1]), torch.tensor([0, 1])
    with pytest.raises(torch.onnx.OnnxExporterError) as caught:
        torch.onnx.export(Packed().eval(), args, dynamo=True, verbose=False)
    assert "ONNX has no packed sequences" in str(caught.value)
