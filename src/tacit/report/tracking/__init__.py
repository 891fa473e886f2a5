"""Trackers: TensorBoard and MLflow. All read run folders, so that what is shown can be sent at any time."""
