"""The checks of ../README.md, each a function of the lab."""

import queue
import threading
import time

from rocketmq import (ConsumeResult, FilterExpression, Message,
                      MessageListener, PushConsumer)
from rocketmq.grpc_protocol import Code

import model
from lab import (AWAIT, Wrong, attempt, between, body, expect,
                 topic)

BODY_MAX = 4 << 20
LARGE = {11: 32 << 10, 22: (64 << 10) + 1, 33: 256 << 10, 44: 1 << 20,
         55: (2 << 20) + 7, 66: 3 << 20, 77: BODY_MAX - 1, 88: BODY_MAX}


def hundredth(lab, i):
    """Message i of 100, mostly small: what it holds must come back as it was."""
    size = LARGE.get(i, 1 + i * i % 2000)
    message = lab.message("send", i, body(i, size))
    message.tag = f"tag{i % 5}"
    message.keys = f"key-{lab.run}-{i}"
    message.keys = f"größe-{size}"
    message.add_property("text", f'naïve, 日本語, = & "quoted" {i}')
    return message


def same(got, want):
    expect(want is not None, f"id {got.message_id} was not sent, or came twice")
    i = want.properties["i"]
    expect(got.body == want.body, f"message {i}: another body, {len(got.body)} bytes of {len(want.body)}")
    expect(got.tag == want.tag, f"message {i}: tag {got.tag}, want {want.tag}")
    expect(got.keys == want.keys, f"message {i}: keys {got.keys}, want {want.keys}")
    expect(got.properties == want.properties, f"message {i}: properties {got.properties}, want {want.properties}")
    expect(not got.corrupted, f"message {i}: the digest is wrong")
    attempt(got, 1)


def send_hundred(lab):
    n, invisible = 100, 15
    consumer = lab.consumer("send")
    want = {}
    for i in range(n):
        message = hundredth(lab, i)
        want[lab.send(message)] = message
    expect(len(want) == n, f"{n} messages got {len(want)} ids")
    end = time.monotonic() + 20
    while want:
        expect(time.monotonic() < end, f"{len(want)} of {n} messages did not come")
        for message in lab.poll(consumer, invisible):
            same(message, want.pop(message.message_id, None))
            consumer.ack(message)
    lab.quiet(consumer, invisible + 2)
    consumer.shutdown()


def tag_filter(lab):
    consumer = lab.consumer("tags", "a || b")
    for i in range(40):
        message = lab.message("tags", i, b"x")
        tag = ("a", "b", "c", None)[i % 4]
        if tag:
            message.tag = tag
        lab.send(message)
    for message in lab.take(consumer, 20):
        expect(message.tag in ("a", "b"), f"a message of tag {message.tag} came")
        consumer.ack(message)
    lab.quiet(consumer, AWAIT)
    consumer.shutdown()


def no_ack(lab):
    consumer = lab.consumer("noack")
    sent = lab.send(lab.message("noack", 1, b"again"))
    attempt(lab.take(consumer, 1)[0], 1)
    first = time.monotonic()
    again = lab.take(consumer, 1)[0]
    between("the message came again", time.monotonic() - first, 9.5, 13)
    expect(again.message_id == sent, f"id {again.message_id}, want {sent}")
    attempt(again, 2)
    consumer.ack(again)
    consumer.shutdown()


def change_invisible(lab):
    """Prolongs three leases. One message is acknowledged with the handle from
    before, one with that from after, and one not at all: it proves that the
    change had an effect."""
    longer = 15
    consumer = lab.consumer("change")
    for name in ("old", "new", "none"):
        lab.send(lab.message("change", name, b"x"))
    changed = 0
    for message in lab.take(consumer, 3, within=10):
        before = message.receipt_handle
        consumer.change_invisible_duration(message, longer)
        expect(message.receipt_handle, "no receipt handle in the answer")
        name = message.properties["i"]
        if name == "none":
            changed = time.monotonic()
            continue
        if name == "old":
            message.receipt_handle = before
        consumer.ack(message)
    again = lab.take(consumer, 1, within=longer + 4)[0]
    name = again.properties["i"]
    expect(name == "none", f"the message acknowledged with the {name} handle came again")
    between("the message came again", time.monotonic() - changed, longer - 0.5, longer + 3)
    attempt(again, 2)
    consumer.ack(again)
    lab.quiet(consumer, 3)
    consumer.shutdown()


