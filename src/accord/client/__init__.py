"""What happens at a client: local training, or sums of fixed features."""
