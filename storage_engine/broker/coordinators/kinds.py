"""The types of the two kinds of coordinators: transactions and groups."""

from storage_engine.broker.coordinators.coordinators import Coordinators
from storage_engine.broker.coordinators.runner import CoordinatorKind, CoordinatorRunner
from storage_engine.core.coordinator_log import Answer
from storage_engine.core.groups import events as groups
from storage_engine.core.groups.events import GroupEffect
from storage_engine.core.groups.records import GroupContent, GroupEntry
from storage_engine.core.transactions import transaction_events as transactions
from storage_engine.core.transactions.transaction_events import TransactionAnswer, TransactionEffect
from storage_engine.core.transactions.transaction_state import StateContent, StateEntry

TransactionKind = CoordinatorKind[
    transactions.Event, TransactionAnswer, TransactionEffect, StateEntry, StateContent
]
TransactionRunner = CoordinatorRunner[
    transactions.Event, TransactionAnswer, TransactionEffect, StateEntry, StateContent
]
TransactionCoordinators = Coordinators[
    transactions.Event, TransactionAnswer, TransactionEffect, StateEntry, StateContent
]
GroupKind = CoordinatorKind[groups.Event, Answer, GroupEffect, GroupEntry, GroupContent]
GroupRunner = CoordinatorRunner[groups.Event, Answer, GroupEffect, GroupEntry, GroupContent]
GroupCoordinators = Coordinators[groups.Event, Answer, GroupEffect, GroupEntry, GroupContent]
