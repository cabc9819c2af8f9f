"""The licence of each shipped component, and the licences that Winnow, itself under Apache-2.0, may ship."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatch

from license_expression import ExpressionError, get_spdx_licensing

from tests.release.shipped import Component

# Why each licence is allowed in a distributed image.
ALLOWED = {
    "0BSD": "asks for nothing",
    "Apache-2.0": "Winnow's own",
    "Apache-2.0 WITH LLVM-exception": "asks for less than Winnow's own",
    "BSD-2-Clause": "asks to be named",
    "BSD-3-Clause": "asks to be named",
    "CC0-1.0": "public domain",
    "EPL-2.0": "used unchanged, as its own files; its sources are public",
    "ISC": "asks to be named",
    "MIT": "asks to be named",
    "MPL-2.0": "used unchanged, as its own files; its sources are public",
    "PSF-2.0": "asks to be named",
    "Zlib": "asks not to be misrepresented",
    "LGPL-2.1-or-later": "a shared library of its own, which a user can replace",
    "GPL-3.0-only WITH GCC-exception-3.1": "the exception frees what is linked with GCC's runtime",
}
# Licences given by name, or by the end of an address, instead of an SPDX expression.
NAMES = {
    "Apache 2.0": "Apache-2.0",
    "Apache License": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "The Apache Software License, Version 2.0": "Apache-2.0",
    "Version 2.0": "Apache-2.0",  # the second half of "Apache License, Version 2.0" in Bundle-License
    "*apache.org/licenses/LICENSE-2.0*": "Apache-2.0",
    "This copy of Jackson JSON processor Scala module is licensed under the": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "The New BSD License": "BSD-3-Clause",
    "*asm.ow2.*": "BSD-3-Clause",
    "*opensource.org/licenses/bsd-license.php": "BSD-3-Clause",
    "*opensource.org/license*/BSD-3-Clause": "BSD-3-Clause",
    "*opensource.org/license/bsd-3-clause": "BSD-3-Clause",
    "*eclipse.org/org/documents/edl-v10.php": "BSD-3-Clause",
    "*opensource.org/licenses/BSD-2-Clause": "BSD-2-Clause",
    "*creativecommons.org/publicdomain/zero/1.0/": "CC0-1.0",
    "Eclipse Public License - v 2.0": "EPL-2.0",
    "*eclipse.org/legal/epl-2.0": "EPL-2.0",
    "*gnu.org/licenses/lgpl-2.1.html": "LGPL-2.1-or-later",
    "*gnu.org/software/classpath/license.html": "GPL-2.0-only WITH Classpath-exception-2.0",
    "MIT License": "MIT",
    "*opensource.org/licenses/mit-license.php": "MIT",
    "*opensource.org/license/mit": "MIT",
    "jquery.org/license": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "*mozilla.org/en-US/MPL/1.1/": "MPL-1.1",
    "Python Software Foundation License": "PSF-2.0",
    "*w3.org/Consortium/Legal/copyright-documents-19990405": "W3C-19980720",
}
# Components whose files do not state it, with the licence from the project's own source.
KNOWN = {
    "RoaringBitmap": "Apache-2.0",
    "async-timeout": "Apache-2.0",  # needed by Debian's older Python, so it may not be installed here
    "chill*": "Apache-2.0",
    "io.fabric8/kubernetes-*": "Apache-2.0",
    "io.vertx/vertx-*": "Apache-2.0 OR EPL-2.0",
    "json4s-*": "Apache-2.0",
    "jsr305": "BSD-3-Clause",
    "scala-parallel-collections_*": "Apache-2.0",
    "tink": "Apache-2.0",
    "libgfortran": "GPL-3.0-only WITH GCC-exception-3.1",
    "libquadmath": "LGPL-2.1-or-later",
    "librdkafka": "BSD-2-Clause",
    "libscipy_openblas64_": "BSD-3-Clause",
    "libyajl": "ISC",
}

licensing = get_spdx_licensing()


class Unknown(Exception):
    """A component's licence is missing or not recognised."""


def licences(component: Component) -> tuple[str, ...]:
    """
    Return the licences of a component as SPDX expressions. If there are several, the user may choose.

    Raises:
        Unknown: the licence is missing or not recognised. Add it to NAMES or KNOWN.
    """
    known = tuple(licence for pattern, licence in KNOWN.items() if fnmatch(component.name, pattern))
    if not known and not component.licences:
        raise Unknown(f"{component} says nothing of its licence: write it into KNOWN")
    return tuple(dict.fromkeys(known or (_expression(each, component) for each in component.licences)))


def _expression(words: str, component: Component) -> str:
    if found := next((spdx for name, spdx in NAMES.items() if fnmatch(words, name)), ""):
        return found
    try:
        licensing.parse(words, validate=True)
    except ExpressionError as error:
        raise Unknown(f"{component} is under {words!r}, which is no SPDX expression: write it into NAMES") from error
    return words


def is_allowed(expression: str) -> bool:
    """Return whether a licence may be shipped: every part joined by AND, or one of those joined by OR."""
    if expression in ALLOWED:
        return True
    parsed = licensing.parse(expression)
    if not (parts := getattr(parsed, "args", ())):
        return False
    decide = any if isinstance(parsed, licensing.OR) else all
    return decide(is_allowed(str(each)) for each in parts)


def not_allowed(components: Iterable[Component]) -> list[str]:
    """
    Return a sentence for each component that must not be shipped.

    Raises:
        Unknown: as above.
    """
    found = [(each, licences(each)) for each in components]
    return [
        f"{each} is under {', '.join(under)}, which nothing in ALLOWED allows"
        for each, under in found
        if not any(map(is_allowed, under))
    ]
