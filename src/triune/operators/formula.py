"""Counts as formulas: written once, shown as text and evaluated as numbers.

d: width of the model · m: number of heads · T: tokens in a sequence. The head width is D = d/m.
"""

import re
from typing import NamedTuple

import sympy

from triune.operators.roles import AttentionShape

_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")

d, m, T = sympy.symbols("d m T", positive=True)


class Costs(NamedTuple):
    """What an operator costs in one layer. Declared by the operator, checked against its modules in the tests."""

    weights: sympy.Expr  # parameters, biases left out; role vectors count as weights, as in the paper's Table 3
    biases: sympy.Expr
    role_flops: sympy.Expr  # a token: making the roles and scaling the output; a multiply-add is two
    cached: sympy.Expr  # elements that a decoder keeps for a token

    @property
    def flops(self) -> sympy.Expr:
        """A token: roles and attention, where scores and weighted sum take 2Td each."""
        return self.role_flops + 4 * T * d


def as_text(formula: sympy.Expr) -> str:
    """`3*d**2 + 4*T*d` as `3d² + 4Td`; the highest power of d first, whatever else is in the term."""
    terms = sympy.Add.make_args(sympy.sympify(formula))
    ordered = sorted(terms, key=lambda term: (-sympy.degree(term, d), -sympy.degree(term, T)))
    text = " + ".join(str(term) for term in ordered).replace("+ -", "- ")
    text = re.sub(r"\*\*(\d+)", lambda power: power[1].translate(_SUPERSCRIPTS), text)
    return text.replace("*", "")


def evaluate(formula: sympy.Expr, shape: AttentionShape, tokens: int | None = None) -> int:
    values = {d: shape.width, m: shape.heads}
    if tokens is not None:
        values[T] = tokens
    return int(sympy.sympify(formula).subs(values))
