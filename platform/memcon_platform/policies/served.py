"""A running `memcon serve`, asked through its gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx2

from memcon import codec
from memcon.errors import ConfigError, UnavailableError, UnknownNameError
from memcon.policy_types import LearningSettings, TableImport
from memcon_platform.policies.record import TableRecord, TableSummary, record_of_dump, summary_of_listed
from memcon_policy_server import wire
from memcon_policy_server.client.transport import authorization, reply_of

__all__ = ["ServedPolicy"]

# More than a gateway gives one request by default.
ASK_TIMEOUT_S = 60.0


class ServedPolicy:
    """The tables of the server at `url`. Each request is made once: a command that failed may be repeated.

    Raises:
        ConfigError: `url` names no server.
    """

    def __init__(self, url: str, token: str | None, say: Callable[[str], None]) -> None:
        self.name = url.rstrip("/")
        if not urlsplit(self.name).hostname:
            raise ConfigError(f"url {url!r} names no server; expected http://HOST:PORT, as `memcon serve` prints it")
        self._say = say
        # Proxies of the environment must not see the loopback.
        self._http = httpx2.Client(trust_env=False, timeout=ASK_TIMEOUT_S, headers=dict(authorization(token)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def tables(self) -> list[str]:
        """Names of the tables, sorted."""
        return sorted(self._listed())

    def summaries(self) -> list[TableSummary]:
        """What a list says of each table, by name."""
        return [self._summary(table, listed) for table, listed in sorted(self._listed().items())]

    def summary(self, table: str) -> TableSummary:
        """What a list says of one table.

        Raises:
            UnknownNameError: there is none of that name.
        """
        listed = self._listed()
        if table not in listed:
            raise UnknownNameError(f"table in {self.name}", table, listed)
        return self._summary(table, listed[table])

    def table(self, table: str, key: str | None = None) -> TableRecord:
        """One table whole, or at the key `key` or all that hold it, with the coarser keys of each.

        Raises:
            UnknownNameError: there is none of that name.
        """
        return self._record(self.summary(table), key)

    def every_table(self) -> Iterator[TableRecord]:
        """All tables whole, one after the other, by name."""
        return map(self._record, self.summaries())

    def settings(self, table: str) -> LearningSettings | None:
        """The settings of `table`; None = there is none of that name."""
        listed = self._listed().get(table)
        return None if listed is None else codec.decode(LearningSettings, listed["settings"])

    def create(self, settings: LearningSettings, request: TableImport) -> None:
        """Open the table of `request` with `settings`, or find it so, and fill it; safe to repeat.

        Raises:
            ConflictError: it has decisions, other settings, or another start.
        """
        self._post(wire.OPEN_TABLE, {"table": request.table, "settings": settings})
        try:
            self._post(wire.IMPORT_TABLE, request)
        except wire.TooLargeError as error:
            raise ConfigError(
                f"table '{request.table}' is too large for one request ({error.args[0].partition(';')[0]}); raise "
                "limits.max_import_bytes of the server, or stop it and import into its folder"
            ) from error

    def freeze(self, table: str, *, frozen: bool) -> bool:
        """Let the table learn nothing from now on, or learn again; True if that is a change.

        Raises:
            UnknownNameError: there is none of that name.
        """
        self.summary(table)
        return bool(self._post(wire.FREEZE_TABLE, {"table": table, "frozen": frozen})["changed"])

    def _summary(self, table: str, listed: Mapping[str, Any]) -> TableSummary:
        return summary_of_listed(table, listed, where=self.name)

    def _record(self, summary: TableSummary, key: str | None = None) -> TableRecord:
        self._say(f"reading table '{summary.table}', {summary.keys} keys")
        query = {"table": summary.table} if key is None else {"table": summary.table, "key": key}
        return record_of_dump(
            self._ask("GET", wire.TABLES, query=query)["tables"][summary.table], summary, where=self.name
        )

    def _listed(self) -> Mapping[str, Mapping[str, Any]]:
        answer = self._ask("GET", wire.TABLES)
        if "shard" in answer:
            raise ConfigError(
                f"{self.name} is the listener of shard {answer['shard']} alone; give the URL that `memcon serve` prints"
            )
        listed: Mapping[str, Mapping[str, Any]] = answer["tables"]
        return listed

    def _post(self, path: str, message: object) -> Any:
        return self._ask("POST", path, body=codec.encode_json(message).encode())

    def _ask(self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: bytes = b"") -> Any:
        headers = {"content-type": "application/json"} if body else {}
        try:
            return reply_of(
                self._http.request(method, self.name + path, params=query, content=body or None, headers=headers)
            )
        except wire.UnauthorizedError as error:
            raise wire.UnauthorizedError(
                f"{self.name} does not take the token that was sent, if any; give --token-file with the file `token` "
                "of the served folder, or set MEMCON_TOKEN"
            ) from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise UnavailableError(
                f"no answer from {self.name} ({type(error).__name__}: {error}); is `memcon serve` running there? Give "
                "its folder instead to read what its journals hold"
            ) from error
