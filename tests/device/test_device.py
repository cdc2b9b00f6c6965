"""Which device is meant, in one place; and one line for a device that is not there, is full or has failed."""

import pytest
import torch
from small_runs import config, ids, model

from helpers import onlstm
from onlstm import LanguageModel, Parser
from onlstm.device import check, exact, failure, find
from onlstm.errors import UserError
from onlstm.lm.score import evaluate
from onlstm.train import checkpoint, fit
from onlstm.train.language_model import LanguageModelTraining

FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of …\nmore")
ON_CPU = RuntimeError(
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"
)
LOST = torch.AcceleratorError("CUDA error: the launch timed out and was terminated\nCUDA kernel errors might be …")
ARGUMENTS = {
    "reproduce": ("table1",),
    "induce": ("x", "--out", "y"),
    **dict.fromkeys(("train", "eval", "score", "generate", "parse", "evaluate", "inspect", "draw"), ("en-small", "x")),
    **dict.fromkeys(("syneval", "blimp", "agreement", "logic"), ("en-small", "x")),
    **dict.fromkeys(("demo", "bench"), ()),
}


@pytest.fixture
def cuda(monkeypatch):
    """Pretend that torch has this many CUDA devices."""

    def have(count):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    return have


@pytest.mark.parametrize("name", ["auto", "cpu", "cuda", "cuda:0", "cuda:12", "mps"])
def test_spellings(name):
    check(name)


@pytest.mark.parametrize(
    "name", ["", "gpu", "CUDA", "cuda:", "cuda:x", "cuda:-1", "cuda:1:2", "cpu:0", "cuda:99999", "meta"]
)
def test_misspellings(name):
    with pytest.raises(UserError, match=f"^device {name}: there are auto, cpu, cuda"):
        find(name)


def test_the_device_that_is_meant(cuda, monkeypatch):
    cuda(0)
    assert find() == find("cpu") == find(torch.device("cpu")) == torch.device("cpu")
    with pytest.raises(UserError, match=r"^device cuda: torch .* finds no CUDA device here; choose cpu$"):
        find("cuda")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert find() == torch.device("cpu"), "mps only by name"
    assert find("mps") == torch.device("mps")
    cuda(2)
    assert find() == find("cuda") == torch.device("cuda:0")
    assert find("cuda:1") == torch.device("cuda:1")
    assert find("cpu") == torch.device("cpu")
    with pytest.raises(UserError, match=r"^device cuda:2: torch finds 2 here, the last is cuda:1$"):
        find("cuda:2")


