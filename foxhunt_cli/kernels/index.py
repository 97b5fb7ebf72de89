"""Renders the kernel index of ``cuda_src/README.md`` from the contracts.

``python -m foxhunt_cli.kernels.index`` rewrites the part between the markers; a test renders it again and compares.
"""

from __future__ import annotations

from itertools import groupby

from foxhunt_cli.kernels.registry import cuda_root, gpu_kernels, kernels

BEGIN = "<!-- kernel index: written by foxhunt_cli/kernels/index.py -->"
END = "<!-- end of the kernel index -->"


def render() -> str:
    """One table a file: kernel, how it is launched, what it is for."""
    parts = []
    root = cuda_root()
    for path, group in groupby([*kernels().values(), *gpu_kernels().values()], key=lambda contract: contract.file):
        parts.append(f"\n### {path.relative_to(root).as_posix()}\n\n| kernel | launch | purpose |\n|---|---|---|")
        for contract in group:
            rule = contract.launch
            summary = contract.summary.replace("|", "\\|")  # a bar of an absolute value would end the cell
            parts.append(f"| `{contract.name}` | {rule.mode} {rule.items}, block {rule.block} | {summary} |")
    return "\n".join(parts) + "\n"


def replace_index(text: str) -> str:
    """``text`` with a fresh index between the markers. Raises ValueError where a marker is missing."""
    head, found, rest = text.partition(BEGIN)
    _, closed, tail = rest.partition(END)
    if not found or not closed:
        raise ValueError(f"cuda_src/README.md: expected the markers '{BEGIN}' and '{END}'")
    return f"{head}{BEGIN}\n{render()}{END}{tail}"


def main() -> None:
    """Rewrite the index in the source tree."""
    path = cuda_root() / "README.md"
    path.write_text(replace_index(path.read_text()))


if __name__ == "__main__":
    main()
