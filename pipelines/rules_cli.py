"""`isr-batch rules`, which lists and describes rules."""

from textwrap import wrap
from typing import Annotated

import typer

from isr_batch.errors import UsageError
from isr_batch.phrases import did_you_mean
from isr_batch.rule_names import take_in_rule_file
from pipelines.completion import complete_rule
from pipelines.job import Json, RuleFile
from pipelines.output import Output

rules_app = typer.Typer(no_args_is_help=True, help="List and describe the rules.")


@rules_app.command("list", epilog="Example: isr-batch rules list")
def list_rules_command(as_json: Json = False) -> None:
    """List the rules in this order: released with Kafka, proposed, used elsewhere, and only for comparison."""
    from udfs.rules import REGISTRY

    rows = [
        {
            "rule": rule.id,
            "kind": rule.kind,
            "year": rule.year,
            "in_force": rule.in_force,
            "replayed": "on request" if rule.on_request else "with all",
            "what_it_says": rule.summary,
        }
        for rule in REGISTRY.values()
    ]
    Output(as_json=as_json).table("", rows, ("rule", "kind", "year", "in_force", "replayed", "what_it_says"))


@rules_app.command("show", epilog="Example: isr-batch rules show kip-501-pending")
def show_rule_command(
    name: Annotated[str, typer.Argument(metavar="ID", autocompletion=complete_rule)],
    rule_file: RuleFile = None,
    as_json: Json = False,
) -> None:
    """Describe a rule: text, parameters, and code of its functions, including those that other rules define."""
    take_in_rule_file(rule_file)
    from isr_batch.rule_page import functions_of_rule
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
    functions = functions_of_rule(rule)
    rows = [{"function": each.name, "from": each.origin, "what": each.what} for each in functions]
    if as_json:
        code = [{**row, "code": each.code} for row, each in zip(rows, functions, strict=True)]
        out.say(rule=rule.id, in_force=rule.in_force, source=rule.source, params=params, doc=rule.doc, functions=code)
        return
    out.text([*rule.doc.split("\n"), "", *wrap(rule.series, 110), ""])
    out.say(in_force=rule.in_force, source=rule.source)
    out.say(checks_per_lag_time=rule.checks_per_lag_time, isr_write_in_background=rule.isr_write_in_background)
    out.table("", params, ("parameter", "default", "what"))
    out.table("", rows, ("function", "from", "what"))
    constants = {name: value for each in functions for name, value in each.constants.items()}
    out.text(f"{name} = {value}" for name, value in constants.items())
    for origin in dict.fromkeys([rule.id, *(each.origin for each in functions)]):
        out.text(["", f"# {origin}"])
        for each in functions:
            if each.origin == origin:
                out.text(["", *each.code.rstrip().split("\n")])
