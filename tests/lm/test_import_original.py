"""The original's checkpoints: read in both formats with its classes absent, and nothing in a pickle ever runs."""

import argparse
import builtins
import copyreg
import functools
import importlib
import io
import operator
import os
import pickle
import re
import struct
import subprocess
import sys
import tarfile
import tracemalloc
import types
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from onlstm.errors import UserError
from onlstm.lm.import_original import read_checkpoint
from onlstm.lm.model import LanguageModel

# Stand-ins with the names and attributes of the original's classes, and none of its code.
SOURCES = {
    "locked_dropout": """
from torch import nn
class LockedDropout(nn.Module):
    pass
""",
    "ON_LSTM": """
from torch import nn
from locked_dropout import LockedDropout
class LinearDropConnect(nn.Linear):
    def __init__(self, size, rows, dropout):
        super().__init__(size, rows)
        self.dropout = dropout
        self._weight = self.weight * 2 if dropout else self.weight  # what the last training step leaves behind
class ONLSTMCell(nn.Module):
    def __init__(self, before, size, chunk, dropconnect):
        super().__init__()
        rows = 4 * size + 2 * (size // chunk)
        self.ih, self.hh = nn.Sequential(nn.Linear(before, rows)), LinearDropConnect(size, rows, dropconnect)
        self.drop_weight_modules = [self.hh]
class ONLSTMStack(nn.Module):
    def __init__(self, sizes, chunk, dropout, dropconnect):
        super().__init__()
        self.cells = nn.ModuleList(ONLSTMCell(a, b, chunk, dropconnect) for a, b in zip(sizes, sizes[1:]))
        self.lockdrop, self.dropout, self.sizes = LockedDropout(), dropout, sizes
""",
    "model": """
from torch import nn
from locked_dropout import LockedDropout
from ON_LSTM import ONLSTMStack
class RNNModel(nn.Module):
    def __init__(self, sizes=(6, 12, 6), chunk=3, wdrop=0.45, tied=True):
        super().__init__()
        self.lockdrop, self.idrop = LockedDropout(), nn.Dropout(0.5)
        self.encoder, self.decoder = nn.Embedding(11, sizes[0]), nn.Linear(sizes[-1], 11)
        self.rnn = ONLSTMStack(list(sizes), chunk, 0.25, wdrop)
        if tied:
            self.decoder.weight = self.encoder.weight
        self.ninp, self.nlayers, self.tie_weights = sizes[0], len(sizes) - 1, tied
        self.dropout, self.dropouti, self.dropouth, self.dropoute = 0.4, 0.5, 0.3, 0.1
""",
    "splitcross": """
from collections import defaultdict
from torch import nn
class SplitCrossEntropyLoss(nn.Module):
    def __init__(self, splits):
        super().__init__()
        self.nsplits, self.stats = len(splits) + 1, defaultdict(list)
""",
}
MAGIC = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": sys.byteorder == "little"}]
zip_or_not = pytest.mark.parametrize("zipped", [False, True], ids=["legacy", "zip"])


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """`original(name)` imports a stand-in; `original.hide()` removes them all, as they are when a user converts."""
    folder = tmp_path_factory.mktemp("original")
    for name, source in SOURCES.items():
        (folder / f"{name}.py").write_text(source)

    def load(name):
        sys.path.insert(0, str(folder))
        try:
            return importlib.import_module(name)
        finally:
            sys.path.remove(str(folder))

    def hide():
        for name in SOURCES:
            sys.modules.pop(name, None)

    load.hide = hide
    yield load
    hide()


def ours(name):
    """Return our name of a weight, given the original's."""
    name = name.replace("encoder.", "embedding.").replace("rnn.cells.", "layers.").replace(".ih.0.", ".ih.")
    return re.sub(r"([ih]h)\.(\w+)$", r"\2_\1_l0", name)


def save(value, path, zipped, **options):
    torch.save(value, path, _use_new_zipfile_serialization=zipped, **options)
    return path


@pytest.fixture
def checkpoint(original, tmp_path):
    """Save what the original would and return the file and the weights; `change` may alter the model first."""

    def make(zipped=False, change=lambda model: None, splits=(), dtype=torch.float32, asgd=True, only=None, **options):
        torch.manual_seed(0)
        model = original("model").RNNModel(**options).to(dtype)
        optimizer = (torch.optim.ASGD if asgd else torch.optim.SGD)(model.parameters(), lr=0.1)
        sum(p.sum() for p in model.parameters()).backward()
        optimizer.step()
        change(model)
        model.distance = torch.zeros(2, 3), torch.zeros(2, 3)
        value = (
            [model, original("splitcross").SplitCrossEntropyLoss(splits), optimizer] if only is None else only(model)
        )
        path = save(value, tmp_path / "OLD.pt", zipped)
        original.hide()
        weights = {ours(k): v.detach().clone() for k, v in model.state_dict().items() if not k.endswith("._weight")}
        return path, weights

    return make


