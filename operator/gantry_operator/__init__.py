"""The kopf operator: reconciles ControllerGroup and BrokerGroup resources."""
