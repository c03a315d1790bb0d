"""`gantry_lab bench broker`: a broker group under the load of RocketMQ clients."""
