"""What tests of models and commands share: a small model of random weights, and a command run in this process."""

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

import pytest
import torch

from onlstm.cli.main import main
from onlstm.grammar.config import GrammarConfig
from onlstm.grammar.pcfg import Grammar
from onlstm.lm.config import LMConfig
from onlstm.lm.model import LanguageModel


def random_model(tokenizer, dtype=torch.float32, *, spread=0.7, seed=0, **options) -> LanguageModel:
    """A model for evaluation with weights from U(±spread), far from uniform predictions and from equal distances."""
    torch.manual_seed(seed)
    config = {"vocab_size": len(tokenizer), "embedding_size": 8, "hidden_size": 12, "num_layers": 2, "chunk_size": 4}
    made = LanguageModel(LMConfig(**config | options), tokenizer).to(dtype)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.uniform_(-spread, spread)
    return made.eval()


def random_grammar(tokenizer, *, seed=0, **sizes) -> Grammar:
    """A small grammar whose rules are far from uniform."""
    torch.manual_seed(seed)
    config = {"vocab_size": len(tokenizer), "nonterminals": 5, "preterminals": 7, "size": 16}
    made = Grammar(GrammarConfig(**config | sizes), tokenizer)
    with torch.no_grad():
        made.symbols.mul_(4)
    return made.eval()


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def onlstm(*args, input: bytes | str = b"", cwd=None) -> Done:
    """Run the command in this process, which has torch loaded already."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    data = input.encode() if isinstance(input, str) else input
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["onlstm", *map(str, args)])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        if cwd:
            patch.chdir(cwd)
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    return Done(code, out.getvalue(), err.getvalue())


def check_bfloat16_is_refused(*asked: str) -> None:
    """Run the command where no kernel can be built: it says in one line that it cannot train in bfloat16."""
    env = os.environ | {"CXX": "no-such-compiler", "CXXFLAGS": "-O0"}  # flags that nobody has built with
    command = [sys.executable, "-m", "onlstm", *asked]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    line = "train.precision bfloat16: needs a processor with avx512_bf16 and the C++ kernel; set it to float32"
    assert done.stderr.splitlines()[-1].endswith(line)
    assert "Traceback" not in done.stderr
