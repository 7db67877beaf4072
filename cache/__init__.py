"""A content-addressed, crash-safe store of build artifacts. Knows nothing of kernels."""
