"""Changes of a pair of formulas after which its relation is still known: a training pair can be new in every epoch.

    rename    swap the variables: what holds of a and b holds of c and d
    commute   swap the operands of some `and` and `or`: the truth tables stay
    dual      swap `and` and `or` throughout: F becomes the negation of F with every variable negated, so entailment
              turns round, and alternation (never both) becomes cover (never neither)
    converse  swap the sides: entailment turns round

Formulas keep their length and number of operators. Variables and duals are swapped for a whole batch, in which equal
prefixes stay equal.
"""

from collections.abc import Collection

import numpy as np
import torch
from torch import Tensor

from onlstm.paper.logic.classifier import Batch
from onlstm.paper.logic.formulas import RELATIONS, VARIABLES, VOCABULARY

NAMES = ("rename", "commute", "dual", "converse")
_AND, _OR, _OPEN, _CLOSE = (VOCABULARY.index(token) for token in ("and", "or", "(", ")"))
_BINARY = (_AND, _OR)
_DUAL = torch.tensor([RELATIONS.index(relation) for relation in "><=^v#|"])
_CONVERSE = torch.tensor([RELATIONS.index(relation) for relation in "><=^|#v"])


def varied(batch: Batch, kinds: Collection[str], rng: np.random.Generator) -> Batch:
    """Return a batch in which the symmetries named are applied at random."""
    formulas, sides, labels = batch
    table = torch.arange(len(VOCABULARY))
    if "rename" in kinds:
        table[: len(VARIABLES)] = torch.from_numpy(rng.permutation(len(VARIABLES)))
    if "dual" in kinds and rng.random() < 0.5:
        table[_AND], table[_OR] = _OR, _AND
        labels = _DUAL.to(labels.device)[labels]
    if "converse" in kinds:
        turned = torch.from_numpy(rng.random(len(labels)) < 0.5).to(labels.device)
        sides = sides.flip(0).where(turned, sides)
        labels = _CONVERSE.to(labels.device)[labels].where(turned, labels)
    if "commute" in kinds:
        formulas = [_commuted(ids, rng) for ids in formulas]
    return Batch([table[ids] for ids in formulas], sides, labels)


def _commuted(ids: Tensor, rng: np.random.Generator) -> Tensor:
    """Return a formula with the operands of each binary operator swapped or not, by a fair coin."""
    tokens = ids.tolist()
    coins = iter((rng.random(len(tokens)) < 0.5).tolist())
    begun: list[list[list[int]]] = [[]]  # what stands in each bracket that is open
    for token in tokens:
        if token == _OPEN:
            begun.append([])
        elif token != _CLOSE:
            begun[-1].append([token])
        else:
            first, second = begun.pop()
            if len(second) > 1 and second[1] in _BINARY and next(coins):  # F ( and G )
                first, second = second[2:-1], [*second[:2], *first, _CLOSE]
            begun[-1].append([_OPEN, *first, *second, _CLOSE])
    return torch.tensor(begun[0][0])
