"""A run as one HTML file that needs nothing else: verdicts, panels, anomalies, settings."""

from __future__ import annotations

import base64
from html import escape

from foxhunt_cli.diag.manifest import manifest_of, part
from foxhunt_cli.diag.reader import flatten
from foxhunt_cli.diag.summary import Summary
from foxhunt_cli.diag.verdict import verdicts

_CSS = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1d2733; max-width: 1180px; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem } img { width: 100% }
td { padding: .15rem 1rem .15rem 0; vertical-align: top } code { font-size: .9em }
.ok { color: #2c7a4b } .look { color: #a06a00 } .bad { color: #b3261e; font-weight: bold } .info { color: #5b6874 }
"""


def page(summary: Summary, png: bytes) -> str:
    """The document. png: the panels of ``plots.draw``."""
    name = escape(summary.path.parent.name)
    image = base64.b64encode(png).decode()
    anomalies = "".join(_row(f"step {found.step:,}", found.what) for found in summary.anomalies) or _row("none", "")
    config = dict(flatten(part(manifest_of(summary.path), "config")))
    settings = "".join(_row(key, "not set" if value is None else str(value)) for key, value in config.items())
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>foxhunt: {name}</title><style>{_CSS}</style>"
        f"<h1>{name}</h1><table>{''.join(map(_verdict, verdicts(summary)))}</table>"
        f"<p><img alt='panels of the run' src='data:image/png;base64,{image}'></p>"
        f"<h2>Anomalies</h2><table>{anomalies}</table>"
        f"<h2>Configuration</h2><table>{settings}</table></html>\n"
    )


def _verdict(verdict: object) -> str:
    mark, topic, text = (escape(str(getattr(verdict, name))) for name in ("mark", "topic", "text"))
    return f"<tr><td class='{mark}'>{mark}</td><td><b>{topic}</b></td><td>{text}</td></tr>"


def _row(key: str, value: str) -> str:
    return f"<tr><td><code>{escape(key)}</code></td><td>{escape(value)}</td></tr>"
