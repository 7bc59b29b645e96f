"""The work of a client: it trains a net, or it sums fixed features."""
