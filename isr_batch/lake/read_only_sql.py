"""Check a user's SQL before Spark runs it: only queries on tables and views of the lake are allowed."""

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from py4j.java_gateway import JavaObject, is_instance_of  # type: ignore[import-untyped]
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from isr_batch.errors import UsageError, explained_error
from isr_batch.lake.sql_files import sql_texts

Java: TypeAlias = Any
"""An object in Spark's JVM, such as a node of a parsed query."""
# The nodes that a parsed query may contain. All others are refused: statements that change something, and nodes that
# later versions of Spark may add.
_QUERY: Final = frozenset({
    "Aggregate", "AsOfJoin", "CurrentNamespace$", "DescribeRelation", "Distinct", "Except", "Filter", "Generate",
    "GlobalLimit", "Intersect", "Join", "LateralJoin", "LocalLimit", "LocalRelation", "Offset", "OneRowRelation",
    "PipeOperator", "Pivot", "Project", "RepartitionByExpression", "Sample", "ShowTables", "ShowViews", "Sort",
    "SubqueryAlias", "Union", "UnresolvedHaving", "UnresolvedHint", "UnresolvedInlineTable", "UnresolvedRelation",
    "UnresolvedSubqueryColumnAliases", "UnresolvedTVFAliases", "UnresolvedTableOrView", "UnresolvedTableValuedFunction",
    "UnresolvedWith", "Unpivot", "WithWindowDefinition",
})  # fmt: skip
_WITH_PLAN: Final = {"ExplainCommand": "logicalPlan", "DescribeQueryCommand": "plan"}
"""Statements that describe a query without running it, each with the name of the field that contains its plan."""
_LEAVES: Final = frozenset({"Literal", "UnresolvedAttribute", "UnresolvedRelation"})
"""Kinds of nodes that only contain names and values, so their parts need no check. Most nodes are of these kinds."""
_TABLES: Final = frozenset({"UnresolvedRelation", "UnresolvedTableOrView"})
_RUNS_JAVA: Final = frozenset({"java_method", "reflect", "try_reflect"})
_ROWS_OF: Final = frozenset({
    "explode", "explode_outer", "inline", "inline_outer", "json_tuple", "posexplode", "posexplode_outer", "range",
    "stack",
})  # fmt: skip
"""Table-valued functions that a query may use."""
_PLAN: Final = "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan"
_ITERABLE: Final = "scala.collection.Iterable"
_PRODUCT: Final = "scala.Product"
_NODES: Final = (_PLAN, "org.apache.spark.sql.catalyst.trees.TreeNode")
_FORMS: Final = (*_NODES, _ITERABLE, _PRODUCT)
_LEVELS: Final = 200
TOO_DEEP: Final = ("the query has too many levels", "split it")
HINT: Final = (
    "`isr-batch sql` only runs queries; --unrestricted runs any Spark SQL statement, with all rights of this user"
)


def require_query(spark: SparkSession, text: str, names: Collection[str]) -> None:
    """Raise if a SQL text does anything else than query tables and views with the given names.

    Raises
    ------
    UsageError
        If the text contains a statement, table or function that is not allowed (the message names it), or if Spark
        cannot parse the text.
    """
    if text.count("/*") > _LEVELS:  # thousands of nested comments would fill the memory of Spark's parser
        raise UsageError(*TOO_DEEP)
    try:
        # Variable substitution would insert settings and environment variables into the text.
        spark.conf.set("spark.sql.variable.substitute", "false")
        with errors_of_read_only_query():
            plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)  # noqa: SLF001 (no public way)
        _ReadOnlyCheck(spark, names).plan(plan)
    except AttributeError as error:
        raise UsageError(
            "this Spark session cannot show the plan of a statement, so the statement cannot be checked", HINT
        ) from error
    except PySparkException as error:
        raise UsageError(str(error).strip().partition("\n")[0], f"the lake has {', '.join(names)}") from error


@contextmanager
def errors_of_read_only_query() -> Iterator[None]:
    """Convert errors of a user's query that PySpark does not convert itself, such as Py4J's, to a UsageError.

    Errors that are not the query's fault, such as a full disk, are raised unchanged.

    Raises
    ------
    UsageError
    """
    try:
        yield
    except Py4JJavaError as error:
        text = str(error.java_exception)
        if "StackOverflowError" in text:
            raise UsageError(*TOO_DEEP) from None
        if explained_error(error):
            raise
        raise UsageError(f"Spark cannot compute the query: {text.partition(chr(10))[0]}") from error
    except (
        ValueError,
        OverflowError,
        TypeError,
    ) as error:  # for a date in the year 0, or a map with lists as keys
        raise UsageError(f"Python cannot pass on a value: {error}", "CAST it to STRING") from error


