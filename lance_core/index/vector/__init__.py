"""Vector search: distances, the nearest rows, and inverted files with flat, product- or scalar-quantized vectors."""
