#!/usr/bin/env python3
"""Writes reference.json: what scipy, statsmodels, numpy and arch say about many data sets.

In: nothing (all data come from seeds). Out: reference.json beside this file, with the versions that made it.
The Rust tests (tests/all/reference.rs) compute the same from the same data and compare.

    python3 -m venv ENV && ENV/bin/pip install numpy scipy statsmodels arch
    ENV/bin/python crates/tailsight-stats/tests/reference/make_reference.py
"""

import json
import pathlib
import platform
import warnings

import arch
import numpy as np
import scipy
import scipy.special
import scipy.stats
import statsmodels
from arch.bootstrap import optimal_block_length
from statsmodels.stats.multitest import multipletests
from statsmodels.tsa.adfvalues import mackinnoncrit, mackinnonp
from statsmodels.tsa.stattools import adfuller, kpss

warnings.simplefilter("ignore")


def ar(rng, n, phi, noise=None):
    """An autoregressive series of the first order that begins in its steady state."""
    e = rng.standard_normal(n) if noise is None else noise
    x = np.empty(n)
    x[0] = e[0] / np.sqrt(max(1 - phi * phi, 1e-3))
    for t in range(1, n):
        x[t] = phi * x[t - 1] + e[t]
    return x


def queue(rng, n, load, service):
    """Response times of a FIFO server with Poisson arrivals (Lindley)."""
    gaps = rng.exponential(1 / load, n)
    wait, out = 0.0, np.empty(n)
    for i in range(n):
        wait = max(0.0, wait - gaps[i])
        out[i] = wait + service[i]
        wait += service[i]
    return out


def datasets():
    """Short, long, tied, autocorrelated, drifting, heavy-tailed: name -> values."""
    rng = np.random.default_rng(20190710)
    n = 600
    sets = {
        "short": rng.exponential(3.0, 12),
        "exponential": rng.exponential(50.0, n),
        "normal": rng.normal(10, 2, n),
        "lognormal": rng.lognormal(1.0, 0.7, n),
        "pareto": 2.0 * (1 + rng.pareto(2.5, n)),
        "uniform": rng.uniform(1, 3, n),
        "ties": np.round(rng.exponential(4.0, n)) + 1,
        "two_values": rng.integers(1, 3, 300).astype(float),
        "ar_0.3": ar(rng, n, 0.3) + 20,
        "ar_0.9": ar(rng, n, 0.9) + 20,
        "ar_-0.5": ar(rng, 251, -0.5) + 20,
        "random_walk": np.cumsum(rng.standard_normal(n)) + 100,
        "trend": 0.01 * np.arange(n) + rng.standard_normal(n) + 5,
        "shift": np.concatenate([rng.exponential(1.0, 300), rng.exponential(1.6, 300)]),
        "warm_up": np.concatenate([rng.exponential(4.0, 80), rng.exponential(1.0, 520)]),
        "large_level": 1e12 + 1e3 * rng.standard_normal(300),
        "mm1_80": queue(rng, 2000, 0.8, rng.exponential(1.0, 2000)),
        "md1_50": queue(rng, 1000, 0.5, np.ones(1000)),
        "twenty": rng.gamma(2.0, 2.0, 20),
    }
    return {k: [float(repr(float(v))) for v in values] for k, values in sets.items()}


def anderson_a2(u):
    """A squared of probabilities, by the definition."""
    u = np.sort(u)
    n = len(u)
    i = np.arange(1, n + 1)
    return float(-n - np.sum((2 * i - 1) * (np.log(u) + np.log1p(-u[::-1]))) / n)


def anderson(values):
    x = np.asarray(values)
    out = {}
    positive = x.min() > 0
    normal = scipy.stats.anderson(centred(values), "norm")
    out["normal_a2"] = float(normal.statistic)
    if positive:
        out["exponential_a2"] = float(scipy.stats.anderson(x, "expon").statistic)
        # scipy's `expon` of `anderson` uses the mean alone; the same by the definition:
        out["exponential_a2_by_definition"] = anderson_a2(-np.expm1(-x / x.mean()))
        out["lognormal_a2"] = float(scipy.stats.anderson(np.log(x), "norm").statistic)
        logs = np.sort(np.log(x))
        if len(np.unique(x)) == len(x):
            out["pareto_a2"] = float(scipy.stats.anderson(logs[1:] - logs[0], "expon").statistic)
    scaled = (x - x.min() + 0.5) / (x.max() - x.min() + 1)
    out["uniform_a2"] = anderson_a2(scaled)
    return out


