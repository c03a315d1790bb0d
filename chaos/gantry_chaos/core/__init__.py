"""What a fault is and when it happens, as plain data: the time line, commands, packet rules."""
