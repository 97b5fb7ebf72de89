"""Prepares a run's training range: the run's config in, the data on the device out."""

from __future__ import annotations

from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.data.market_data import MarketData
from foxhunt_cli.device.base import Device
from foxhunt_cli.isv.seeds import seed_values
from foxhunt_cli.market.prepare import PreparedData, prepare_data


def prepare_training(device: Device, market: MarketData, config: RunConfig) -> PreparedData:
    """Columns, labels and legal starts of the training range. Raises DataError."""
    return prepare_data(
        device,
        market,
        seed_values(config.isv, config.preset),
        rollout=config.rollout,
        latency=config.latency_steps,
        episode_len=config.episode_len,
    )
