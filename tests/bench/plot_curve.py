"""Draws the in-context curve of an evaluation: return over episodes, mean of the held-out goals.

usage: plot_curve.py EVALUATION.json OUT.png   (run.dir/evaluation.json, or what `trainyard eval` prints)
"""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


def main():
    text = pathlib.Path(sys.argv[1]).read_text()
    data = json.loads(text[text.index("{") :])
    metrics, curve = data["metrics"], data["curves"]["test/return_by_episode"]
    figure, axes = plt.subplots(figsize=(7, 3.5))
    axes.plot(curve["x"], curve["y"], label="with history")
    for value, label in ((17.25, "optimum"), (metrics["test/return_no_history"], "no history"), (0.33, "random")):
        axes.axhline(value, linestyle="--", linewidth=0.8, label=f"{label} {value:.2f}", color="gray")
    axes.set(xlabel="episode", ylabel="return, mean of 8 held-out goals", ylim=(0, 18))
    axes.legend(loc="upper left", fontsize=8)
    figure.tight_layout()
    figure.savefig(sys.argv[2], dpi=100)


main()
