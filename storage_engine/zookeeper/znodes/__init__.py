"""The znodes that Kafka documents, by what they are about: their paths and their JSON."""