class Listener(MessageListener):
    """Fails one message on its first delivery and remembers all."""

    FAILING = "7"

    def __init__(self, run):
        self.run = run
        self.lock = threading.Lock()
        self.attempts = {}
        self.times = []  # of the failing message
        self.done = 0

    def consume(self, message: Message) -> ConsumeResult:
        if message.properties.get("run") != self.run:
            return ConsumeResult.SUCCESS
        i = message.properties["i"]
        with self.lock:
            self.attempts.setdefault(i, []).append(message.delivery_attempt)
            if i == self.FAILING:
                self.times.append(time.monotonic())
                if len(self.times) == 1:
                    return ConsumeResult.FAILURE
            self.done += 1
        return ConsumeResult.SUCCESS

    def judge(self, n):
        """Wants each message once, and the one that failed twice."""
        with self.lock:
            expect(len(self.attempts) == n, f"{len(self.attempts)} different messages, want {n}")
            for i, got in self.attempts.items():
                want = [1, 2] if i == self.FAILING else [1]
                expect(got == want, f"message {i} came with attempts {got}, want {want}")
            between("the failed message came again", self.times[1] - self.times[0], 0.9, 6)


def push_consume(lab):
    n = 50
    listener = Listener(lab.run)
    consumer = PushConsumer(lab.config(lab.consuming), lab.group("push"), listener,
                            {topic("push"): FilterExpression()})
    consumer.startup()
    for i in range(n):
        lab.send(lab.message("push", i, b"x"))
    end = time.monotonic() + 20
    while listener.done < n:
        expect(time.monotonic() < end, f"{listener.done} of {n} messages were consumed in time")
        time.sleep(0.05)
    time.sleep(2)  # none comes once more
    consumer.shutdown()
    listener.judge(n)


def long_poll_wake(lab):
    time.sleep(6)  # not while the other checks are at their busiest
    consumer = lab.consumer("wake")
    delays = []
    for i in range(5):
        arrived = queue.Queue()

        def wait():
            try:
                arrived.put((lab.take(consumer, 1, within=10)[0], time.monotonic()))
            except Exception as e:  # handed to the thread of the check
                arrived.put((e, 0))

        threading.Thread(target=wait, daemon=True).start()
        time.sleep(0.5)  # it waits by now
        lab.send(lab.message("wake", i, b"x"))
        answered = time.monotonic()
        message, at = arrived.get()
        if isinstance(message, Exception):
            raise message
        delays.append(max(0, at - answered))
        consumer.ack(message)
    delays.sort()
    text = ", ".join(f"{1000 * delay:.0f}" for delay in delays)
    expect(delays[0] < 0.1 and delays[2] < 0.5,
           f"messages came {text} ms after their send, want one within 100 and half within 500")
    consumer.shutdown()


def empty_poll(lab):
    consumer = lab.consumer("empty")
    begin = time.monotonic()
    messages = lab.poll(consumer)
    expect(not messages, f"{len(messages)} messages came")
    between("an empty poll ended", time.monotonic() - begin, 4.5, 8)
    consumer.shutdown()


def unknown_topic(lab):
    unknown = f"it-python-unknown-{lab.run}"
    consumer = lab.consumer("empty")
    lab.poll(consumer)  # the server answers, so what follows is about the topic
    message = Message()
    message.topic = unknown
    message.body = b"x"
    refused("sending to", lambda: lab.producer.send(message))
    refused("subscribing to", lambda: consumer.subscribe(unknown, FilterExpression()))
    consumer.shutdown()


def refused(what, call):
    """Wants an error. This client keeps the code of the server to its log,
    and raises what names the topic."""
    try:
        call()
    except Exception as e:
        if getattr(e, "code", Code.TOPIC_NOT_FOUND) == Code.TOPIC_NOT_FOUND and "unknown" in str(e):
            return
        raise Wrong(f"{what} an unknown topic: {e}") from e
    raise Wrong(f"{what} an unknown topic is no error")


ALL = {
    "send-100": send_hundred,
    "tag-filter": tag_filter,
    "no-ack": no_ack,
    "change-invisible": change_invisible,
    "push-consume": push_consume,
    "long-poll-wake": long_poll_wake,
    "empty-poll": empty_poll,
    "unknown-topic": unknown_topic,
} | model.ALL
