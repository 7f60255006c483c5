"""What the checks share: addresses, a producer, and ways to send and receive."""

import random
import time

from rocketmq import (ClientConfiguration, Credentials, FilterExpression,
                      Message, Producer, SimpleConsumer)

AWAIT = 5  # seconds: long poll of the simple consumers
INVISIBLE = 10  # seconds: the shortest a server takes
BATCH = 16


class Wrong(Exception):
    """Tells what a check found wrong."""


def expect(ok, text):
    if not ok:
        raise Wrong(text)


def attempt(message, want):
    got = message.delivery_attempt
    expect(got == want, f"delivery attempt {got}, want {want}")


def between(what, took, low, high):
    expect(low <= took <= high, f"{what} after {took:.2f} s, want {low} to {high} s")


def topic(check):
    return f"it-python-{check}"


def body(i, size):
    """Bytes that cannot be compressed, always the same for one i."""
    return random.Random(i).randbytes(size)


class Lab:
    def __init__(self, producing, consuming, run):
        self.producing = producing
        self.consuming = consuming
        self.run = run
        self.producer = Producer(self.config(producing), [topic("send")])
        self.producer.startup()

    @staticmethod
    def config(endpoint):
        return ClientConfiguration(endpoint, Credentials())

    def group(self, check):
        return f"{topic(check)}-{self.run}"

    def consumer(self, check, tags="*"):
        return self.consumer_of(check, topic(check), FilterExpression(tags))

    def consumer_of(self, check, topic, expression):
        """A simple consumer of a topic, in the group of a check."""
        consumer = SimpleConsumer(
            self.config(self.consuming), self.group(check),
            {topic: expression}, await_duration=AWAIT)
        consumer.startup()
        return consumer

    def message(self, check, i, content):
        """A message of this run: a consumer passes over those of other runs."""
        message = Message()
        message.topic = topic(check)
        message.body = content
        message.add_property("run", self.run)
        message.add_property("i", str(i))
        return message

    def send(self, message):
        """Sends and returns the id that the server answered."""
        return self.producer.send(message).message_id

    def poll(self, consumer, invisible=INVISIBLE):
        """One receive; messages of other runs are acknowledged and left out."""
        ours = []
        for message in consumer.receive(BATCH, invisible):
            if message.properties.get("run") == self.run:
                ours.append(message)
            else:
                consumer.ack(message)
        return ours

    def take(self, consumer, n, invisible=INVISIBLE, within=20):
        """Polls until it has n messages, at most for a time."""
        end = time.monotonic() + within
        got = []
        while len(got) < n:
            expect(time.monotonic() < end, f"{len(got)} of {n} messages came in time")
            got += self.poll(consumer, invisible)
        expect(len(got) == n, f"{len(got)} messages came, want {n}")
        return got

    def quiet(self, consumer, seconds):
        """Polls for a time in which nothing must come."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for message in self.poll(consumer):
                raise Wrong(f"message {message.properties.get('i')} came again, "
                            f"attempt {message.delivery_attempt}")