def refusal(path):
    """Return the one line that says why a file is refused, without the file's name."""
    with pytest.raises(UserError) as caught:
        read_checkpoint(path)
    line = str(caught.value)
    assert line.startswith(f"{path}: ")
    assert line.isprintable()
    return line.removeprefix(f"{path}: ")


@zip_or_not
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("tied", [True, False])
def test_reads_what_the_original_saves(checkpoint, zipped, dtype, tied):
    path, weights = checkpoint(zipped, dtype=dtype, tied=tied, asgd=tied)
    config, state = read_checkpoint(path)
    assert not set(SOURCES) & set(sys.modules)
    assert {name: tensor.shape for name, tensor in LanguageModel(config).state_dict().items()} == {
        name: tensor.shape for name, tensor in weights.items()
    }
    for name, weight in weights.items():
        assert state[name].dtype == dtype
        assert torch.equal(state[name], weight), name
    assert (config.embedding_size, config.sizes, config.chunk_size, config.tied) == (6, (12, 6), 3, tied)
    assert (config.rnn, config.vocab_size, config.weight_dropout_scale) == ("onlstm", 11, "original")
    rates = config.dropout_embedding, config.dropout_input, config.dropout_hidden, config.dropout_output
    assert (*rates, config.weight_dropout) == (0.1, 0.5, 0.25, 0.4, 0.45)  # 0.25: what the stack applies


@zip_or_not
@pytest.mark.parametrize(
    "wrap", [lambda s: s, lambda s: {"epoch": 3, "state_dict": s}, dict], ids=["bare", "in", "dict"]
)
def test_a_state_dict_needs_the_weight_dropout(checkpoint, zipped, wrap):
    path, weights = checkpoint(zipped, wdrop=0.0, only=lambda model: wrap(model.state_dict()))
    config, state = read_checkpoint(path, 0.4)
    assert all(torch.equal(state[name], weight) for name, weight in weights.items())
    assert config.tied
    assert (config.weight_dropout, config.dropout_input) == (0.4, 0.0)
    assert refusal(path).startswith("is a state dict, which does not say the weight dropout")


def test_reads_other_protocols_and_a_model_alone(checkpoint, original, tmp_path):
    for protocol in (2, 3, 4, 5):
        for zipped in (True, False):
            model = original("model").RNNModel()
            path = save(model, tmp_path / "OLD.pt", zipped, pickle_protocol=protocol)
            original.hide()
            assert torch.equal(read_checkpoint(path)[1]["decoder.bias"], model.decoder.bias)


def test_reads_weights_saved_on_a_gpu(checkpoint):
    path, weights = checkpoint()
    data = path.read_bytes()
    cpu, cuda = (b"X" + struct.pack("<I", len(name)) + name for name in (b"cpu", b"cuda:0"))
    assert cpu in data
    path.write_bytes(data.replace(cpu, cuda))
    assert torch.equal(read_checkpoint(path)[1]["embedding.weight"], weights["embedding.weight"])


def test_reads_the_backend_that_modules_had_in_torch_1_0(checkpoint, monkeypatch):
    def _get_thnn_function_backend():
        raise AssertionError("called")

    class Backend:
        def __reduce__(self):
            return _get_thnn_function_backend, ()

    old = types.ModuleType("torch.nn.backends.thnn")
    old._get_thnn_function_backend = _get_thnn_function_backend
    _get_thnn_function_backend.__module__ = old.__name__
    _get_thnn_function_backend.__qualname__ = _get_thnn_function_backend.__name__
    monkeypatch.setitem(sys.modules, old.__name__, old)
    path, weights = checkpoint(change=lambda model: setattr(model.encoder, "_backend", Backend()))
    assert torch.equal(read_checkpoint(path)[1]["embedding.weight"], weights["embedding.weight"])


def test_reads_views_of_a_larger_storage(checkpoint):
    def view(model):
        model.encoder.weight.data = torch.randn(6, 30).t()[7:29:2]

    path, weights = checkpoint(change=view)
    assert torch.equal(read_checkpoint(path)[1]["embedding.weight"], weights["embedding.weight"])


# What must not run. Each is tried as a bare pickle and as the object of either format.


def reduced(function, *args):
    return type("Hostile", (), {"__reduce__": lambda self: (function, args)})()


