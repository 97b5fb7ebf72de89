"""How good the supervised heads are on held-out data: bits that a label's own frequencies do not already hold.

A cross-entropy below ln 21 proves nothing by itself: returns are not uniform over the buckets. What a head knows is the
entropy of the labels minus its cross-entropy, in nats; on a market without structure that is not above zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Judgement:
    """Figures over all labels of all horizons."""

    frd_cross_entropy: float
    """Mean -ln p(label) of the forward-return head, nats; a head without weights has ln 21 = 3.04."""
    frd_label_entropy: float
    """Entropy of the labels' own frequencies, by horizon, nats."""
    direction_accuracy: float
    """Share of directions called right."""
    direction_majority: float
    """Share that the more frequent direction of each horizon would get right."""
    labels: int

    def line(self) -> str:
        """For people."""
        known = self.frd_label_entropy - self.frd_cross_entropy
        return (
            f"supervised heads, held out: forward returns {self.frd_cross_entropy:.3f} nats (frequencies alone "
            f"{self.frd_label_entropy:.3f}, so {known:+.3f} known), direction {self.direction_accuracy:.1%} right "
            f"(majority {self.direction_majority:.1%})"
        )


def judge(prob: np.ndarray, bucket: np.ndarray, logits: np.ndarray, up: np.ndarray) -> Judgement:
    """prob [n, 3, 21], bucket [n, 3] (-1 = none), logits [n, 3] with bias, up [n, 3] 0/1 (-1 = none)."""
    cross, entropy, labels = 0.0, 0.0, 0
    for horizon in range(bucket.shape[1]):
        known = bucket[:, horizon] >= 0
        if not known.any():
            continue
        target = bucket[known, horizon].astype(int)
        p = prob[known, horizon][np.arange(len(target)), target].astype(np.float64)
        frequency = np.bincount(target, minlength=prob.shape[2]) / len(target)
        present = frequency[frequency > 0]
        cross -= float(np.log(np.maximum(p, 1e-30)).sum())
        entropy -= len(target) * float((present * np.log(present)).sum())
        labels += len(target)
    decided = up >= 0
    right = float(((logits > 0) == (up > 0))[decided].mean()) if decided.any() else float("nan")
    majority = [max(m := float((up[d, h] > 0).mean()), 1 - m) * d.sum() for h, d in enumerate(decided.T) if d.any()]
    of = max(labels, 1)
    return Judgement(cross / of, entropy / of, right, float(np.sum(majority) / max(decided.sum(), 1)), labels)
