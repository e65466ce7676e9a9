"""An additive model of link logits: curves of columns, products with the logit and of pairs of columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

# Columns are clipped at these quantiles (the logit is not: it must keep its order at the ends).
_CLIP = (0.002, 0.998)
# Relative penalties of straight lines, bends, and products with the logit.
_LINEAR, _HINGE, _PRODUCT = 0.1, 1.0, 3.0
# Relative penalty of products of pairs, which inputs with more varying columns than this have none of.
_PAIR, _PAIRED_COLUMNS = 3.0, 12
# Bound of ratios to a small median; its asinh is below 710.
_LARGEST = 1e300


def merged_links(X: FloatArray, y: FloatArray, weight: FloatArray) -> tuple[FloatArray, ...]:
    """Sorted links, equal ones merged and their weights added: order and copies then change nothing."""
    table = np.column_stack((y, X))
    order = np.lexsort(table.T[::-1])
    table = table[order]
    first = np.flatnonzero(np.r_[True, (table[1:] != table[:-1]).any(axis=1)])
    return table[first, 1:], table[first, 0], np.add.reduceat(weight[order], first)


@dataclass(frozen=True)
class AdditiveBasis:
    """Transforms and knots of the columns, taken from calibration links.

    A column x enters as ``asinh(x / scale)``, as it is where scale (c,) is 0. `mean` and `deviation` (c,)
    standardise the clipped, transformed columns in products. `knots` increase, in transformed units: clipping
    points at the ends, quantiles between, 0 among the logit's; a constant column has one knot and no terms.
    """

    scale: FloatArray
    mean: FloatArray
    deviation: FloatArray
    knots: tuple[FloatArray, ...]

    @classmethod
    def of(cls, X: FloatArray, weight: FloatArray, asinh: FloatArray, n_knots: int) -> AdditiveBasis:
        """Basis for X (n, c) with the logit in column 0; `asinh` (c,) marks the squeezed columns."""

        def quantile(column: FloatArray, levels: Any) -> Any:
            return np.quantile(column, levels, weights=weight, method="inverted_cdf")  # k copies: weight k

        scale = np.zeros(X.shape[1])
        for j in np.flatnonzero(asinh):
            scale[j] = float(quantile(np.abs(X[:, j]), 0.5)) or 1.0
        t = transformed(X, scale)
        levels = np.r_[_CLIP[0], np.arange(1, n_knots + 1) / (n_knots + 1), _CLIP[1]]
        knots = [np.unique(quantile(column, levels)) for column in t.T]
        z = np.column_stack([np.clip(t[:, j], k[0], k[-1]) for j, k in enumerate(knots)])
        mean = np.average(z, axis=0, weights=weight)
        deviation = np.sqrt(np.average((z - mean) ** 2, axis=0, weights=weight))
        # The rounded average of equal values would leave noise to be divided by.
        constant = [j for j, k in enumerate(knots) if len(k) == 1]
        mean[constant], deviation[constant] = [knots[j][0] for j in constant], 1.0
        deviation[deviation == 0.0] = 1.0  # squares of tiny differences
        knots[0] = np.unique(np.r_[knots[0], 0.0])
        return cls(scale, mean, deviation, tuple(knots))

    def columns(self, X: FloatArray) -> FloatArray:
        """Transformed X (n, c); all columns but the logit clipped."""
        t = transformed(X, self.scale)
        for j, k in enumerate(self.knots[1:], start=1):
            np.clip(t[:, j], k[0], k[-1], out=t[:, j])
        return t

    def terms(self, t: FloatArray) -> list[Term]:
        """Blocks of the design matrix for transformed columns `t`."""
        varying = [j for j in range(1, t.shape[1]) if len(self.knots[j]) > 1]
        out = [_curve_term(j, t[:, j], self.knots[j]) for j in (0, *varying)]
        sides = np.column_stack((np.maximum(t[:, 0], 0.0), np.minimum(t[:, 0], 0.0)))
        z = (t - self.mean) / self.deviation
        out += [Term("product", [j], sides * z[:, [j]], np.full(2, _PRODUCT)) for j in varying]
        if len(varying) <= _PAIRED_COLUMNS:
            for at, j in enumerate(varying[:-1], start=1):
                partners = varying[at:]
                penalty = np.full(len(partners), _PAIR)
                out.append(Term("pair", [j, *partners], z[:, [j]] * z[:, partners], penalty))
        return out


@dataclass(frozen=True)
class Term:
    """Columns of the design matrix that belong together: a column's curve, its products, or its pairs.

    `columns` holds the column's number, and for pairs those of its partners after it.
    """

    kind: str
    columns: list[int]
    block: FloatArray
    penalty: FloatArray


@dataclass(frozen=True)
class AdditiveModel:
    """Fitted curves and products.

    ``logit p = intercept + g(t_0) + sum_j f_j(t_j) + (max(t_0, 0) c_j + min(t_0, 0) d_j + q_j) z_j`` with
    ``q_j = sum_i e_ij z_i``, t the transformed (0: the logit) and z the standardised columns, every term of
    mean 0 over the calibration links. `curves`: g and f_j at the knots, straight between (g also beyond).
    `products` (2, c): c_j and d_j. `pairs` (c, c): e, symmetric, half of a product's coefficient.
    """

    basis: AdditiveBasis
    curves: tuple[FloatArray, ...]
    products: FloatArray
    pairs: FloatArray

    def contributions(self, X: FloatArray) -> FloatArray:
        """Terms (n, c) of the columns; the decision is the intercept plus their sum."""
        t = self.basis.columns(X)
        out = np.empty_like(t)
        out[:, 0] = _extended(t[:, 0], self.basis.knots[0], self.curves[0])
        above, below = np.maximum(t[:, 0], 0.0), np.minimum(t[:, 0], 0.0)
        z = np.asfortranarray((t - self.basis.mean) / self.basis.deviation)
        for j in range(1, t.shape[1]):
            out[:, j] = np.interp(t[:, j], self.basis.knots[j], self.curves[j])
            c, d = self.products[:, j]
            factor = c * above + d * below
            # No matrix product: a link's number must not depend on how many others are scored with it.
            for i in np.flatnonzero(self.pairs[:, j]):
                factor += self.pairs[i, j] * z[:, i]
            out[:, j] += factor * z[:, j]
        return out

    @classmethod
    def from_coefficients(
        cls, basis: AdditiveBasis, terms: list[Term], theta: FloatArray, X: FloatArray, weight: FloatArray
    ) -> AdditiveModel:
        """Curves and products from the coefficients of unscaled design columns (without the intercept)."""
        count = len(basis.knots)
        curves = [np.zeros(len(k)) for k in basis.knots]
        products, pairs = np.zeros((2, count)), np.zeros((count, count))
        ends = np.cumsum([term.block.shape[1] for term in terms])
        for term, own in zip(terms, np.split(theta, ends[:-1]), strict=True):
            j = term.columns[0]
            if term.kind == "curve":
                curves[j] = _curve_term(j, basis.knots[j], basis.knots[j]).block @ own
            elif term.kind == "pair":
                pairs[j, term.columns[1:]] = pairs[term.columns[1:], j] = own / 2.0
            else:
                products[:, j] = own
        if len(basis.knots[0]) == 1:
            # A single knot at 0 has no slope: the line needs a second.
            knots = np.array([0.0, 1.0])
            basis = replace(basis, knots=(knots, *basis.knots[1:]))
            curves[0] = knots * theta[0]
        model = cls(basis, tuple(curves), products, pairs)
        average = np.average(model.contributions(X), axis=0, weights=weight)
        return replace(model, curves=tuple(c - a for c, a in zip(curves, average, strict=True)))


def transformed(X: FloatArray, scale: FloatArray) -> FloatArray:
    """Copy of X with ``asinh(x / scale)`` in the columns whose scale is not 0."""
    t = np.array(X, order="F")
    for j in np.flatnonzero(scale):
        with np.errstate(over="ignore"):
            ratio = X[:, j] / scale[j]
        t[:, j] = np.arcsinh(np.clip(ratio, -_LARGEST, _LARGEST))
    return t


def _curve_term(column: int, t: FloatArray, knots: FloatArray) -> Term:
    """A straight line and its bends at the inner knots."""
    block = np.column_stack([t, *(np.maximum(t - k, 0.0) for k in knots[1:-1])])
    return Term("curve", [column], block, np.r_[_LINEAR, np.full(block.shape[1] - 1, _HINGE)])


def _extended(t: FloatArray, knots: FloatArray, values: FloatArray) -> FloatArray:
    """Piecewise linear through the knots, with the slopes of the end pieces outside."""
    out = np.interp(t, knots, values)
    if len(knots) > 1:
        first, last = np.diff(values)[[0, -1]] / np.diff(knots)[[0, -1]]
        out += first * np.minimum(t - knots[0], 0.0) + last * np.maximum(t - knots[-1], 0.0)
    return out
