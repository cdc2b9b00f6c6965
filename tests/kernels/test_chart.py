"""Inside and outside: enumeration of all trees, golden values of four kinds of grammar, autograd, the C++ kernel."""

import itertools
import math

import pytest
import torch
from golden_files import golden_json, golden_npz

from onlstm.kernels import build, chart
from onlstm.kernels.chart import Rules, inside, log_likelihood, posteriors, viterbi
