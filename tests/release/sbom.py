"""The software bill of materials of the image, in CycloneDX. Equal contents give equal bytes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component as Part
from cyclonedx.model.component import ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from app import __version__
from tests.release.licences import licences
from tests.release.shipped import Component


def sbom(components: Sequence[Component], epoch: int) -> str:
    """
    Return the bill of materials as JSON.

    Args:
        components: what is shipped.
        epoch: the time of the release in seconds since the epoch, like SOURCE_DATE_EPOCH.

    Raises:
        Unknown: a component's licence is not known.
    """
    image = Part(
        name="winnow",
        version=__version__,
        type=ComponentType.CONTAINER,
        licenses=[LicenseExpression("Apache-2.0")],
        bom_ref="winnow",
    )
    parts = {each.name: _part(each) for each in components}
    bom = Bom(
        components=parts.values(),
        metadata=BomMetaData(component=image, timestamp=datetime.fromtimestamp(epoch, UTC)),
        serial_number=uuid5(NAMESPACE_URL, repr((__version__, components))),
    )
    bom.register_dependency(image, [parts[each.name] for each in components if not each.inside])
    for package in {each.inside for each in components} - {""}:
        bom.register_dependency(parts[package], [parts[each.name] for each in components if each.inside == package])
    return make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)


def _part(component: Component) -> Part:
    group, _, name = component.name.rpartition("/")
    purl = PackageURL(component.kind, group or None, name, component.version or None)
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=each) for each in component.sha256]
    # A Python package has a hash for each of its wheels, and the image contains one of them.
    one_file = component.kind != "pypi"
    wheels = ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=XsUri(str(purl)), hashes=hashes)
    return Part(
        name=name,
        group=group or None,
        version=component.version or None,
        type=ComponentType.LIBRARY,
        bom_ref=str(purl),
        purl=purl,
        licenses=[LicenseExpression(" OR ".join(f"({each})" if " " in each else each for each in licences(component)))],
        hashes=hashes if one_file else (),
        external_references=() if one_file else [wheels],
    )
