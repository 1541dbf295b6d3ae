"""Define the rule run, one rule with one set of parameters, and find the value of each parameter."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from udfs.rules import REGISTRY, Param, Rule


@dataclass(frozen=True)
class RuleRun:
    """A rule to replay, by its id, and the parameters that the user set.

    The values of all other parameters come from the leader's settings or are the rule's defaults.
    """

    rule: str
    params: Mapping[str, int] = field(default_factory=dict)


def resolved_params(run: RuleRun, term: Mapping[str, Any]) -> dict[str, int]:
    """Return the value of each parameter of a rule run: the one the user set, else the leader's, else the default.

    ``term`` contains the leader's settings during one leader epoch (`udfs.batches.stream_columns.OF_BROKER`).
    """
    rule = REGISTRY[run.rule]
    lag_time = run.params.get("replica_lag_time_max_ms", term["replica_lag_time_max_ms"])
    return {
        "replica_lag_time_max_ms": lag_time,
        "min_insync_replicas": term["min_insync_replicas"],
        "check_period_ms": lag_time // rule.checks_per_lag_time if rule.checks_per_lag_time else 0,
        "check_phase_ms": term["check_origin_ms"],
        "isr_write_latency_ms": term["isr_write_ms"] if rule.isr_write_in_background else 0,
        **{name: param.default or 0 for name, param in rule.params.items()},
        **run.params,
    }


def params_json(run: RuleRun, term: Mapping[str, Any]) -> str:
    """Return a rule run's parameters as JSON with sorted keys, for the column ``params_json`` of results.

    It contains the rule's own parameters, the lag time, min.insync.replicas, and all parameters that the user set.
    ``term`` is as for `resolved_params`.
    """
    rule = REGISTRY[run.rule]
    shown = {"replica_lag_time_max_ms", "min_insync_replicas", *rule.params, *run.params}
    values = {name: value for name, value in resolved_params(run, term).items() if name in shown}
    return json.dumps(
        {name: _param_of_rule(rule, name).name_of(value) for name, value in values.items()}, sort_keys=True
    )


def _param_of_rule(rule: Rule, name: str) -> Param:
    """Return the rule's parameter ``name``, which must exist."""
    param = rule.param(name)
    assert param is not None
    return param
