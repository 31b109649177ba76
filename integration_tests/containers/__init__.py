"""The image and the compose file of conf/container, built and run."""
