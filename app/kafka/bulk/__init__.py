"""The bulk backend: compiled kernels move records between librdkafka and flat buffers."""
