"""The rules, one file per family. The registry in `rule.py` finds them."""
