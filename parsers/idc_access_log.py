"""IDC access logs: lines of 15 fields, each enclosed in `<<<!>>>`, cleansed to five columns."""

from __future__ import annotations

from parsers.delimited import Delimited

FIELDS = (
    "commandid",
    "houseid",
    "gathertime",
    "srcip",
    "destip",
    "srcport",
    "destport",
    "domainname",
    "proxytype",
    "proxyip",
    "proxyport",
    "title",
    "content",
    "url",
    "logid",
)


class IdcAccessLog(Delimited):
    """
    Cleanses access log lines to `houseid|gathertime|srcip:srcport|destip:destport|url`.

    The rules are those of `Delimited`. An IPv6 address is written in brackets. The url may be empty.

    Args:
        engine: `compiled`, `plain`, or `auto` for compiled if Numba can be imported and plain if not.

    Example:
        name: idc-access-log

    Raises:
        ParserOptionError: there is no such engine, or it is `compiled` and Numba cannot be imported.
    """

    def __init__(self, *, engine: str = "auto") -> None:
        super().__init__(
            marker="<<<!>>>",
            separator=",",
            fields=FIELDS,
            checks={
                "houseid": "not-empty",
                "gathertime": "datetime",
                "srcip": "ip",
                "destip": "ip",
                "srcport": "port",
                "destport": "port",
            },
            output="{houseid}|{gathertime}|{srcip}:{srcport}|{destip}:{destport}|{url}",
            escape=("url",),
            engine=engine,
        )
