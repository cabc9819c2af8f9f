"""The contents of a release, and how to build it: for `make release`, `make sbom`, `make licences` and `make audit`."""
