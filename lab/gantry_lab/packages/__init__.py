"""Ways to install Gantry besides the chart's directory, all made from the chart."""
