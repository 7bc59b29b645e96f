"""Bad inputs and faults, tried against every command: no traceback, no hang, no silent acceptance.

`python -m badinputs` tries all of them; tests/test_badinputs.py tries those that are fast.
"""
