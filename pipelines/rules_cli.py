"""`isr-batch rules`: list and describe rules."""

from textwrap import wrap
from typing import Annotated

import typer

from isr_batch.errors import UsageError
from isr_batch.phrases import did_you_mean
from pipelines.job import Json
from pipelines.output import Output

rules_app = typer.Typer(no_args_is_help=True, help="List and describe the rules.")


@rules_app.command("list", epilog="Example: isr-batch rules list")
def list_rules_command(as_json: Json = False) -> None:
    """List the rules by kind (released, proposed, elsewhere, reference), then by time."""
    from udfs.rules import REGISTRY

    rows = [
        {
            "rule": rule.id,
            "kind": rule.kind,
            "year": rule.year,
            "in_force": rule.in_force,
            "what_it_says": rule.summary,
        }
        for rule in REGISTRY.values()
    ]
    Output(as_json=as_json).table("", rows, ("rule", "kind", "year", "in_force", "what_it_says"))


@rules_app.command("show", epilog="Example: isr-batch rules show kip-501-pending")
def show_rule_command(name: Annotated[str, typer.Argument(metavar="ID")], as_json: Json = False) -> None:
    """Describe a rule and its parameters."""
    from udfs.rules import COMMON_PARAMS, REGISTRY

    if name not in REGISTRY:
        raise UsageError(f"no rule {name}", did_you_mean(name, REGISTRY))
    rule = REGISTRY[name]
    out = Output(as_json=as_json)
    params = [
        {
            "parameter": name,
            "default": "" if param.default is None else param.name_of(param.default),
            "what": param.says,
        }
        for name, param in {**rule.params, **COMMON_PARAMS}.items()
    ]
    if as_json:
        out.say(rule=rule.id, in_force=rule.in_force, source=rule.source, params=params, doc=rule.doc)
        return
    out.text([*rule.doc.split("\n"), "", *wrap(rule.series, 110), ""])
    out.say(in_force=rule.in_force, source=rule.source)
    out.table("", params, ("parameter", "default", "what"))
