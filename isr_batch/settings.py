"""Load settings from layers: defaults, ``conf/base.yaml``, ``conf/NAME.yaml``, environment variables, options.

Later layers override earlier ones. All mistakes are reported in one error, each with its layer, before Spark starts.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from isr_batch.errors import UsageError
from isr_batch.phrases import did_you_mean
from isr_batch.rule_names import rule_names_between_commas
from isr_batch.shipped_files import shipped
from isr_batch.yaml_files import load_yaml

ENV_VARIABLE: Final = "ISR_BATCH_ENV"
PREFIX: Final = "ISR_BATCH__"

Tree = dict[str, Any]


def _settings_switch(value: object) -> object:
    """Convert True to "on" and False to "off", because YAML parses these two words as booleans. Keep other values."""
    return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


class _Section(BaseModel):
    """Base class of the sections of the settings. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SparkSettings(_Section):
    """Section ``spark``: which engine commands use, and the options of the Spark session that they start.

    Under spark-submit, only ``arrow_batch_rows`` and ``shuffle_partitions`` apply to the session.
    """

    engine: Literal["auto", "spark", "local"] = "auto"
    master: str = "local[*]"
    shuffle_partitions: int | None = Field(default=None, ge=1)
    driver_memory: str = Field(default="2g", pattern=r"^\d+[mgMG]$")
    arrow_batch_rows: int = Field(default=100_000, ge=1)


class IngestSettings(_Section):
    """Section ``ingest``: the largest share of rows that an ingest may refuse without failing."""

    max_quarantine_ratio: float = Field(default=0.01, ge=0, le=1)


class ReplaySettings(_Section):
    """Section ``replay``: rules (``all`` or names), their parameters, and whether clusters use ELR (KIP-966)."""

    rules: Annotated[list[str], NoDecode, BeforeValidator(rule_names_between_commas)] = Field(
        default=["all"], min_length=1
    )
    params: dict[str, dict[str, int | str]] = {}
    elr: Annotated[Literal["auto", "off", "on"], BeforeValidator(_settings_switch)] = "auto"


class ValidationSettings(_Section):
    """Section ``validation``: the smallest share of ISR changes that must match between brokers and replay."""

    min_matched_ratio: float = Field(default=0.95, ge=0, le=1)


