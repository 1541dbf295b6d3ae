"""Check, before it runs, that Spark SQL is a query on the tables of a lake and nothing else."""

import re
from collections.abc import Collection, Iterator
from typing import Any, Final, TypeAlias

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from isr_batch.errors import UsageError
from isr_batch.lake.sql_files import sql_texts

Java: TypeAlias = Any
"""An object in Spark's JVM: a part of a parsed plan."""
# Everything else is refused: statements that change something, and additions of later Spark versions.
_QUERY: Final = frozenset({
    "Aggregate", "AsOfJoin", "CurrentNamespace$", "DescribeRelation", "Distinct", "Except", "Filter", "Generate",
    "GlobalLimit", "Intersect", "Join", "LateralJoin", "LocalLimit", "LocalRelation", "Offset", "OneRowRelation",
    "PipeOperator", "Pivot", "Project", "RepartitionByExpression", "Sample", "ShowTables", "ShowViews", "Sort",
    "SubqueryAlias", "Union", "UnresolvedHaving", "UnresolvedHint", "UnresolvedInlineTable", "UnresolvedRelation",
    "UnresolvedSubqueryColumnAliases", "UnresolvedTVFAliases", "UnresolvedTableOrView", "UnresolvedTableValuedFunction",
    "UnresolvedWith", "Unpivot", "WithWindowDefinition",
})  # fmt: skip
_WITH_PLAN: Final = {"ExplainCommand": "logicalPlan", "DescribeQueryCommand": "plan"}
"""Statements about a query, which they do not run."""
_TABLES: Final = frozenset({"UnresolvedRelation", "UnresolvedTableOrView"})
_RUNS_JAVA: Final = frozenset({"java_method", "reflect", "try_reflect"})
_ROWS_OF: Final = frozenset({
    "explode", "explode_outer", "inline", "inline_outer", "json_tuple", "posexplode", "posexplode_outer", "range",
    "stack",
})  # fmt: skip
"""Functions that stand for a table."""
HINT: Final = "`isr-batch sql` only asks; --unrestricted runs whatever Spark understands, with all rights of this user"


def require_query(spark: SparkSession, text: str, names: Collection[str]) -> None:
    """Refuse SQL that is more than a query on tables and views of these names.

    Raises
    ------
    UsageError
        With the part that is not a plain query; or when Spark cannot parse it.
    """
    try:
        # Variables would put what is in the environment into the text.
        spark.conf.set("spark.sql.variable.substitute", "false")
        plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)  # noqa: SLF001 (no public way)
        _Check(spark, names).plan(plan, frozenset())
    except AttributeError as error:
        raise UsageError("this Spark session does not show the plan of a statement", HINT) from error
    except (RecursionError, Py4JJavaError) as error:
        if isinstance(error, Py4JJavaError) and "StackOverflowError" not in str(error.java_exception):
            raise
        raise UsageError("the query is nested too deeply", "split it") from None
    except PySparkException as error:
        raise UsageError(str(error).strip().partition("\n")[0], f"the lake has {', '.join(names)}") from error


class _Check:
    def __init__(self, spark: SparkSession, names: Collection[str]) -> None:
        java: Java = spark._jvm  # noqa: SLF001
        self._list = java.scala.jdk.javaapi.CollectionConverters.asJava
        builtin = java.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin().listFunction()
        own = re.findall(r"FUNCTION\s+(\w+)", "\n".join(sql_texts("functions").values()))
        self._functions = {each.funcName().lower() for each in self._list(builtin)} | set(own)
        self._names = {name.lower() for name in names}
        self._has = ", ".join(names) or "no table"

    def plan(self, node: Java, named: frozenset[str]) -> None:
        kind = node.getClass().getSimpleName()
        if kind in _WITH_PLAN:
            self.plan(getattr(node, _WITH_PLAN[kind])(), named)
            return
        if kind not in _QUERY:
            words = re.sub(r"(?<!^)(?=[A-Z])", " ", kind.strip("$")).lower()
            raise UsageError(f"this is not a query on the lake's tables: {words}", HINT)
        if kind in _TABLES:
            self._table(self._words(node.multipartIdentifier()), named)
        elif kind == "UnresolvedTableValuedFunction":
            self._function(self._words(node.name()), _ROWS_OF)
        inner = [*self._list(node.innerChildren())]
        if kind == "UnresolvedWith":
            # A later one of them may name an earlier one, and a recursive one itself.
            for each in inner:
                named |= {each.alias().lower()}
                self.plan(each, named)
            inner = []
        for each in (*self._list(node.children()), *inner):
            self.plan(each, named)
        for expression in self._list(node.expressions()):
            for function in self._functions_in(expression):
                self._function(function, self._functions)

    def _table(self, words: list[str], named: frozenset[str]) -> None:
        if len(words) > 1 or words[0].lower() not in self._names | named:
            raise UsageError(f"the lake has no {'.'.join(words)}", f"it has {self._has}. {HINT}")

    def _function(self, words: list[str], known: Collection[str]) -> None:
        name = ".".join(words).lower()
        if name not in known or name in _RUNS_JAVA:
            raise UsageError(f"function {name} is not allowed in a query", HINT)

    def _functions_in(self, expression: Java) -> Iterator[list[str]]:
        kind = expression.getClass().getSimpleName()
        if kind == "UnresolvedFunction":
            yield self._words(expression.nameParts())
        elif kind == "UnresolvedGenerator":
            yield self._words(expression.name().nameParts())
        for each in self._list(expression.children()):
            yield from self._functions_in(each)

    def _words(self, words: Java) -> list[str]:
        return [*self._list(words)]
