"""From files and options to a checked ``RunConfig``, and back to commented TOML.

Owns the merge and the wording of configuration errors. Precedence, later wins: the defaults of ``RunConfig``, the
file of ``--config``, the ``[isv]`` table of ``--seeds``, ``--set`` in the order given, named options.

Every error names where the value came from, the key, what was expected and what was got.
"""

from __future__ import annotations

import datetime
import difflib
import json
import tomllib
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from foxhunt_cli.config.run import RunConfig

FILE_MAX = 1 << 20  # bytes; every key explained takes 20,000
DEPTH_MAX = 8  # of tables within tables; the configuration needs three


class ConfigError(ValueError):
    """A configuration cannot be used; the message names source, key, expected and got."""


@dataclass(frozen=True)
class Setting:
    """One value of a dotted key, and where the user wrote it ("run.toml", "--set batch=8", "--batch")."""

    key: str
    value: Any
    origin: str


def load_config(
    file: Path | None = None,
    seeds: Path | None = None,
    sets: Sequence[str] = (),
    options: Iterable[Setting] = (),
) -> RunConfig:
    """The run's configuration from all sources. Options whose value is None were not given. Raises ConfigError."""
    settings: list[Setting] = []
    if file is not None:
        settings += _flatten(_read_toml(file), "", str(file))
    if seeds is not None:
        settings += _flatten({"isv": _seeds_table(seeds)}, "", str(seeds))
    settings += [parse_set(text) for text in sets]
    settings += [option for option in options if option.value is not None]
    return _merged(settings)


def parse_set(text: str) -> Setting:
    """``a.b=c`` as a Setting: c is a TOML value, or a bare word taken as a string. Raises ConfigError."""
    key, equals, raw = text.partition("=")
    key, raw = key.strip(), raw.strip()
    if not equals or not all(key.split(".")) or not raw:
        raise ConfigError(f"--set {text}: expected KEY=VALUE, e.g. --set batch=32 or --set isv.lr_pi=0.001")
    try:
        value = tomllib.loads(f"value = {raw}")
    except (ValueError, RecursionError):  # wrong TOML, a number of thousands of digits, lists within lists
        if raw[0] in "[{\"'":
            raise ConfigError(f"--set {text}: '{raw}' is neither a TOML value nor a bare word") from None
        value = {"value": raw}
    if set(value) != {"value"}:
        raise ConfigError(f"--set {text}: expected one value, got several lines; use one --set a key")
    return Setting(key, value["value"], f"--set {text}")


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_MAX + 1)
        if len(raw) > FILE_MAX:
            raise ConfigError(f"{path}: expected a TOML file of at most {FILE_MAX:,} bytes, got more")
        return tomllib.loads(raw.decode("utf-8-sig"))  # some editors put a byte order mark before the text
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; give the path of a TOML file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; give the path of a TOML file") from None
    except ConfigError:
        raise
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: expected a TOML text file in UTF-8, got other bytes") from None
    except ValueError as error:  # wrong TOML, or a number of thousands of digits
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: tables or lists are nested too deeply") from None


def _seeds_table(path: Path) -> dict[str, Any]:
    tables = _read_toml(path)
    other = sorted(set(tables) - {"isv"})
    if other or not isinstance(tables.get("isv"), dict):
        got = f"'{other[0]}'" if other else "no such table"
        raise ConfigError(f"{path}: expected one table [isv] with slot names in lower case, got {got}")
    return tables["isv"]


def _flatten(tree: Mapping[str, Any], prefix: str, origin: str) -> Iterator[Setting]:
    if prefix.count(".") > DEPTH_MAX:
        raise ConfigError(f"{origin}: {prefix[:40]}...: tables are nested too deeply, at most {DEPTH_MAX} are meant")
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{prefix}{key}.", origin)
        else:
            yield Setting(prefix + key, value, origin)


def _merged(settings: Iterable[Setting]) -> RunConfig:
    tree: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for setting in settings:
        _insert(tree, setting)
        origins[setting.key] = setting.origin
    return validated(tree, origins)


def validated(tree: Mapping[str, Any], origins: Mapping[str, str]) -> RunConfig:
    """The configuration of a tree of values. origins: by dotted key, where the user wrote it. Raises ConfigError."""
    try:
        config = RunConfig.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(_describe(error, origins)) from None
    _check_seeds(config, origins)
    return config


def _insert(tree: dict[str, Any], setting: Setting) -> None:
    *parents, leaf = setting.key.split(".")
    node = tree
    for depth, parent in enumerate(parents):
        node = node.setdefault(parent, {})
        if not isinstance(node, dict):
            above = ".".join(parents[: depth + 1])
            raise ConfigError(f"{setting.origin}: {setting.key}: '{above}' is a single value, it has no keys below it")
    node[leaf] = setting.value


# Slots that pay for something else than the market, and the value at which they do not. Path targets know the market's
# part alone.
_NEUTRAL = {"entry_cost_usd": 0.0, "short_hold_penalty": 1.0, "hold_bonus_usd": 0.0, "drawdown_rate": 0.0,
            "anti_martingale_gain": 0.0}  # fmt: skip


