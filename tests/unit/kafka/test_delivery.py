"""Producers end with their last reference: a task collects no garbage until its round is over."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from confluent_kafka import Producer

from app.kafka.delivery import CallbackDelivery, Delivery
from app.kafka.settings import SILENT
from tests.support.leftovers import kafka_clients
from tests.support.waiting import until


def make(own: dict[str, Any]) -> Producer:
    return Producer({"bootstrap.servers": "127.0.0.1:9"} | own, logger=SILENT)


@pytest.mark.parametrize("delivery", [Delivery, CallbackDelivery])
def test_a_producer_ends_with_its_delivery(delivery: type[Delivery]) -> None:
    """A callback of the delivery itself would keep both."""
    gc.collect()
    before = kafka_clients()
    gc.disable()
    try:
        opened = delivery(make)
        until(lambda: kafka_clients() - before, "the client's thread")
        opened.close()
        del opened
        until(lambda: not kafka_clients() - before, "the client has ended")
    finally:
        gc.enable()
