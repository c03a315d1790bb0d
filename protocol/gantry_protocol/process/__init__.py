"""What every Gantry process agrees on with its platform: settings, directories, probes, logs."""
