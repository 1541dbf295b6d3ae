"""docs/commands.md, docs/settings.md, docs/exit-codes.md: made from the command line, conf/base.yaml and the errors."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer

from docs.generate.landing_pages import MADE
from isr_batch import errors
from pipelines.cli import app

BASE: Final = Path(__file__).parents[2] / "conf" / "base.yaml"
_COMMANDS_SAID: Final = """\
This page has every command of `isr-batch` with its options, as `isr-batch COMMAND --help` prints them. Other pages
describe the [settings](settings.md), the [tables](tables.md) with the results, and the [exit codes](exit-codes.md),
which are the same for all commands.

Nearly all commands have these options:
"""
_COMMON: Final = ("--lake", "--catalog", "--env", "--quiet", "--json")
_SETTINGS_SAID: Final = """\
`conf/base.yaml` has every setting with its default. If several of these places set a value, the last one is used:

1. `conf/base.yaml`
2. `conf/NAME.yaml`, if `--env NAME` or the environment variable `ISR_BATCH_ENV` names it
3. an environment variable, with two underscores between levels: `ISR_BATCH__SPARK__DRIVER_MEMORY=8g`
4. an option of the command

`isr-batch config show` prints the values in force.

```yaml
{base}
```
"""
_CODES_SAID: Final = """\
A scheduler should start the command again after codes 6 and 70 and after the codes of signals (130, 137, 143). After
codes 2 to 5 it should alert an operator ([reasons](killed-and-concurrent.md)).

| code | when |
| --- | --- |
| 0 | success |
{codes}
| 130, 143 | stopped by a signal (SIGINT, SIGTERM); run it again |
| 137 | killed by the kernel, such as for its memory |

In Python, each of these errors is raised as an `isr_batch.IsrBatchError` with `exit_code`, `message` and `hint`
([notebook](notebook.md)).
"""


def commands() -> str:
    """Every command with its arguments and options."""
    group: Any = typer.main.get_command(app)
    common = [param for param in group.commands["replay"].params if param.opts[0] in _COMMON]
    return "\n".join(["# Commands\n", MADE, _COMMANDS_SAID, *_options(common), *_of_group(group, "isr-batch")])


def settings() -> str:
    """Every setting with its default."""
    return f"# Settings\n\n{MADE}\n{_SETTINGS_SAID.format(base=BASE.read_text(encoding='utf-8').strip())}"


def exit_codes() -> str:
    """Every exit code with the errors that have it."""
    said: dict[int, list[str]] = {}
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.IsrBatchError) and kind is not errors.IsrBatchError:
            said.setdefault(kind.exit_code, []).append(_sentence(kind))
    said[errors.BUG_EXIT_CODE].append("A bug, or a worker or JVM that died; the traceback is shown")
    rows = [f"| {code} | {'. '.join(sentences)} |" for code, sentences in sorted(said.items())]
    return f"# Exit codes\n\n{MADE}\n{_CODES_SAID.format(codes=chr(10).join(rows))}"


def _sentence(kind: type[errors.IsrBatchError]) -> str:
    summary = (kind.__doc__ or "").partition("\n")[0].rstrip(".").removeprefix("Raised if ")
    return summary[:1].upper() + summary[1:]


def _of_group(group: Any, name: str) -> Iterator[str]:
    for of_group, command in sorted(group.commands.items()):
        if hasattr(command, "commands"):
            yield from _of_group(command, f"{name} {of_group}")
        elif not command.hidden:
            yield from _command(command, f"{name} {of_group}")


def _command(command: Any, name: str) -> Iterator[str]:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    usage = " ".join(f"{param.name.upper()}{'...' if param.nargs == -1 else ''}" for param in arguments)
    yield f"## {name.removeprefix('isr-batch ')}\n"
    yield f"{_paragraphs(command.help)}\n"
    if usage:
        yield f"Arguments: `{usage}`.\n"
    if command.epilog:
        example = _paragraphs(command.epilog).removeprefix("Example: ")
        yield f"Example: <code>{_html(example)}</code>\n"
    options = [param for param in command.params if param.param_type_name == "option" and not param.hidden]
    if own := [param for param in options if param.opts[0] not in _COMMON]:
        yield from _options(own)


def _options(params: list[Any]) -> Iterator[str]:
    yield "| option | default | meaning |"
    yield "| --- | --- | --- |"
    yield from map(_option, params)
    yield ""


def _option(param: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*param.opts, *param.secondary_opts))
    default = param.default
    if callable(default) or default is None or default is False or default == ():
        default = ""
    required = "required" if param.required else f"`{default}`" if default != "" else ""
    return f"| {names} | {required} | {_html(param.help or '')} |"


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n|\f|\b\n", text or "") if part.strip())


def _html(text: str) -> str:
    """Text in one line, in which Markdown sees neither tags nor cells."""
    return " ".join(text.split()).replace("<", "&lt;").replace("|", "&#124;")