def _check_seeds(config: RunConfig, origins: Mapping[str, str]) -> None:
    path_targets = config.hindsight == "path" and config.updates > 0
    if not config.isv and not (path_targets and config.preset != "foxhunt"):
        return
    from foxhunt_cli.isv.seeds import seed_values  # numpy; only a run with seeds pays for it
    from foxhunt_cli.isv.table import number

    try:
        values = seed_values(config.isv, config.preset)
    except ValueError as error:
        named = [origins.get(f"isv.{name}") for name in config.isv if name in str(error)]
        raise ConfigError(f"{named[0] if named and named[0] else 'isv'}: {error}") from None
    for name, neutral in _NEUTRAL.items() if path_targets else ():
        value = float(values[number(name.upper())])
        if value != neutral:
            raise ConfigError(
                f"{origins.get(f'isv.{name}', f'preset {config.preset}')}: isv.{name} is {value:g}, path targets "
                f"(hindsight = path) need {neutral:g}: they know what the market pays and nothing else; set it to "
                f"{neutral:g} or use --hindsight close, peak or none"
            )


def _describe(error: ValidationError, origins: Mapping[str, str]) -> str:
    """The first problem as one line; unknown keys come first, since they often explain the others."""
    problems = sorted(error.errors(), key=_rank)
    problem = problems[0]
    path, model = _locate(problem["loc"])
    key = ".".join(path)
    origin = _origin(key, origins)
    if problem["type"] == "extra_forbidden":
        text = f"{origin}unknown key '{key}'{_suggestion(path, model)}"
    elif problem["type"] == "value_error":
        text = f"{origin}{key}{': ' if key else ''}{problem['ctx']['error']}"
    else:
        is_table = problem["type"] in ("model_type", "dict_type")
        wanted = "should be a table" if is_table else problem["msg"].removeprefix("Input ")
        text = f"{origin}{key} {wanted[0].lower()}{wanted[1:]}, got {problem['input']!r}"
    return text if len(problems) == 1 else f"{text} (and {len(problems) - 1} more)"


def _rank(problem: Mapping[str, Any]) -> tuple[bool, bool]:
    """Unknown keys first; last the complaint that a table is no string, where a name or a table may stand."""
    return problem["type"] != "extra_forbidden", problem["type"] == "string_type"


def _locate(loc: Sequence[str | int]) -> tuple[list[str], type[BaseModel] | None]:
    """Dotted path of a problem, and the model that its last part belongs to (None within plain values).

    pydantic puts the branch of a union into it (``data.instrument.Instrument.fee``); users write no such part.
    """
    path: list[str] = []
    model: type[BaseModel] | None = RunConfig
    owner = model
    for part in map(str, loc):
        if path and (part in ("str", "int", "float") or (model is not None and part == model.__name__)):
            continue
        path.append(part)
        owner, field = model, model.model_fields.get(part) if model is not None else None
        model = _model_of(field.annotation) if field is not None else None
    return path, owner


def _origin(key: str, origins: Mapping[str, str]) -> str:
    """Where ``key``, or the nearest key above or below it, was written, as a prefix; "" where nobody wrote it."""
    for known in sorted(origins, key=len, reverse=True):
        if key and (known == key or known.startswith(f"{key}.") or key.startswith(f"{known}.")):
            return f"{origins[known]}: "
    return ""


def _suggestion(path: Sequence[str], model: type[BaseModel] | None) -> str:
    """``; did you mean ...?`` for an unknown key of ``model``, or where nothing is near, all that are allowed."""
    if model is None:
        return ""
    allowed = sorted(model.model_fields)
    prefix = "".join(f"{part}." for part in path[:-1])
    close = difflib.get_close_matches(path[-1], allowed, n=1, cutoff=0.6)
    if close:
        return f"; did you mean '{prefix}{close[0]}'? ('foxhunt init' writes every key, explained)"
    return f"; allowed: {', '.join(prefix + name for name in allowed)}"


def _model_of(annotation: Any) -> type[BaseModel] | None:
    """The pydantic model an annotation stands for, also within ``X | None``; None for any other type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Union, types.UnionType):
        return next((model for model in map(_model_of, get_args(annotation)) if model), None)
    return None


def dump_toml(config: BaseModel, prefix: str = "") -> str:
    """``config`` as TOML with each field's description above it; unset fields are commented out. Reads back equal."""
    lines: list[str] = []
    tables: list[str] = []
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        path = f"{prefix}{name}"
        comment = [f"# {line}" for line in (field.description or "").splitlines()]
        if isinstance(value, BaseModel):
            tables += ["", *comment, f"[{path}]", dump_toml(value, f"{path}.").rstrip("\n")]
        elif isinstance(value, dict):
            tables += ["", *comment, f"[{path}]", *(f"{_toml_key(k)} = {_toml_value(v)}" for k, v in value.items())]
        elif value is None:
            lines += [*comment, f"# {name} ="]
        else:
            lines += [*comment, f"{name} = {_toml_value(value)}"]
    return "\n".join([*lines, *tables]) + "\n"


def _toml_key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else json.dumps(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_none=True)
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml_key(str(k))} = {_toml_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple | set | frozenset):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    return json.dumps(str(value), ensure_ascii=False)
