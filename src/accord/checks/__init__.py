"""What an upload may claim: every number is compared with what is possible, before it is used."""

from accord.checks.upload import Check, check_file, check_upload, check_values

__all__ = ["Check", "check_file", "check_upload", "check_values"]
