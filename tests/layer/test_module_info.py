"""PyTorch's own samples for nn.LSTM and nn.LSTMCell (its ModuleInfo), run over ONLSTM and ONLSTMCell.

The checks are those of PyTorch's test/test_modules.py that a CPU can make. One difference is known and documented:
samples with a `proj_size`, half of those of nn.LSTM, are refused.
"""

import copy
import io
import warnings
from functools import cache

import pytest
import torch
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves, tree_map

from onlstm import ONLSTM, ONLSTMCell

pytest.importorskip("expecttest", reason="torch.testing._internal needs expecttest")
OURS = {"layer": (ONLSTM, torch.nn.LSTM), "cell": (ONLSTMCell, torch.nn.LSTMCell)}


@cache
def torchs_modules():
    """Return PyTorch's own module when a test needs it: its import takes seconds and sets Hypothesis's profile."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal import common_modules
    return common_modules


class Samples:
    """The samples of a class of torch's, with ours in its place."""

    def __init__(self, kind, backend, dtype, training):
        self.ours, theirs = OURS[kind]
        (self.info,) = [info for info in torchs_modules().module_db if info.module_cls is theirs]
        self.backend, self.dtype, self.training = backend, dtype, training

    def make(self, call, **more):
        return self.ours(*call.args, **call.kwargs, backend=self.backend, **more).train(self.training)

    def samples(self, requires_grad=False, device="cpu"):
        options = {"device": device, "dtype": self.dtype, "requires_grad": requires_grad, "training": self.training}
        samples = self.info.module_inputs_func(self.info, **options)
        return [sample for sample in samples if not sample.constructor_input.kwargs.get("proj_size")]

    def modules(self, requires_grad=False):
        """Yield a module, the arguments of its call and what the result should be, for each sample."""
        for sample in self.samples(requires_grad):
            module = self.make(sample.constructor_input).to(self.dtype)
            yield module, sample.forward_input.args, sample.reference_fn


@pytest.fixture(params=["layer", "cell"])
def kind(request):
    return request.param


@pytest.fixture(params=["fused", "eager"])
def backend(request):
    return request.param


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def dtype(request):
    return request.param


@pytest.fixture(params=[True, False], ids=["train", "eval"])
def training(request):
    return request.param


@pytest.fixture
def torchs(kind, backend, dtype, training):
    return Samples(kind, backend, dtype, training)


@pytest.fixture
def doubles(kind, backend, training):
    return Samples(kind, backend, torch.float64, training)


def leaf(tensor, requires_grad):
    return tensor.detach().requires_grad_(requires_grad)


def strided(tensor):
    """The same values, every second one in memory."""
    return leaf(tensor.detach().repeat_interleave(2, -1)[..., ::2], tensor.requires_grad)


def derivatives(module, args, d_outputs=None):
    """Return the outputs, the gradients of arguments and parameters, and the outputs' gradients that made them."""
    outputs = tree_leaves(module(*args))
    d_outputs = d_outputs or [torch.randn_like(output) for output in outputs]
    inputs = [*tree_leaves(args), *module.parameters()]
    return outputs, torch.autograd.grad(outputs, inputs, d_outputs), d_outputs


def test_forward(torchs):
    for module, args, reference in torchs.modules():
        assert_close(module(*args), reference(module, *args))
        cast = module.float() if torchs.dtype == torch.float32 else module.double()
        cast(*args)
        assert {p.dtype for p in cast.parameters()} == {torchs.dtype}


def test_factory_arguments(torchs):
    for sample in torchs.samples():
        module = torchs.make(sample.constructor_input, device="meta", dtype=torchs.dtype)
        assert {(p.device.type, p.dtype) for p in module.parameters()} == {("meta", torchs.dtype)}


def test_repr(torchs):
    for module, *_ in torchs.modules():
        assert f"chunk_size={module.chunk_size}" in repr(module)


@pytest.mark.parametrize("weights_only", [True, False])
def test_pickle(torchs, weights_only):
    for module, args, _ in torchs.modules():
        file = io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        assert_close(torch.load(file, weights_only=weights_only)(*args), module(*args))


def test_non_contiguous_tensors(torchs):
    for module, args, _ in torchs.modules(requires_grad=True):
        expected, gradients, d_outputs = derivatives(module, args)
        for inputs in (args, tree_map(strided, args)):
            for d in (d_outputs, [strided(tensor) for tensor in d_outputs]):
                outputs, d_inputs, _ = derivatives(module, inputs, d)
                assert_close(outputs, expected)
                assert_close(d_inputs, gradients, atol=1e-4, rtol=0)


