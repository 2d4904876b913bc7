"""Object stores through obstore: S3, Google Cloud and Azure, their settings, and requests that are slow or fail."""
