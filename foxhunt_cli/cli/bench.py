"""``foxhunt bench``: measured speed and learning on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from foxhunt_cli.cli.bench_options import (
    Batch,
    Context,
    Curves,
    Device,
    Encoder,
    Every,
    Json,
    Plot,
    Preset,
    Rollout,
    Seeds,
    Sets,
    Steps,
    configurer,
    report,
    sizes,
    words,
    write_plot,
)

bench_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@bench_app.callback()
def bench() -> None:
    """Measure speed and learning on this machine.

    \b
    Example:
      foxhunt bench throughput --seconds 5
    """


@bench_app.command()
def throughput(
    device: Device = "auto",
    batch: Batch = None,
    rollout: Rollout = None,
    encoder: Encoder = None,
    preset: Preset = None,
    context: Context = None,
    sets: Sets = None,
    no_graph: Annotated[bool, typer.Option("--no-graph", help="Run kernel by kernel, without a graph.")] = False,
    stages: Annotated[bool, typer.Option("--stages", help="Also the time of each stage of the iteration.")] = False,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="How long to measure.")] = 10.0,
    json: Json = False,
) -> None:
    """Environment steps a second of whole training iterations.

    With the hardware and what a step is.

    \b
    Examples:
      foxhunt bench throughput --device cpu -b 16 --seconds 5
      foxhunt bench throughput --encoder mlp --seconds 2 --stages
    """
    from foxhunt_cli.bench import text
    from foxhunt_cli.bench.throughput import run
    from foxhunt_cli.cli.console import Terminal

    named = {"device": device, "batch": batch, "encoder": encoder, "rollout": rollout, "preset": preset}
    named["context"] = context
    terminal = Terminal()
    config = configurer(sets, **named, graph=not no_graph)([])
    report(run(config, seconds=seconds, console=terminal, stages=stages), text.throughput, json, terminal)


@bench_app.command()
def kernels(
    device: Device = "auto",
    batches: Annotated[str, typer.Option("-b", "--batch", help="Rows; several with commas.")] = "16",
    rollout: Rollout = None,
    encoder: Encoder = None,
    preset: Preset = None,
    sets: Sets = None,
    stages: Annotated[bool, typer.Option("--stages", help="A line for each operation instead of each stage.")] = False,
    repeats: Annotated[int, typer.Option("--repeats", min=3, help="Measurements of each stage.")] = 15,
    copy_gbps: Annotated[
        float | None,
        typer.Option("--copy-gbps", min=0.001, help="Limit: bytes a copy moves, GB/s; measured by default."),
    ] = None,
    product_tflops: Annotated[
        float | None,
        typer.Option("--product-tflops", min=0.001, help="Limit: of products, TFLOP/s; measured by default."),
    ] = None,
    json: Json = False,
) -> None:
    """Time, bytes and FLOPs of each stage of an iteration.

    Also the share of the limit that the device's memory and products set.

    \b
    Examples:
      foxhunt bench kernels --device cpu -b 16,64 --encoder mlp --repeats 3
      foxhunt bench kernels --stages --encoder mlp --repeats 3
    """
    from foxhunt_cli.bench import text
    from foxhunt_cli.bench.kernels import run
    from foxhunt_cli.cli.console import Terminal

    named = {"device": device, "rollout": rollout, "encoder": encoder, "preset": preset}
    terminal = Terminal()
    found = run(
        [configurer(sets, **named, batch=size)([]) for size in sizes(batches)], detail=stages, repeats=repeats,
        console=terminal, copy_gbps=copy_gbps, product_tflops=product_tflops,
    )  # fmt: skip
    report(found, text.kernels, json, terminal)


@bench_app.command()
def replay(
    device: Device = "auto",
    rows: Annotated[int, typer.Option("-b", "--batch", min=1, help="Transitions pushed and drawn a round.")] = 256,
    capacities: Annotated[str, typer.Option("--capacity", help="Slots, powers of two; several with commas.")] = (
        "32768,131072,1048576"
    ),
    peers: Annotated[str, typer.Option("--peers", help="Packages beside ours, where installed; '' for none.")] = (
        "cpprb,flashbax,torchrl"
    ),
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="How long to measure in all.")] = 10.0,
    json: Json = False,
) -> None:
    """Microseconds a round of prioritised replay, beside others.

    A round is push, sample and priority update.

    \b
    Example:
      foxhunt bench replay --device cpu --capacity 32768,131072 --seconds 3
    """
    from foxhunt_cli.bench import text
    from foxhunt_cli.bench.replay import run
    from foxhunt_cli.bench.replay_peers import PACKAGES
    from foxhunt_cli.cli.console import Terminal

    wanted = words(peers)
    if unknown := set(wanted) - set(PACKAGES):
        raise typer.BadParameter(f"--peers: expected some of {', '.join(PACKAGES)}, got '{sorted(unknown)[0]}'")
    slots = [int(text) if text.isdecimal() else 0 for text in words(capacities)]
    terminal = Terminal()
    found = run(device, rows=rows, capacities=slots, seconds=seconds, peers=wanted)
    report(found, text.replay, json, terminal)


@bench_app.command()
def hindsight(
    device: Device = "auto",
    batch: Batch = None,
    steps: Steps = 2000,
    every: Every = 100,
    seeds: Seeds = 3,
    kinds: Annotated[str, typer.Option("--kinds", help="Which; with commas.")] = (
        "none3,none8,close,peak,path,path-backward,path-forward,path-off"
    ),
    factor: Annotated[float, typer.Option("--factor", help="Threshold in multiples of the flow rule's PnL.")] = 1.3,
    threshold: Annotated[float | None, typer.Option("--threshold", help="The same in USD / 1,000 steps.")] = None,
    capture: Annotated[float, typer.Option("--capture", help="Threshold of the exit capture.")] = 0.4,
    surrogate: Annotated[
        bool, typer.Option("--surrogate/--no-surrogate", help="Without: the policy learns from the critic alone.")
    ] = True,
    held_out: Annotated[
        int, typer.Option("--held-out", min=0, help="Fresh markets to judge each agent on at the end.")
    ] = 0,
    encoder: Encoder = None,
    market: Annotated[str | None, typer.Option("--market", help="wavy, realistic or noise.")] = None,
    sets: Sets = None,
    curves: Curves = None,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Steps until a held-out PnL is held, by kind of hindsight.

    Updates and seconds too, with each kind of hindsight and without. Same reward, market and seeds. The
    threshold counts from the first of three evaluations in a row at or above it. Further kinds: none16;
    none-annealed and path-annealed, whose n falls from 32 to 4 over the first 1,000 critic updates. Fresh
    markets are like the one trained on; the second example makes both harder.

    \b
    Examples:
      foxhunt bench hindsight --encoder mlp -b 4 --steps 64 --every 32 --seeds 1 --kinds none8,path \\
        --threshold 500 --set synthetic.snapshots=20000
      foxhunt bench hindsight --encoder mlp -b 4 --steps 64 --every 32 --seeds 1 --kinds path-annealed \\
        --held-out 2 --threshold 200 --set synthetic.edge=0.6 --set synthetic.snapshots=20000
    """
    from foxhunt_cli.bench import text
    from foxhunt_cli.bench.curves import Grower
    from foxhunt_cli.bench.hindsight import run
    from foxhunt_cli.bench.learn import picture
    from foxhunt_cli.cli.console import Terminal

    terminal = Terminal()
    grower = Grower(every, curves, terminal, held_out)
    named = {"device": device, "batch": batch, "steps": steps, "encoder": encoder, "synthetic.preset": market}
    found = run(
        configurer(sets, **named), grower, kinds=words(kinds), seeds=seeds, factor=factor, threshold=threshold,
        capture=capture, surrogate=surrogate,
    )  # fmt: skip
    write_plot(plot, lambda: picture(grower.curves, "", ("hindsight",)), terminal)
    report(found, text.hindsight, json, terminal)