def hostile_pickles(marker):
    """Return pickles that would make the file `marker`, or prepare to, and the name that each is refused for."""
    code = f"open({str(marker)!r}, 'w').close()"
    make = f"touch '{marker}'"
    cases = {
        "posix.system": reduced(os.system, make),
        "builtins.eval": reduced(builtins.eval, code),
        "builtins.exec": reduced(builtins.exec, code),
        "builtins.getattr": reduced(getattr, "", "join"),
        "builtins.__import__": reduced(__import__, "this_module_is_not_there"),
        "subprocess.Popen": reduced(subprocess.Popen, ["touch", str(marker)]),
        "torch.serialization.load": reduced(torch.load, str(marker)),
        "_pickle.loads": reduced(pickle.loads, pickle.dumps(reduced(os.system, make))),
        "copyreg.add_extension": reduced(copyreg.add_extension, "os", "system", 240),
        "functools.partial": functools.partial(os.system, make),
        "operator.attrgetter": operator.attrgetter("__class__.__base__"),
        "model.RNNModel.__init__": b"\x80\x04\x8c\x05model\x8c\x11RNNModel.__init__\x93.",
        "torch.nn.modules.os.system": b"ctorch.nn.modules\nos.system\n.",
        "__builtin__.eval": b"c__builtin__\neval\n.",
        "copy_reg._reconstructor": b"ccopy_reg\n_reconstructor\n.",
        "torch.hub.load": reduced(torch.hub.load, "a", "b"),
        "pathlib.Path.touch": reduced(Path.touch, "no path"),
        "torch._utils._rebuild_wrapper_subclass": b"ctorch._utils\n_rebuild_wrapper_subclass\n.",
    }
    for name, value in cases.items():
        for protocol in (2, 4) if name != "pathlib.Path.touch" else (4,):
            yield name, value if isinstance(value, bytes) else pickle.dumps(value, protocol, fix_imports=False)


def legacy_file(data, tail=b"]."):
    return b"".join(pickle.dumps(part, 2) for part in MAGIC) + data + tail


def zip_file(data, compression=zipfile.ZIP_STORED, byteorder=sys.byteorder, storage=b""):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        archive.writestr("archive/data.pkl", data)
        archive.writestr("archive/byteorder", byteorder)
        archive.writestr("archive/data/0", storage)
        archive.writestr("archive/version", "3\n")
    return stream.getvalue()


def test_nothing_in_a_hostile_pickle_runs(tmp_path):
    marker, path = tmp_path / "ran", tmp_path / "OLD.pt"
    for name, data in hostile_pickles(marker):
        for wrap in (bytes, legacy_file, zip_file):
            path.write_bytes(wrap(data))
            refused = f"refuses to load {name}: not part of an ON-LSTM checkpoint"
            assert refusal(path) == (refused if wrap is not bytes else "is not a file that torch.save wrote")
            assert not marker.exists()
    assert 240 not in copyreg._inverted_registry


def test_the_hostile_pickles_would_run(tmp_path):
    marker = tmp_path / "ran"
    for name, data in hostile_pickles(marker):
        if name in ("posix.system", "builtins.eval", "builtins.exec", "_pickle.loads"):
            pickle.loads(data)
            assert marker.exists(), name
            marker.unlink()


NO_MODEL = "holds no model or state dict of the original ON-LSTM code"
MODEL = b"\x80\x02cmodel\nRNNModel\n"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (MODEL + b"X\x01\0\0\0a\x85R.", NO_MODEL),
        (MODEL + b"X\x01\0\0\0a\x85\x81.", NO_MODEL),
        (b"\x80\x02(imodel\nRNNModel\n.", "refuses the pickle opcode INST"),
        (b"\x80\x02(cmodel\nRNNModel\no.", "refuses the pickle opcode OBJ"),
        (b"\x80\x02\x82\xf1.", "refuses the pickle opcode EXT1"),
        (b"\x80\x02Phello\n.", "refuses the pickle opcode PERSID"),
        (MODEL + b"}X\x04\0\0\0nameX\x04\0\0\0evilsb.", "is cut short or damaged"),  # BUILD on a class
        (MODEL + b"N}X\x0c\0\0\0__setstate__X\x04\0\0\0evils\x86b.", "is cut short or damaged"),
        (MODEL + b"X\x05\0\0\0hellob.", "is cut short or damaged"),
        (b"\x80\x02X\x05\0\0\0helloQ.", "is cut short or damaged"),  # persistent ids
        (b"\x80\x02(X\x07\0\0\0storageK\x01tQ.", "is cut short or damaged"),
        (b"\x80\x02(X\x06\0\0\0moduleK\x01tQ.", NO_MODEL),
        (b"\x80\x02Nr\xff\xff\xff\x7f.", "is cut short or damaged"),  # a memo of gigabytes
        (b"\x80\x02" + b"N0" * 100_000 + b"N.", "refuses the pickle opcode POP"),
        (b"\x80\x02(" + b"N" * 100_000 + b"t.", "is cut short or damaged"),
        (b"\x80\x02})" + b"\x85" * 40_000 + b"Ns.", NO_MODEL),  # a key that is deep to hash
    ],
)
def test_ways_round_the_name_check_are_shut(tmp_path, data, says):
    copyreg.add_extension("os", "system", 0xF1)
    try:
        pickle.loads(b"\x80\x02\x82\xf1.")  # from now on no unpickler asks find_class for it
        for wrap in (legacy_file, zip_file):
            path = tmp_path / "OLD.pt"
            path.write_bytes(wrap(data))
            tracemalloc.start()
            try:
                assert refusal(path).startswith(says)
                assert tracemalloc.get_traced_memory()[1] < 2e7
            finally:
                tracemalloc.stop()
    finally:
        copyreg.remove_extension("os", "system", 0xF1)
        copyreg.clear_extension_cache()


