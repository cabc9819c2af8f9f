"""Lines inside Flume's Avro events: `envelope.wrap` makes any parser read them."""
