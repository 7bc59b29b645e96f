"""The closed form: sums of fixed features, a ridge regression on them, and its probabilities."""