@pytest.mark.parametrize("numel", [8, 10**13])
@pytest.mark.parametrize(
    ("offset", "size", "stride"),
    [
        *[(0, (11, 6), (6, 1)), (0, (2, 2), (-1, 1)), (-1, (2, 2), (2, 1)), (7, (2, 1), (1, 1)), (0, (9, 9), (0, 0))],
        *[(0, (10**9, 10**9), (0, 0)), (0, (0, 6), (6, 1)), (0, (2, 2), (1,)), (0, (2, True), (1, 1)), (0, [4], [1])],
        *[(0, (1, 8), (2**70, 1)), (0, (), ()), (0, (8,), (1,))],
    ],
)
def test_tensors_stay_within_their_storage_and_the_file(tmp_path, numel, offset, size, stride):
    class Storage:
        pass

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            view = () if zipped else (None,)
            return ("storage", torch.FloatStorage, "0", "cpu", numel, *view) if isinstance(value, Storage) else None

    rebuild = reduced(torch._utils._rebuild_tensor_v2, Storage(), offset, size, stride, False, {})
    path = tmp_path / "OLD.pt"
    tail = pickle.dumps(["0"], 2) + struct.pack("=q", numel) + bytes(32)
    fits = numel == 8 and size in ((8,), [4])
    for zipped in (False, True):
        Pickler(stream := io.BytesIO(), 2).dump({"rnn.cells.0.ih.0.weight": rebuild})
        data = stream.getvalue()
        path.write_bytes(zip_file(data, storage=bytes(32)) if zipped else legacy_file(data, tail))
        tracemalloc.start()
        assert refusal(path).startswith("lacks the weight rnn.cells.0.hh.weight" if fits else "is cut short or damaged")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1e7


def test_a_zip_that_swells_is_refused(tmp_path):
    path = tmp_path / "OLD.pt"
    path.write_bytes(zip_file(b"\x80\x02" + bytes(2 * 10**7), zipfile.ZIP_DEFLATED))
    assert path.stat().st_size < 50_000
    assert refusal(path).startswith("is cut short or damaged")


@zip_or_not
def test_a_bent_file_gives_one_line_or_a_checkpoint(checkpoint, zipped):
    path, _ = checkpoint(zipped, sizes=(4, 4), chunk=2)
    whole = path.read_bytes()
    places = st.integers(0, len(whole) - 1)

    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.tuples(places, st.integers(0, 255)), max_size=3), st.just(len(whole)) | places)
    def bend(changes, end):
        content = bytearray(whole)
        for place, byte in changes:
            content[place] = byte
        path.write_bytes(content[:end])
        try:
            _, weights = read_checkpoint(path)
        except UserError:
            assert "\n" not in refusal(path)
        else:
            assert all(weight.isfinite().all() for weight in weights.values())

    bend()


@zip_or_not
def test_a_file_cut_short_says_so(checkpoint, zipped):
    path, _ = checkpoint(zipped)
    content = path.read_bytes()
    for part in (0.3, 0.9, 0.999):
        path.write_bytes(content[: int(part * len(content))])
        assert refusal(path) == "is cut short or damaged; copy it again"


@pytest.mark.parametrize(
    "text", [b"", b"Paul sat here.\n", b"once upon a time\n" * 9, b"import os\nos.abort()\n", b"(("]
)
def test_text_is_not_a_checkpoint(tmp_path, text):
    path = tmp_path / "OLD.pt"
    path.write_bytes(text)
    assert refusal(path) == "is not a file that torch.save wrote"