def mser(values, size):
    """MSER by its definition: the cut (in values) that minimises s^2 / kept of batch means, in the first half."""
    count = len(values) // size
    means = np.asarray(values[: count * size]).reshape(count, size).mean(axis=1)
    best = min((np.var(means[d:]) / (count - d), d) for d in range(count // 2 + 1))
    return {"cut": int(best[1] * size), "statistic": float(best[0])}


def centred(values):
    """Far from zero statsmodels' least squares (and numpy's moments) lose their digits; there they see the centred series,
    and the Rust code, which must centre by itself, does not."""
    x = np.asarray(values)
    return x - 1e12 if x.min() > 1e11 else x


def series_tests(values):
    x = centred(values)
    out = {"adf": [], "kpss": []}
    for regression in ("c", "ct"):
        for autolag, maxlag in (("AIC", None), ("AIC", 4), (None, 0), (None, 3)):
            try:
                r = adfuller(x, maxlag=maxlag, regression=regression, autolag=autolag)
            except ValueError:
                continue
            out["adf"].append(
                {"regression": regression, "autolag": autolag is not None, "maxlag": maxlag, "statistic": float(r[0]),
                 "p": float(r[1]), "lags": int(r[2]), "n": int(r[3]), "critical": [float(r[4][k]) for k in ("1%", "5%", "10%")]}
            )
        for nlags in ("auto", 0, 5):
            r = kpss(x, regression=regression, nlags=nlags, result_object=False)
            out["kpss"].append(
                {"regression": regression, "auto": nlags == "auto", "statistic": float(r[0]), "p_table": float(r[1]), "lags": int(r[2])}
            )
    out["spearman"] = []
    for lag in (1, 2, 7):
        r = scipy.stats.spearmanr(x[:-lag], x[lag:])
        out["spearman"].append({"lag": lag, "rho": float(r.statistic), "p": float(r.pvalue)})
    out["ranks_sum_of_squares"] = float(np.sum(scipy.stats.rankdata(x) ** 2))
    if len(x) >= 50:
        out["mser5"] = mser(x, 5)
        out["block_length"] = float(optimal_block_length(x)["stationary"].iloc[0])
    return out


def quantiles(values):
    x = np.sort(np.asarray(values))
    n, out = len(x), []
    for q in (0.1, 0.5, 0.9, 0.99, 0.999):
        value = float(np.quantile(x, q, method="inverted_cdf"))
        for level in (0.9, 0.95, 0.99):
            lower = int(scipy.stats.binom.ppf((1 - level) / 2, n, q))
            upper = int(scipy.stats.binom.ppf((1 + level) / 2, n, q)) + 1
            supported = 1 <= lower and upper <= n
            out.append({"q": q, "level": level, "value": value, "ranks": [lower, upper] if supported else None})
    return out


def functions():
    """Distribution functions and their inverses at many points."""
    st = scipy.stats
    grid = [1e-6, 0.001, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999999]
    gp, gev = [], []
    for xi in (-0.4, 0.0, 0.348238, 0.9):
        gp.append({"location": 1.0, "scale": 214.476, "shape": xi, "u": grid,
                   "x": [float(v) for v in st.genpareto.ppf(grid, xi, 1.0, 214.476)], "mean": float(st.genpareto.mean(xi, 1.0, 214.476))})
        gev.append({"location": 30.7984, "scale": 8.20449, "shape": xi, "u": grid,
                    "x": [float(v) for v in st.genextreme.ppf(grid, -xi, 30.7984, 8.20449)],
                    "mean": float(st.genextreme.mean(-xi, 30.7984, 8.20449))})
    binomial = [
        {"k": k, "n": n, "p": p, "cdf": float(st.binom.cdf(k, n, p))}
        for n, p in ((10, 0.5), (1000, 0.99), (10_000, 0.99), (1_000_000, 0.999), (5_000_000, 0.5))
        for k in [int(n * p + z * np.sqrt(n * p * (1 - p))) for z in (-3, -1.96, 0, 1, 2.5)]
    ]
    return {
        "genpareto": gp,
        "genextreme": gev,
        "pareto": {"scale": 2.0, "shape": 1.7, "u": grid, "x": [float(v) for v in st.pareto.ppf(grid, 1.7, 0, 2.0)]},
        "lognormal": {"mu": 1.2, "sigma": 0.6, "u": grid, "x": [float(v) for v in st.lognorm.ppf(grid, 0.6, 0, np.exp(1.2))]},
        "binomial": binomial,
        "student": [{"t": t, "df": df, "two_sided": float(2 * st.t.sf(abs(t), df))} for df in (2, 9, 127, 9998) for t in (-6.0, -1.0, 0.3, 2.1, 9.0)],
        "student_quantile": [{"p": p, "df": df, "t": float(st.t.ppf(p, df))} for df in (15, 63, 127) for p in (0.9, 0.975, 0.995)],
        "poisson_tail": [{"k": k, "mean": m, "p": float(st.poisson.sf(k - 1, m))} for m in (0.5, 10.0, 990.0) for k in (1, 5, 12, 1000, 1100)],
        "chi_square": [{"x": x, "df": 20, "p": float(st.chi2.sf(x, 20))} for x in (5.0, 20.0, 31.4, 60.0)],
        "cramer_von_mises": [{"x": x, "p": float(1 - scipy.stats._hypotests._cdf_cvm(x))} for x in (0.03, 0.1, 0.347, 0.461, 0.739, 1.167, 2.0)],
        "mackinnon": [
            {"regression": r, "statistic": s, "p": float(mackinnonp(s, r, 1))}
            for r in ("c", "ct") for s in (-20.0, -8.0, -4.5, -3.4, -2.9, -2.0, -1.0, 0.0, 0.5, 3.0)
        ],
        "mackinnon_critical": [
            {"regression": r, "n": n, "values": [float(v) for v in mackinnoncrit(1, r, n)]} for r in ("c", "ct") for n in (25, 100, 1000, 100_000)
        ],
        "holm": (lambda p: {"p": p, "corrected": [float(v) for v in multipletests(p, method="holm")[1]]})([0.01, 0.04, 0.03, 0.005, 0.9]),
    }


def two_samples(sets):
    out = []
    for a, b in (("exponential", "pareto"), ("shift", "shift"), ("ties", "twenty"), ("ar_0.3", "ar_0.9"), ("normal", "lognormal")):
        x, y = sets[a], sets[b]
        if a == b:
            x, y = x[:300], x[300:]
        r = scipy.stats.anderson_ksamp([np.asarray(x), np.asarray(y)], midrank=True)
        n, k = np.array([len(x), len(y)]), 2
        total = n.sum()
        # scipy standardises; the variance that it divides by (Scholz and Stephens, equation 4):
        h, rev = (1.0 / n).sum(), np.cumsum(1.0 / np.arange(total - 1, 1, -1))
        harmonic = rev[-1] + 1
        g = (rev / np.arange(2, total)).sum()
        A = (4 * g - 6) * (k - 1) + (10 - 6 * g) * h
        B = (2 * g - 4) * k**2 + 8 * harmonic * k + (2 * g - 14 * harmonic - 4) * h - 8 * harmonic + 4 * g - 6
        C = (6 * harmonic + 2 * g - 2) * k**2 + (4 * harmonic - 4 * g + 6) * k + (2 * harmonic - 6) * h + 4 * harmonic
        D = (2 * harmonic + 6) * k**2 - 4 * harmonic * k
        sigma = np.sqrt((A * total**3 + B * total**2 + C * total + D) / ((total - 1.0) * (total - 2.0) * (total - 3.0)))
        out.append({"a": x, "b": y, "names": [a, b], "a2": float(r.statistic * sigma + k - 1), "p_table": float(r.pvalue)})
    return out


def main():
    sets = datasets()
    data = {
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__,
                     "statsmodels": statsmodels.__version__, "arch": arch.__version__},
        "datasets": {
            name: {"values": values, "anderson": anderson(values), "series": series_tests(values), "quantiles": quantiles(values)}
            for name, values in sets.items()
        },
        "functions": functions(),
        "two_samples": two_samples(sets),
    }
    path = pathlib.Path(__file__).with_name("reference.json")
    path.write_text(json.dumps(data, indent=None, separators=(",", ":")) + "\n")
    print(f"{path.name}: {path.stat().st_size} bytes, {len(sets)} data sets, {data['versions']}")


if __name__ == "__main__":
    main()