class _ReadOnlyCheck:
    """Checks all parts of a parsed plan. Spark's ``children`` would omit functions and queries in other fields."""

    def __init__(self, spark: SparkSession, names: Collection[str]) -> None:
        java: Java = spark._jvm  # noqa: SLF001
        self._gateway = spark.sparkContext._gateway  # noqa: SLF001
        self._list = java.scala.jdk.javaapi.CollectionConverters.asJava
        self._forms: dict[str, str] = {}
        builtin = java.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin().listFunction().mkString("\n")
        own = re.findall(r"FUNCTION\s+(\w+)", "\n".join(sql_texts("functions").values()))
        self._functions = {name.rpartition(".")[2].lower() for name in builtin.splitlines()} | set(own)
        self._names = {name.lower() for name in names}
        self._has = ", ".join(names) or "no table"

    def plan(self, plan: Java) -> None:
        """Raise a UsageError if a node of a parsed plan is not allowed."""
        rest: list[tuple[Java, frozenset[str], int]] = [(plan, frozenset(), 0)]
        while rest:
            part, named, level = rest.pop()
            if not isinstance(part, JavaObject):
                continue
            if level > _LEVELS:
                raise UsageError(*TOO_DEEP)
            kind, form = self._kind_of(part)
            if kind in _WITH_PLAN:
                rest.append((getattr(part, _WITH_PLAN[kind])(), named, level + 1))
            elif kind == "UnresolvedWith":
                # A query may use common table expressions that are defined before it; a recursive one may use itself.
                for each in self._list(part.innerChildren()):
                    named |= {each.alias().lower()}
                    rest.append((each, named, level + 1))
                rest.append((part.child(), named, level + 1))
            else:
                self._node(part, kind, form, named)
                if kind not in _LEAVES:
                    rest += [(each, named, level + (form in _NODES)) for each in self._made_of(part, form)]

    def _kind_of(self, part: Java) -> tuple[str, str]:
        """Return the class of a part of a plan, and the interface in `_FORMS` through which its parts are listed."""
        name = part.getClass().getName()
        if name not in self._forms:
            forms = (form for form in _FORMS if is_instance_of(self._gateway, part, form))
            self._forms[name] = next(forms, "")
        return name.rpartition(".")[2], self._forms[name]

    def _made_of(self, part: Java, form: str) -> Iterable[Java]:
        """Return the direct parts of a part of a plan, whose interface is ``form``; none if it has no interface."""
        return self._list(part.toSeq() if form == _ITERABLE else part.productIterator().toSeq()) if form else ()

    def _node(self, node: Java, kind: str, form: str, named: frozenset[str]) -> None:
        """Raise if a node is of a kind that queries do not contain, or uses a table or function that is not allowed."""
        if form == _PLAN and kind not in _QUERY:
            words = re.sub(r"(?<!^)(?=[A-Z])", " ", kind.strip("$")).lower()
            raise UsageError(f"this is not a query on the lake's tables: {words}", HINT)
        if kind in _TABLES:
            self._table(self._words(node.multipartIdentifier()), named)
        elif kind == "UnresolvedTableValuedFunction":
            self._function(self._words(node.name()), _ROWS_OF)
        elif kind == "UnresolvedFunction":
            self._function(self._words(node.nameParts()), self._functions)
        elif kind == "UnresolvedGenerator":
            self._function(self._words(node.name().nameParts()), self._functions)
        elif kind == "ExpressionWithUnresolvedIdentifier":
            raise UsageError("names computed with IDENTIFIER are not allowed", HINT)

    def _table(self, words: list[str], named: frozenset[str]) -> None:
        """Raise if a table is neither in the lake nor defined in the query (``named``)."""
        if len(words) > 1 or words[0].lower() not in self._names | named:
            raise UsageError(f"the lake has no {'.'.join(words)}", f"it has {self._has}. {HINT}")

    def _function(self, words: list[str], known: Collection[str]) -> None:
        """Raise if a function is not among the ``known`` ones, or runs Java code."""
        name = ".".join(words).lower()
        if name not in known or name in _RUNS_JAVA:
            raise UsageError(f"function {name} is not allowed in a query", HINT)

    def _words(self, words: Java) -> list[str]:
        """Convert a Java list to a Python list."""
        return [*self._list(words)]
