"""What operators do with the service's offsets and topics: inspect, repair, replay and audit."""
