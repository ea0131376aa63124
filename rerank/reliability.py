"""A reliability plot: what was said against what was so, on held-out groups."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from pathlib import Path

from .calibrate import Bin, Report


def plot(report: Report, target: Path, *, title: str) -> tuple[Path, Path]:
    """Write `target` as PNG and, beside it, as an HTML page with the figures as a table.

    Returns:
        The two files.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 5), dpi=120)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    series = (
        (report.raw, "0.6", f"sigmoid of the logit (ECE {report.fit.ece_raw:.3f})"),
        (report.bins, "tab:blue", f"{report.fit.method} (ECE {report.fit.ece:.3f})"),
    )
    for bins, color, label in series:
        axes.plot([b.said for b in bins], [b.was for b in bins], "o-", color=color, label=label, markersize=4)
    axes.set(xlabel="probability said", ylabel="share relevant", xlim=(0, 1), ylim=(0, 1), title=title)
    axes.legend(loc="upper left", frameon=False)
    figure.tight_layout()
    target.parent.mkdir(parents=True, exist_ok=True)
    image, page = target.with_suffix(".png"), target.with_suffix(".html")
    figure.savefig(image)
    page.write_text(_page(report, image.read_bytes(), title), "utf-8")
    return image, page


def _page(report: Report, image: bytes, title: str) -> str:
    fit = report.fit
    told = (
        f"{fit.labels} labels ({fit.relevant} relevant) of {fit.groups} groups; each probability by a fit "
        f"that has not seen its group. Method: {fit.method}. Expected calibration error {fit.ece:.4f} "
        f"(sigmoid of the logit: {fit.ece_raw:.4f}), Brier score {fit.brier:.4f} ({fit.brier_raw:.4f})."
    )
    source = f"data:image/png;base64,{base64.b64encode(image).decode()}"
    return f"""<!doctype html>
<meta charset="utf-8">
<title>{html.escape(title)}</title>
<style>
body {{ font: 16px sans-serif; max-width: 45em; margin: 2em auto }}
th, td {{ padding-right: 1em }}
</style>
<h1>{html.escape(title)}</h1>
<p>{told}</p>
<img alt="Share relevant against probability said" src="{source}">
<table><tr><th>items</th><th>said</th><th>was</th></tr>
{_rows(report.bins)}
</table>
"""


def _rows(bins: Sequence[Bin]) -> str:
    return "\n".join(f"<tr><td>{b.count}</td><td>{b.said:.3f}</td><td>{b.was:.3f}</td></tr>" for b in bins)
