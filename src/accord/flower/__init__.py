"""Flower as an engine: a ServerApp that runs a study, and a ClientApp that answers at each node.

Flower (flwr) carries the messages, with TLS and the nodes' keys. The messages themselves are
Accord's: a briefing and uploads, the same bytes as in a record or in a file.
"""