@bench_app.command()
def learn(
    device: Device = "auto",
    batch: Batch = None,
    steps: Steps = 10_000,
    every: Every = 500,
    seeds: Seeds = 3,
    markets: Annotated[
        str, typer.Option("--markets", help="wavy, realistic, noise or data files; with commas.")
    ] = "wavy,noise",
    presets: Annotated[str, typer.Option("--presets", help="foxhunt, seed; with commas.")] = "foxhunt,seed",
    encoders: Annotated[str, typer.Option("--encoders", help="full, mlp; with commas.")] = "full,mlp",
    training_markets: Annotated[
        int, typer.Option("--training-markets", min=1, help="Synthetic markets to train on: run i on market i.")
    ] = 1,
    held_out: Annotated[
        int, typer.Option("--held-out", min=0, help="Fresh markets to judge each agent on; 0 = the end of its own.")
    ] = 0,
    detail: Annotated[bool, typer.Option("--detail", help="Also a line for each agent and held-out market.")] = False,
    sets: Sets = None,
    curves: Curves = None,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Learning curves and what agents earn on held-out markets.

    One run for each market, preset, encoder and seed. Beside the agents: the best rule, a policy that is given the
    drift of the generator, and perfect foresight.

    \b
    Examples:
      foxhunt bench learn --encoders mlp --curves curves.json --plot learn.png
      foxhunt bench learn --markets wavy --presets foxhunt --encoders mlp -b 4 --steps 64 --every 32 --seeds 1 \\
        --set synthetic.snapshots=20000 --held-out 1 --detail
    """
    from functools import partial

    from foxhunt_cli.bench import text
    from foxhunt_cli.bench.curves import Grower
    from foxhunt_cli.bench.learn import picture, run
    from foxhunt_cli.cli.console import Terminal

    terminal = Terminal()
    grower = Grower(every, curves, terminal, held_out)
    found = run(
        configurer(sets, device=device, batch=batch, steps=steps), grower,
        markets=words(markets), presets=words(presets), encoders=words(encoders), seeds=seeds,
        training_markets=training_markets,
    )  # fmt: skip
    write_plot(plot, lambda: picture(grower.curves, "market", ("preset", "encoder")), terminal)
    report(found, partial(text.learn, detail=detail), json, terminal)


@bench_app.command()
def peers(
    device: Device = "auto",
    batches: Annotated[str, typer.Option("-b", "--batch", help="Rows; several with commas.")] = "16",
    rollout: Rollout = None,
    preset: Preset = None,
    sets: Sets = None,
    variants: Annotated[str, typer.Option("--variants", help="eager, compiled; with commas.")] = "eager,compiled",
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Measurements of each.")] = 7,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="How long to measure in all.")] = 20.0,
    json: Json = False,
) -> None:
    """Our training iteration beside the same in PyTorch.

    PyTorch runs eager and compiled (on a GPU as one CUDA graph). Compiling takes a minute or more; several sizes
    compile side by side. --preset seed compares the form with two windows and one step.

    \b
    Examples:
      foxhunt bench peers --device cpu --variants eager --seconds 3 --set synthetic.snapshots=20000
      foxhunt bench peers --device cuda -b 16,256 --rollout 32 --seconds 10
    """
    from foxhunt_cli.bench import peer_text
    from foxhunt_cli.bench.peers import VARIANTS, run
    from foxhunt_cli.cli.console import Terminal

    wanted = words(variants)
    if unknown := set(wanted) - set(VARIANTS):
        raise typer.BadParameter(f"--variants: expected some of {', '.join(VARIANTS)}, got '{sorted(unknown)[0]}'")
    named = {"device": device, "rollout": rollout, "preset": preset}
    configs = [configurer(sets, **named, batch=size)([]) for size in sizes(batches)]
    terminal = Terminal()
    found = run(configs, variants=wanted, seconds=seconds, repeats=repeats, console=terminal)
    report(found, peer_text.peers, json, terminal)
