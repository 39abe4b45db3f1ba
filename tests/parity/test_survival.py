"""The survival mathematics of mace_survival against scikit-survival and lifelines, on random sets with ties."""

import json
import os
import pathlib
import random
import subprocess
import sys
import warnings

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "integration"))

import harness  # noqa: E402

NUMBERS = os.environ.get("TRAINYARD_SURVIVAL_NUMBERS", "build/release/bin/survival_numbers")
SEED = int(os.environ.get("TRAINYARD_TEST_SEED", "14"))
SETS = 1000 if harness.THOROUGH else 120
# Sums of at most 80 float64 terms; the contract of issue 14 is 1e-6.
CLOSE = dict(rel=1e-9, abs=1e-9)


def outcomes(rng, n, days, rate):
    """Whole times of a few days, so that most are tied, or of years, so that few are."""
    return {"time": [float(rng.randint(1, days)) for _ in range(n)], "event": [int(rng.random() < rate) for _ in range(n)]}


def random_set(seed):
    rng = random.Random(f"{SEED} {seed}")
    days, rate, levels = rng.choice([6, 40, 2500]), rng.choice([0.12, 0.5, 0.9]), rng.choice([3, 10**6])

    def risks(n):
        return [round(rng.gauss(0, 2) * levels) / levels for _ in range(n)]

    n, m = rng.randint(8, 60), rng.randint(8, 80)
    chosen = dict(outcomes(rng, n, days, rate), risk=risks(n), train=dict(outcomes(rng, m, days, rate), risk=risks(m)))
    # The training fold is seen for longer, so that no weight is 1 / 0; both folds have an event and someone censored.
    chosen["train"]["time"][:3], chosen["train"]["event"][:3] = [1.0, float(days + 1), float(days + 1)], [1, 0, 1]
    chosen["time"][:3], chosen["event"][:3] = [1.0, 2.0, float(days)], [1, 0, 0]
    last = max(chosen["time"])
    chosen["at"] = sorted(rng.uniform(min(chosen["time"]), last - 1e-3) for _ in range(4))
    chosen["survival"] = [[rng.random() for _ in range(n)] for _ in chosen["at"]]
    return chosen


@pytest.fixture(scope="module")
def numbers():
    sets = [random_set(seed) for seed in range(SETS)]
    text = "".join(json.dumps(one) + "\n" for one in sets)
    result = subprocess.run([NUMBERS], input=text, capture_output=True, text=True, timeout=120, check=True)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(found) == SETS
    return list(zip(sets, found))


def surv(of):
    from sksurv.util import Surv

    return Surv.from_arrays(event=np.array(of["event"], bool), time=np.array(of["time"]))


def test_concordance(numbers):
    from lifelines.utils import concordance_index
    from sksurv.metrics import concordance_index_censored

    for seed, (given, found) in enumerate(numbers):
        index, concordant, discordant, tied, _ = concordance_index_censored(np.array(given["event"], bool), np.array(given["time"]), np.array(given["risk"]), tied_tol=0)
        assert found["pairs"] == [concordant + discordant + tied, concordant, tied], f"set {seed}"
        assert found["cindex"] == pytest.approx(index, **CLOSE), f"set {seed}"
        theirs = concordance_index(np.array(given["time"]), -np.array(given["risk"]), np.array(given["event"]))
        assert found["cindex"] == pytest.approx(theirs, **CLOSE), f"set {seed}"


def test_loss_and_gradient_with_ties(numbers):
    """Every subject has a covariate of its own, so that the weights are the risks. Theirs is divided by the number of subjects."""
    from sksurv.linear_model.coxph import CoxPHOptimizer

    for seed, (given, found) in enumerate(numbers):
        n = len(given["risk"])
        theirs = CoxPHOptimizer(np.eye(n), np.array(given["event"], bool), np.array(given["time"]), alpha=np.zeros(n), ties="breslow")
        # They sort subjects; a covariate stays with its subject.
        risk = np.array(given["risk"])
        assert found["cox"] == pytest.approx(n * theirs.nlog_likelihood(risk), **CLOSE), f"set {seed}"
        theirs.update(risk)
        assert found["gradient"] == pytest.approx(list(n * theirs.gradient), **CLOSE), f"set {seed}"


def test_loss_without_ties_is_lifelines():
    """lifelines' log-likelihood (Efron's, the same where no times are tied) at given coefficients: its fit with no step."""
    import pandas
    from lifelines import CoxPHFitter

    rng = random.Random(SEED)
    n = 40
    frame = pandas.DataFrame({"time": rng.sample(range(1, 1000), n), "event": [int(rng.random() < 0.5) for _ in range(n)], "x": [rng.gauss(0, 1) for _ in range(n)]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = CoxPHFitter().fit(frame, "time", "event", fit_options={"precision": 1e-14})
    risk = list(fitted.params_["x"] * frame["x"])
    outcome = {"time": [float(t) for t in frame["time"]], "event": list(map(int, frame["event"]))}
    given = dict(outcome, risk=risk, train=dict(outcome, risk=risk), at=[100.0, 200.0], survival=[[0.5] * n] * 2)
    found = json.loads(subprocess.run([NUMBERS], input=json.dumps(given) + "\n", capture_output=True, text=True, check=True).stdout)
    assert -found["cox"] == pytest.approx(fitted.log_likelihood_, rel=1e-9)
    # At its maximum the gradient along x is zero, up to the fit's tolerance.
    assert sum(g * x for g, x in zip(found["gradient"], frame["x"])) == pytest.approx(0, abs=1e-4)


def test_baseline_hazard(numbers):
    from sksurv.linear_model.coxph import BreslowEstimator

    for seed, (given, found) in enumerate(numbers):
        train = given["train"]
        theirs = BreslowEstimator().fit(np.array(train["risk"]), np.array(train["event"], bool), np.array(train["time"])).cum_baseline_hazard_
        assert found["hazard"] == pytest.approx([float(theirs(t)) for t in given["at"]], **CLOSE), f"set {seed}"


def test_survival_of_a_group(numbers):
    from sksurv.nonparametric import kaplan_meier_estimator

    for seed, (given, found) in enumerate(numbers):
        times, survival = kaplan_meier_estimator(np.array(given["event"], bool), np.array(given["time"]))
        theirs = [1.0 if t < times[0] else survival[np.searchsorted(times, t, side="right") - 1] for t in given["at"]]
        assert found["kaplan_meier"] == pytest.approx(theirs, **CLOSE), f"set {seed}"


def test_time_dependent_auc(numbers):
    from sksurv.metrics import cumulative_dynamic_auc

    compared = 0
    for seed, (given, found) in enumerate(numbers):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            theirs, _ = cumulative_dynamic_auc(surv(given["train"]), surv(given), np.array(given["risk"]), np.array(given["at"]), tied_tol=0)
        for mine, other in zip(found["auc"], theirs):
            if mine is None:
                assert np.isnan(other), f"set {seed}"
                continue
            assert mine == pytest.approx(other, **CLOSE), f"set {seed}"
            compared += 1
    assert compared > SETS


def test_brier_scores(numbers):
    from sksurv.metrics import brier_score, integrated_brier_score

    for seed, (given, found) in enumerate(numbers):
        survival = np.array(given["survival"]).T
        _, theirs = brier_score(surv(given["train"]), surv(given), survival, np.array(given["at"]))
        assert found["brier"] == pytest.approx(list(theirs), **CLOSE), f"set {seed}"
        assert found["ibs"] == pytest.approx(integrated_brier_score(surv(given["train"]), surv(given), survival, np.array(given["at"])), **CLOSE), f"set {seed}"
