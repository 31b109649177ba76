"""The assignors that brokers have, by the names that members ask for."""

from collections.abc import Mapping

from storage_engine.core.groups.assignors.assignment import Assignor
from storage_engine.core.groups.assignors.range_assignor import assign_ranges
from storage_engine.core.groups.assignors.uniform import assign_uniformly

ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}
"""The first one serves those who ask for none."""
