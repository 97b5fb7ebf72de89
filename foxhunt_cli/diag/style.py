"""Colours and style of every picture: few colours, readable in grey, no frame that says nothing."""

from __future__ import annotations

DPI = 110
INK, FAINT, ACCENT, SECOND = "#1f3b57", "#a9b8c6", "#c2502f", "#3f7d54"
STYLE = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6ebf0",
    "axes.edgecolor": "#7b8894",
    "axes.titleweight": "bold",
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.framealpha": 0.8,
    "legend.edgecolor": "none",
    "font.family": "DejaVu Sans",
    "svg.hashsalt": "foxhunt",
}
