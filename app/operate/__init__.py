"""What a person on call does beside the service: looks at it, and sets it right. A module is one command's matter."""
