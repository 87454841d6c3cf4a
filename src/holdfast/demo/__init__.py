"""`holdfast demo`: a real PySpark query that loses its driver and its checkpoint directory, and no row."""
