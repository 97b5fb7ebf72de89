"""`MarketData`: a cleaned data set in memory, ready for upload. A value; it reads and writes nothing."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from foxhunt_cli.config.instruments import Instrument
from foxhunt_cli.data.record import SNAPSHOT
from foxhunt_cli.data.report import CleaningReport


@dataclass(frozen=True)
class MarketData:
    """Snapshots of one instrument in time order, cut into sessions.

    price in currency = (reference_ticks + px) * tick_size.
    """

    records: np.ndarray
    """[N] SNAPSHOT, C-contiguous; may be a read-only memory map."""
    session_start: np.ndarray
    """[S] int64, index of each session's first record, ascending; [0] = 0."""
    instrument: Instrument
    reference_ticks: int
    """The data set's reference price in whole ticks."""
    report: CleaningReport
    source: str
    """One line for people: what this is and where it came from."""
    digest: str
    """Hex digest of the content and of the options that made it."""

    def __post_init__(self) -> None:
        if self.records.dtype != SNAPSHOT or self.records.ndim != 1 or not self.records.flags.c_contiguous:
            raise TypeError(
                f"records: expected a contiguous [N] SNAPSHOT array, got {self.records.dtype} {self.records.shape}"
            )

    def __len__(self) -> int:
        return len(self.records)

    @property
    def session_lengths(self) -> np.ndarray:
        """[S] int64, records in each session."""
        return np.diff(np.append(self.session_start, len(self.records)))

    def range(self, start: int, stop: int) -> MarketData:
        """Records start..stop-1 (a held-out split, say), sessions re-based. No copy."""
        if not 0 <= start < stop <= len(self.records):
            raise ValueError(f"range {start}:{stop} is empty or outside the data set's 0:{len(self.records)}")
        inside = self.session_start[(self.session_start > start) & (self.session_start < stop)]
        digest = hashlib.blake2b(f"{self.digest}:{start}:{stop}".encode(), digest_size=16).hexdigest()
        return replace(
            self,
            records=self.records[start:stop],
            session_start=np.concatenate([[0], inside - start]).astype(np.int64),
            source=f"{self.source}, records {start:,} to {stop - 1:,}",
            digest=digest,
        )


def checksum(records: np.ndarray) -> str:
    """Digest of weighted sums of the records' 8-byte words, 1,024 records to a sum: any flipped bit changes it.

    Odd weights, modulo 2^64, make it see order too. Runs at memory speed, which a cryptographic digest of
    every byte does not; it guards against damage, not against forgery.
    """
    words = records.view(np.uint8).reshape(-1).view(np.uint64)
    per_block = SNAPSHOT.itemsize // 8 * 1024
    weights = np.arange(1, 2 * per_block, 2, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    whole = len(words) // per_block * per_block
    sums = words[:whole].reshape(-1, per_block) @ weights
    sums = np.append(sums, words[whole:] @ weights[: len(words) - whole])
    return hashlib.blake2b(sums.tobytes() + len(records).to_bytes(8, "little"), digest_size=16).hexdigest()


def content_digest(
    records: np.ndarray, session_start: np.ndarray, instrument: Instrument, reference_ticks: int, extra: str = ""
) -> str:
    """Hex digest of everything that a run can see of a data set, and of `extra` (the options)."""
    hasher = hashlib.blake2b(digest_size=16)
    hasher.update(checksum(records).encode())
    hasher.update(np.ascontiguousarray(session_start, dtype="<i8").tobytes())
    hasher.update(f"{instrument.model_dump_json()}|{reference_ticks}|{extra}".encode())
    return hasher.hexdigest()