class Settings(BaseSettings):
    """All settings of a command, merged from all layers."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, env_prefix=PREFIX, env_nested_delimiter="__")

    spark: SparkSettings = SparkSettings()
    ingest: IngestSettings = IngestSettings()
    replay: ReplaySettings = ReplaySettings()
    validation: ValidationSettings = ValidationSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 (the names are pydantic-settings' own, here and below)
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Ignore variables and files. `load_settings` reads them, so that it knows where each mistake came from."""
        return (init_settings,)

    @property
    def hash(self) -> str:
        """A hash of all values, as twelve hex digits, which ``run_log`` records."""
        text = json.dumps(self.model_dump(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def load_settings(env: str | None = None, options: Tree | None = None, conf: Path | None = None) -> Settings:
    """Load the settings from all layers, merge them, and validate the result.

    Parameters
    ----------
    env : str, optional
        Name of ``conf/NAME.yaml``; by default ``ISR_BATCH_ENV``, if set.
    options : dict, optional
        Values of command-line options, nested by section, such as ``{"spark": {"engine": "local"}}``.
    conf : Path, optional
        Folder of the YAML files; by default ``conf`` in the working directory, else the folder that came with the
        package.

    Raises
    ------
    UsageError
        If there are mistakes. The message lists the mistakes in all layers.
    """
    mistakes: list[str] = []
    layers = _settings_layers(env or os.environ.get(ENV_VARIABLE), options or {}, conf or _conf_folder(), mistakes)
    merged: Tree = {}
    for _, layer in layers:
        merged = _merge_settings(merged, layer)
    try:
        settings = Settings(**merged)
        replay = _read_params(settings.replay, layers, mistakes)
        settings = settings.model_copy(update={"replay": replay})
    except ValidationError as error:
        mistakes += [_settings_mistake(details["loc"], details, layers) for details in error.errors()]
    if mistakes:
        count = "a mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        raise UsageError(
            f"{count} in the settings:" + "".join(f"\n  {mistake}" for mistake in mistakes),
            "`isr-batch config show` prints the settings in force; conf/base.yaml lists every key",
        )
    return settings


def _conf_folder() -> Path | None:
    """Return the folder ``conf`` of the working directory, or the one that came with the package, or None."""
    return next((folder for folder in (Path("conf"), shipped("conf")) if (folder / "base.yaml").is_file()), None)


def _settings_layers(env: str | None, options: Tree, conf: Path | None, mistakes: list[str]) -> list[tuple[str, Tree]]:
    """Return all layers as (name for messages, tree), lowest priority first. Mistakes are appended to ``mistakes``.

    ``env`` is the environment, ``options`` are the values of command-line options, and ``conf`` is the folder of the
    files.
    """
    layers = []
    for path in [conf / "base.yaml", *([conf / f"{env}.yaml"] if env else [])] if conf else []:
        if path.is_file():
            layers.append((str(path), _read_settings_yaml(path, mistakes)))
        elif path.stem == env:
            names = sorted(other.stem for other in path.parent.glob("*.yaml"))
            mistakes.append(f"environment {env}: there is no {path}; {did_you_mean(env, names)}")
    if env and not conf:
        mistakes.append(f"environment {env}: this folder has no conf/base.yaml")
    try:
        layers.append(("variables", EnvSettingsSource(Settings)()))
    except SettingsError as error:
        mistakes.append(f"variables: {error}")
    # pydantic-settings ignores variables of unknown sections, so misspelt sections have to be found here.
    known = [f"{PREFIX}{section.upper()}" for section in Settings.model_fields]
    for name in sorted(os.environ):
        if name.startswith(PREFIX) and not name.startswith(tuple(f"{section}__" for section in known)):
            head = PREFIX + name.removeprefix(PREFIX).partition("__")[0]
            mistakes.append(f"variables: {name}: no such section; {did_you_mean(head, known)}")
    return [*layers, ("options", options)]


def _read_settings_yaml(path: Path, mistakes: list[str]) -> Tree:
    """Read a YAML file of settings. If it is not valid, append a mistake and return an empty dict."""
    try:
        content = load_yaml(path)
    except yaml.YAMLError as error:
        mistakes.append(f"{path}: not YAML: {' '.join(str(error).split())}")
        return {}
    if content is not None and not isinstance(content, dict):
        mistakes.append(f"{path}: sections with keys are expected, not a {type(content).__name__}")
        return {}
    return content or {}


def _merge_settings(below: Tree, above: Mapping[str, Any]) -> Tree:
    """Merge two nested dicts of settings. Values in ``above`` take precedence."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merge_settings(merged[key], value) if both else value
    return merged


def _settings_mistake(
    location: tuple[int | str, ...], details: Mapping[str, Any], layers: list[tuple[str, Tree]]
) -> str:
    """Describe an error of pydantic in one sentence, which names the key, and the layer with the wrong value.

    ``location`` is the path of the key, and ``details`` is pydantic's description.
    """
    where = f"{_settings_layer_of(location, layers)}: {'.'.join(str(part) for part in location)}"
    if details["type"] == "extra_forbidden":
        model: type[BaseModel] = Settings
        for part in location[:-1]:
            annotation = model.model_fields[str(part)].annotation
            if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
                break
            model = annotation
        return f"{where}: no such key; {did_you_mean(str(location[-1]), model.model_fields)}"
    message = details["msg"]
    return f"{where}: {message[0].lower()}{message[1:]}, not {details['input']!r}"


def _settings_layer_of(location: tuple[int | str, ...], layers: list[tuple[str, Tree]]) -> str:
    """Return the name of the layer with the highest priority among those that set a key."""
    for name, layer in reversed(layers):
        node: object = layer
        for part in location:
            if not isinstance(node, Mapping):
                return name
            if part not in node:
                break
            node = node[part]
        else:
            return name
    return "settings"


def _read_params(replay: ReplaySettings, layers: list[tuple[str, Tree]], mistakes: list[str]) -> ReplaySettings:
    """Check rules and parameters, and append all mistakes to ``mistakes``.

    Return the settings with our names of parameters and with numbers as their values.
    """
    if replay.rules == ["all"] and not replay.params:
        return replay
    from udfs.rules import COMMON_PARAMS, REGISTRY  # imports numba, which most commands need not wait for

    where = _settings_layer_of(("replay", "rules"), layers)
    mistakes += [
        f"{where}: replay.rules: no rule {name}; {did_you_mean(name, REGISTRY)}"
        for name in replay.rules
        if name not in REGISTRY and replay.rules != ["all"]
    ]
    read: dict[str, dict[str, int | str]] = {}
    for rule, params in replay.params.items():
        where = _settings_layer_of(("replay", "params", rule), layers)
        if rule not in REGISTRY:
            mistakes.append(f"{where}: replay.params: no rule {rule}; {did_you_mean(rule, REGISTRY)}")
            continue
        for given, value in params.items():
            name = given.replace(".", "_").replace("-", "_")  # Kafka's spelling, with dots, is accepted too
            param = REGISTRY[rule].param(name)
            if param is None:
                known = (*COMMON_PARAMS, *REGISTRY[rule].params)
                mistakes.append(f"{where}: replay.params.{rule}: no parameter {given}; {did_you_mean(name, known)}")
                continue
            try:
                read.setdefault(rule, {})[name] = param.value(value)
            except ValueError as error:
                mistakes.append(f"{where}: replay.params.{rule}.{given}: {error}")
    return replay.model_copy(update={"params": read})
