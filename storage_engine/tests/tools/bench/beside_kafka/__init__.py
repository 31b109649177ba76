"""`headrace bench beside-kafka`: nothing is downloaded, and no cluster is started."""
