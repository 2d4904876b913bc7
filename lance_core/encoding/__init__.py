"""From Arrow arrays to the buffers of pages and back; no input or output."""