def test_memory_format(torchs):
    for module, args, _ in torchs.modules(requires_grad=True):
        expected, gradients, d_outputs = derivatives(module, args)
        for memory_format in (torch.preserve_format, torch.contiguous_format):
            outputs, d_inputs, _ = derivatives(module.to(memory_format=memory_format), args, d_outputs)
            assert_close([outputs, d_inputs], [expected, gradients])
            assert all(tensor.is_contiguous() for tensor in (*outputs, *d_inputs))


def gradient_function(module, args):
    """Return a function of tensors, and the tensors: all of the call's and the module's."""
    inputs, names = tree_leaves(args), [name for name, _ in module.named_parameters()]

    def function(*tensors):
        given = iter(tensors)
        call = tree_map(lambda _: next(given), args)
        return tuple(tree_leaves(torch.func.functional_call(module, dict(zip(names, given, strict=True)), call)))

    return function, (*inputs, *module.parameters())


def test_gradients(doubles):
    for module, args, _ in doubles.modules(requires_grad=True):
        assert torch.autograd.gradcheck(*gradient_function(module, args), fast_mode=True)
        _, gradients, d_outputs = derivatives(module, args)
        for alone, expected in zip(module.parameters(), gradients[len(tree_leaves(args)) :], strict=True):
            module.requires_grad_(False)
            alone.requires_grad_()
            outputs = tree_leaves(module(*tree_map(torch.Tensor.detach, args)))
            assert_close(torch.autograd.grad(outputs, alone, d_outputs)[0], expected)


@pytest.mark.slow
def test_second_gradients(doubles):
    for module, args, _ in doubles.modules(requires_grad=True):
        assert torch.autograd.gradgradcheck(*gradient_function(module, args), fast_mode=True)


def test_the_cell_is_the_same_in_training(backend, dtype):
    torchs = Samples("cell", backend, dtype, training=True)
    assert not torchs.info.train_and_eval_differ
    for module, args, _ in torchs.modules():
        expected = module(*args)
        del module.training
        assert_close(module(*args), expected)


def test_device_context(torchs):
    for sample in torchs.samples():
        here = torchs.make(sample.constructor_input)
        with torch.device("meta"):
            there = torchs.make(sample.constructor_input)
        for p, q in zip(there.parameters(), here.parameters(), strict=True):
            assert p.is_meta
            assert (p.shape, p.dtype, p.stride(), p.requires_grad) == (q.shape, q.dtype, q.stride(), q.requires_grad)


def test_errors(torchs):
    options = {"device": "cpu", "dtype": torchs.dtype, "requires_grad": False, "training": torchs.training}
    for error in torchs.info.module_error_inputs_func(torchs.info, **options):
        sample = error.module_error_input
        if error.error_on == torchs_modules().ModuleErrorEnum.CONSTRUCTION_ERROR:
            with pytest.raises(error.error_type, match=error.error_regex):
                torchs.make(sample.constructor_input)
        else:
            module = torchs.make(sample.constructor_input)
            with pytest.raises(error.error_type, match=error.error_regex):
                module(*sample.forward_input.args, **sample.forward_input.kwargs)


@pytest.mark.parametrize("swap", [True, False])
def test_to(torchs, swap):
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(swap)
    try:
        for module, args, _ in torchs.modules():
            module(*args)
            parameters = list(module.parameters())
            module.to(torch.float16)
            assert {p.dtype for p in module.parameters()} == {torch.float16}
            assert all((p is q) for p, q in zip(module.parameters(), parameters, strict=True))
            module.to(torchs.dtype)(*args)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


def test_to_empty(torchs):
    for sample in torchs.samples():
        module = torchs.make(sample.constructor_input, device="meta", dtype=torchs.dtype)
        module.to_empty(device="cpu").reset_parameters()
        assert all(output.isfinite().all() for output in tree_leaves(module(*sample.forward_input.args)))


def test_save_load_state_dict(torchs):
    for module, args, _ in torchs.modules():
        twin = copy.deepcopy(module)
        twin.reset_parameters()
        twin.load_state_dict(module.state_dict())
        assert_close(twin(*args), module(*args))


def test_a_projection_is_the_one_difference(backend, dtype, training):
    torchs = Samples("layer", backend, dtype, training)
    options = {"device": "cpu", "dtype": dtype, "requires_grad": False, "training": training}
    samples = torchs.info.module_inputs_func(torchs.info, **options)
    projected = [sample.constructor_input for sample in samples if sample.constructor_input.kwargs["proj_size"]]
    assert len(projected) == len(samples) // 2
    for call in projected:
        with pytest.raises(ValueError, match="ONLSTM has no proj_size"):
            torchs.make(call)
