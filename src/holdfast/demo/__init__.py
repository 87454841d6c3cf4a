"""`holdfast demo`: a real pipeline that is killed, loses its Spark directory and is rewound, and no row with it."""
