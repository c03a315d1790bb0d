"""Parts that every Gantry process needs: settings, directories, probes, logs."""
