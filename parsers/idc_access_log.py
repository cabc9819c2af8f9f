"""IDC access logs: 15 fields, each wrapped in `<<<!>>>`, cleansed to five columns."""

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
    Cleanses an access log line to `houseid|gathertime|srcip:srcport|destip:destport|url`.

    Args:
        engine: `compiled`, `plain`, or `auto` for compiled where Numba is there.
    """

    def __init__(self, *, engine: str = "auto") -> None:
        """Fix every option but the engine."""
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
