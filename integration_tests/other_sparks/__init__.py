"""Earlier versions of Spark, and Spark Connect: drivers of their own, each with its environment."""
