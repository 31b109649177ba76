"""The state logs of coordinators: loaded, damaged, not understood."""
