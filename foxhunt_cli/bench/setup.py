"""The engine that a bench measures: device, data and kernels of one configuration, past its first iterations.

Owns the way there and nothing of the measuring. Benches train nothing that is kept: no run directory is made.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.data.market_data import MarketData
from foxhunt_cli.data.source import load_market_data
from foxhunt_cli.device.base import Device
from foxhunt_cli.device.select import select
from foxhunt_cli.train.compile_bar import compile_bar
from foxhunt_cli.train.engine import Engine, build_engine, compile_run
from foxhunt_cli.train.prepare import prepare_training
from foxhunt_cli.train.split import split

if TYPE_CHECKING:
    from foxhunt_cli.cli.console import Terminal

_WARM_UP = 3


def open_market(config: RunConfig) -> MarketData:
    """The data that the configuration names. Raises DataError, DataFileError."""
    return load_market_data(config.paths or None, config.data, config.synthetic)


def open_device(config: RunConfig) -> Device:
    """The device that the configuration names. Raises DeviceError."""
    return select(config.device, precision=config.precision, threads=config.cpu_threads).device


def open_engine(device: Device, config: RunConfig, market: MarketData, console: Terminal | None) -> Engine:
    """An engine whose replay is filled and whose critic learns: what an iteration costs from then on.

    console: where compiling shows; None for nowhere. Raises DataError, DeviceError.
    """
    with compile_bar(console) if console else nullcontext() as progress:
        compile_run(device, config, progress)
    engine = build_engine(device, config, prepare_training(device, split(market, config.holdout).train, config))
    for _ in range(engine.prefill_iterations + _WARM_UP):
        engine.iterate()
    device.synchronize()
    return engine
