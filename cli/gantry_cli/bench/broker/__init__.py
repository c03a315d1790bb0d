"""`gantry bench broker`: a broker group under the load of RocketMQ clients."""
