"""SQL text and pyarrow expressions as Arrow kernels, and what they tell of rows without reading them."""