@zip_or_not
def test_other_peoples_checkpoints_are_refused(tmp_path, original, zipped):
    awd = original("model").RNNModel()
    del awd.rnn
    values = [{"conv.weight": torch.ones(2)}, nn.LSTM(2, 3).state_dict(), nn.Linear(2, 3), [awd, None], torch.ones(3)]
    for value in values:
        assert refusal(save(value, tmp_path / "OLD.pt", zipped)) == NO_MODEL
    path = save({"args": argparse.Namespace(lr=1)}, tmp_path / "OLD.pt", zipped)
    assert refusal(path) == "refuses to load argparse.Namespace: not part of an ON-LSTM checkpoint"
    original.hide()


def test_files_that_are_not_there_or_not_torchs(tmp_path):
    assert refusal(tmp_path / "none.pt") == "No such file or directory"
    assert refusal(tmp_path) == "Is a directory"
    with zipfile.ZipFile(tmp_path / "OLD.pt", "w") as archive:
        archive.writestr("letter.txt", "hello")
    assert refusal(tmp_path / "OLD.pt") == "is a zip archive, but not one that torch.save wrote"
    (tmp_path / "OLD.pt").write_bytes(zip_file(b"\x80\x02N."))
    assert refusal(tmp_path / "OLD.pt") == NO_MODEL
    (tmp_path / "OLD.pt").write_bytes(zip_file(b"\x80\x02N.", byteorder=b"middle"))
    assert refusal(tmp_path / "OLD.pt").startswith("is cut short or damaged")


def set_weight(name, tensor):
    return lambda model: setattr(model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2], tensor)


@zip_or_not
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: m.decoder.bias.data.fill_(float("nan")), "decoder.bias holds values that are not finite"),
        (set_weight("decoder.bias", nn.Parameter(torch.ones(7))), "decoder.bias should be of size (11,), not (7,)"),
        (set_weight("decoder.bias", None), "lacks the weight decoder.bias"),
        (lambda m: m.rnn.cells.append(m.rnn.cells[0]), "model.tied: the last layer has 12 neurons, the embedding 6"),
        (lambda m: setattr(m.rnn.cells[1].hh, "dropout", 0.1), "rnn.cells.*.hh.dropout should be one rate"),
        (lambda m: setattr(m, "dropouti", "half"), "dropouti should be one rate from 0 to below 1"),
    ],
)
def test_what_does_not_fit_is_named(checkpoint, zipped, change, says):
    assert refusal(checkpoint(zipped, change)[0]).startswith(says)


def test_one_chunk_size_for_all_layers(checkpoint):
    def narrow(model):
        for part in (model.rnn.cells[1].ih[0], model.rnn.cells[1].hh):
            part.weight.data, part.bias.data = part.weight.data[:-2], part.bias.data[:-2]

    assert refusal(checkpoint(change=narrow)[0]).startswith(
        "rnn.cells.1.ih.0.weight should be of size (28, 12), not (26, 12)"
    )


def test_the_rows_give_a_chunk_size(checkpoint):
    def narrow(model):
        model.rnn.cells[0].hh.weight.data = model.rnn.cells[0].hh.weight.data[:-1]

    assert refusal(checkpoint(change=narrow)[0]).startswith("the rows of rnn.cells.0.hh.weight are not")


@pytest.mark.parametrize("place", ["archive/constants.pkl", "archive/code/constants.pkl"])
def test_torchscript_is_never_handed_on(tmp_path, monkeypatch, place):
    monkeypatch.setattr(torch.jit, "load", lambda *args, **options: pytest.fail("called"))
    path = tmp_path / "OLD.pt"
    path.write_bytes(zip_file(b"\x80\x02N."))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(place, b"\x80\x02N.")
    assert refusal(path).startswith("is cut short or damaged")


def test_a_tar_is_not_a_checkpoint(tmp_path):
    name = pickle.dumps(MAGIC[0], 2).decode("latin-1")
    with tarfile.open(tmp_path / "OLD.pt", "w", format=tarfile.USTAR_FORMAT, encoding="latin-1") as tar:
        for member in (name, "storages", "tensors", "pickle"):
            tar.addfile(tarfile.TarInfo(member))
    assert (tmp_path / "OLD.pt").read_bytes().startswith(pickle.dumps(MAGIC[0], 2))
    assert refusal(tmp_path / "OLD.pt").startswith("is cut short or damaged")


def test_a_split_softmax_is_refused(checkpoint):
    assert refusal(checkpoint(splits=(2800, 20000))[0]).startswith("was trained with a softmax split in 3")
