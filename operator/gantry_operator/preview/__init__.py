"""What people are told before they change something: read from the API server, changing nothing."""
