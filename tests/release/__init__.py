"""What a release is made of, and what it holds: for `make release`, `make sbom`, `make licences` and `make audit`."""
