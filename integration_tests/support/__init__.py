"""What the tests of several rooms share: clusters, proxies, disks, steady clients."""