def test_processes_of_torchrun_have_a_device_each(cuda, monkeypatch):
    cuda(2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert find() == find("cuda") == torch.device("cuda:1")
    with pytest.raises(UserError, match=r"^device cuda:1: 2 processes need a device each; write cuda$"):
        find("cuda:1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    with pytest.raises(UserError, match=r"^device cuda: 3 processes, but 2 CUDA devices; start one for each device$"):
        find("cuda")


def test_mps_has_no_float64():
    assert exact(torch.empty(1)) == torch.float64
    assert exact(torch.empty(1, device="meta")) == torch.float64


def test_grammars_stay_on_the_cpu(cuda):
    cuda(1)
    assert next(Parser.load("en").model.parameters()).device == torch.device("cpu")
    with pytest.raises(
        UserError, match=r"^device cuda: en is a grammar, which runs on the CPU alone; leave the device"
    ):
        Parser.load("en", device="cuda")


@pytest.mark.parametrize("command", ARGUMENTS)
def test_every_command_that_runs_a_network_checks_its_device(command):
    """Before anything else, even its other arguments."""
    done = onlstm(command, *ARGUMENTS[command], "--device", "tpu")
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "--device" in done.err or "device tpu" in done.err, done.err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("words", ["score en-small the", "parse en-small", "parse", "bench", "generate en-small the"])
def test_a_device_that_is_not_there(words):
    name, *rest = words.split()
    done = onlstm(name, *rest, "--device", "cuda:1", input="the cat sat\n")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("onlstm: --device cuda:1: "), done.err
    assert done.err.count("\n") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_nothing_is_reproduced_on_a_device_that_is_not_there(tmp_path):
    (tmp_path / "text.txt").write_text("the cat sat\n")
    words = ("reproduce", "table1", "--text", "text.txt", "--out", "runs", "--device", "cuda")
    assert onlstm(*words, "--dry-run", cwd=tmp_path).code == 0, "it may be there where the commands will run"
    done = onlstm(*words, cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("onlstm: --device cuda: torch "), done.err
    assert not (tmp_path / "runs").exists()


def test_lines_on_failures():
    assert failure(FULL, "batch 3") == "the device is out of memory with batch 3; choose smaller sizes, or cpu"
    assert failure(LOST).startswith("the device has failed (CUDA error: the launch timed out and was terminated); try")
    assert failure(RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)")).startswith("the device is out of")
    assert failure(RuntimeError("CUDA error: out of memory")).startswith("the device is out of memory")
    assert failure(RuntimeError("Triton Error [CUDA]: out of memory")).startswith("the device is out of memory; choose")
    assert failure(ON_CPU, "batch 3") == "the machine is out of memory with batch 3; choose smaller sizes"
    assert failure(MemoryError()) == "the machine is out of memory; choose smaller sizes"
    assert failure(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) == ""


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "CUDA driver initialization failed, you might not have a CUDA gpu.",
        "CUDA unknown error - this may be due to an incorrectly set up environment",
        "No CUDA GPUs are available",
        "No HIP GPUs are available",
        "NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled cuda error, NCCL version 2.27.5",
        "Triton Error [CUDA]: an illegal memory access was encountered",
        "Triton Error [HIP]:  Code: 719, Message: unspecified launch failure",
    ],
)
def test_every_way_in_which_a_device_disappears_is_a_line(text):
    assert failure(RuntimeError(text)).startswith(f"the device has failed ({text[:40]}")


def failing(error, after):
    """A hook that raises an error as a device would, the k-th time."""
    calls = []

    def hook(*_):
        calls.append(0)
        if len(calls) > after:
            raise error

    return hook


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (FULL, "^the device is out of memory with train.batch_size 4, train.bptt 12; choose smaller sizes, or cpu$"),
        (ON_CPU, "^the machine is out of memory with train.batch_size 4, train.bptt 12; choose smaller sizes$"),
        (MemoryError(), "^the machine is out of memory with train.batch_size 4, train.bptt 12; choose smaller sizes$"),
        (LOST, "has failed"),
    ],
)
def test_training_on_a_device_that_fails(tmp_path, error, line):
    run = LanguageModelTraining(model(), ids(60), ids(20, seed=1), config(), tmp_path)
    fit.fit(run, epochs=1)
    run.model.layers[1].register_forward_hook(failing(error, 3))
    with pytest.raises(UserError, match=line):
        fit.fit(run)
    assert checkpoint.load(tmp_path)["progress"]["epoch"] == 1, "the last checkpoint is kept"


def test_evaluating_on_a_device_that_is_full():
    made = model().eval()
    made.layers[0].register_forward_hook(failing(FULL, 1))
    with pytest.raises(UserError, match="out of memory with batch 2, window 16; choose smaller sizes, or cpu"):
        evaluate(made, ids(20), batch=2, window=16)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (LOST, "onlstm: the device has failed (CUDA error: the launch timed out and was terminated); try"),
        (MemoryError(), "onlstm: the machine is out of memory; choose smaller sizes\n"),
    ],
)
def test_a_command_on_a_device_that_fails(monkeypatch, error, line):
    monkeypatch.setattr(torch.nn.functional, "embedding", failing(error, 0))
    done = onlstm("score", "en-small", input="the cat sat\n")
    assert done.code == 2
    assert line in done.err
    assert "Traceback" not in done.err


def test_a_checkpoint_of_before_there_were_devices_goes_on(tmp_path):
    run = LanguageModelTraining(model(), ids(60), ids(20, seed=1), config(), tmp_path, seed=3)
    fit.fit(run, epochs=1)
    content = checkpoint.load(tmp_path)
    assert content.pop("generator_device") == "cpu"
    fit.fit(run, epochs=2)
    again = LanguageModelTraining(model(), ids(60), ids(20, seed=1), config(), tmp_path, seed=99)
    fit.restore(again, content)
    fit.fit(again, epochs=2)
    assert again.progress.history == run.progress.history


def test_a_model_says_where_it_is():
    assert LanguageModel.load("en-small", device="cpu").device == torch.device("cpu")
