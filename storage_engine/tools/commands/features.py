"""Show the features of a cluster, and raise or lower their levels.

A feature stands for something that earlier releases do not know, such as a new kind of record. Each
broker supports some levels of it; the cluster uses one, the finalized level. Upgrading the brokers
changes no level: as long as a feature is not raised, all that is stored can be read by the release
before, and the brokers can be rolled back to it. Once all brokers are upgraded and work well, raise
the features. A new cluster begins at the newest levels.

A level is refused while a live broker does not support it. A broker that does not support the
levels of the cluster does not start.

features:
  group.version        1: consumer groups whose members get their partitions from the coordinator
                       (KIP-848); 0: only classic groups
  transaction.version  2: each transaction has an epoch of its own (KIP-890)

actions:
  describe    show the level that the cluster uses of each feature, the levels that all live
              brokers support, and the brokers that hold it back: they support less than others
  upgrade     raise features to a level
  downgrade   lower features to a level

examples:
  headrace features describe --bootstrap-server 127.0.0.1:9092
  headrace features upgrade --bootstrap-server 127.0.0.1:9092 --all --dry-run
  headrace features upgrade --bootstrap-server 127.0.0.1:9092 --feature group.version=1
  headrace features downgrade --bootstrap-server 127.0.0.1:9092 --feature group.version=0
"""

import argparse
from collections.abc import Mapping

from storage_engine.client.admin.features import (
    ClusterFeatureStates,
    FeatureState,
    describe_features,
    update_features,
)
from storage_engine.client.cluster import Cluster
from storage_engine.core.features import MAX_LEVEL, MAX_SHOWN, UpgradeType
from storage_engine.tools.actions import Actions, act_on_cluster
from storage_engine.tools.arguments import add_json
from storage_engine.tools.document import Document
from storage_engine.tools.errors import UsageError
from storage_engine.tools.table import print_rows, write_line

_COLUMNS = ("feature", "level", "lowest", "highest", ("held back by", "held_back_by"), "epoch")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace features`: each action has its own."""
    actions = Actions(parser, "features")
    describing = actions.add(
        "describe",
        _describe,
        "show the levels of all features, and the brokers that hold them back",
        "describe",
    )
    add_json(describing)
    raising = actions.add(
        "upgrade", _upgrade, "raise features to a level", "upgrade --feature group.version=1"
    )
    _add_features(raising)
    raising.add_argument(
        "--all",
        action="store_true",
        help="raise every feature to the highest level that all live brokers support",
    )
    lowering = actions.add(
        "downgrade", _downgrade, "lower features to a level", "downgrade --feature group.version=0"
    )
    _add_features(lowering)
    lowering.add_argument(
        "--unsafe",
        action="store_true",
        help="lower them even where some of what was stored is lost thereby",
    )


def _add_features(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--feature",
        action="append",
        default=[],
        metavar="NAME=LEVEL",
        help="feature with its new level; may be given several times: all are changed, or none",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="have the controller check whether it can be done, and change nothing",
    )


def run(args: argparse.Namespace) -> int:
    """Run `headrace features`."""
    return act_on_cluster(args)


def _levels(given: list[str]) -> dict[str, int]:
    levels: dict[str, int] = {}
    for text in given:
        name, equals, level = (part.strip() for part in text.partition("="))
        if not equals or not name or not (level.isascii() and level.isdigit()):
            raise UsageError(f"--feature '{text[:MAX_SHOWN]}' is not of the form NAME=LEVEL")
        if name in levels:
            raise UsageError(f"--feature names '{name}' twice")
        levels[name] = int(level) if len(level) <= len(str(MAX_LEVEL)) else MAX_LEVEL + 1
        if levels[name] > MAX_LEVEL:
            raise UsageError(f"--feature '{text[:MAX_SHOWN]}': levels go up to {MAX_LEVEL}")
    return levels


def _describe(cluster: Cluster, args: argparse.Namespace) -> None:
    states = describe_features(cluster)
    rows = [_row(state, states.epoch) for state in states.features.values()]
    print_rows(_COLUMNS, rows, as_json=args.json)


def _row(state: FeatureState, epoch: int) -> Document:
    return {
        "feature": state.name,
        "level": state.level,
        "lowest": state.lowest,
        "highest": state.highest,
        "held_back_by": list(state.held_back_by),
        "epoch": epoch,
        "brokers": {
            str(broker): {"lowest": levels.lowest, "highest": levels.highest}
            for broker, levels in sorted(state.supported.items())
        },
    }


def _upgrade(cluster: Cluster, args: argparse.Namespace) -> None:
    wanted = _levels(args.feature)
    if bool(wanted) == args.all:
        raise UsageError("name features with --feature NAME=LEVEL, or give --all")
    states = describe_features(cluster)
    if args.all:
        every = states.features.values()
        wanted = {each.name: each.highest for each in every if each.highest > each.level}
        _report_held_back(states)
        if not wanted:
            write_line("every feature is at the highest level that all brokers support")
            return
    _change(cluster, states, wanted, UpgradeType.UPGRADE, is_dry=args.dry_run)


def _report_held_back(states: ClusterFeatureStates) -> None:
    for state in states.features.values():
        if state.held_back_by:
            brokers = ", ".join(map(str, state.held_back_by))
            write_line(
                f"{state.name} can't be raised further before these brokers are upgraded: {brokers}"
            )


def _downgrade(cluster: Cluster, args: argparse.Namespace) -> None:
    wanted = _levels(args.feature)
    if not wanted:
        raise UsageError("name features with --feature NAME=LEVEL")
    kind = UpgradeType.UNSAFE_DOWNGRADE if args.unsafe else UpgradeType.SAFE_DOWNGRADE
    _change(cluster, describe_features(cluster), wanted, kind, is_dry=args.dry_run)


def _change(
    cluster: Cluster,
    states: ClusterFeatureStates,
    wanted: Mapping[str, int],
    upgrade_type: UpgradeType,
    *,
    is_dry: bool,
) -> None:
    update_features(cluster, wanted, upgrade_type=upgrade_type, validate_only=is_dry)
    for name, level in sorted(wanted.items()):
        known = states.features.get(name)
        before = 0 if known is None else known.level
        if before == level:
            write_line(f"{name} is at level {level} already")
        elif is_dry:
            write_line(f"{name} can be changed from level {before} to {level}; nothing is changed")
        else:
            write_line(f"{name} is changed from level {before} to {level}")
