"""The checks of what a message can be: ordered, delayed, in a transaction,
filtered, dead, lite, of a priority."""

import threading
import time

from rocketmq import (ConsumeResult, FilterExpression, LitePushConsumer,
                      LiteSimpleConsumer, MessageListener, Producer,
                      PushConsumer, TransactionChecker, TransactionResolution)
from rocketmq.grpc_protocol import FilterType
from rocketmq.v5.exception import LiteSubscriptionQuotaExceededException

from lab import AWAIT, Wrong, attempt, between, body, expect, topic

CHECK_AFTER = 6  # seconds: when a server asks about a transaction that nobody has ended


def wait_for(what, condition, within):
    """Waits until a condition holds."""
    end = time.monotonic() + within
    while not condition():
        expect(time.monotonic() < end, f"{what} in {within} s")
        time.sleep(0.05)


def sql_filter(lab):
    consumer = lab.consumer_of("sql", topic("sql"), FilterExpression(
        "region = 'eu' AND (price BETWEEN 10 AND 19.5 OR vip IS NOT NULL)", FilterType.SQL))
    want = set()
    for i in range(40):
        message = lab.message("sql", i, b"x")
        message.add_property("region", ("eu", "us")[i % 2])
        message.add_property("price", str(i))
        if i % 8 == 0:
            message.add_property("vip", "yes")
        if i % 2 == 0 and (10 <= i <= 19 or i % 8 == 0):
            want.add(str(i))
        lab.send(message)
    for message in lab.take(consumer, len(want)):
        i = message.properties["i"]
        expect(i in want, f"message {i} came, which does not match or came before")
        want.remove(i)
        consumer.ack(message)
    lab.quiet(consumer, AWAIT)
    consumer.shutdown()


class Ordered(MessageListener):
    """Fails one message once. This client hands it over again itself, after
    the delay of the group's retry policy, and counts no attempt."""

    FAILING = "a-3"

    def __init__(self, run):
        self.run = run
        self.lock = threading.Lock()
        self.next = {"a": 0, "b": 0, "c": 0}
        self.failed = 0  # when
        self.again = 0  # how long after that
        self.meanwhile = 0  # of other groups, done by then
        self.wrong = []

    def consume(self, message):
        if message.properties.get("run") != self.run:
            return ConsumeResult.SUCCESS
        name = message.properties["i"]
        group = name[0]
        with self.lock:
            want = f"{group}-{self.next[group]}"
            if name != want or message.message_group != f"{self.run}{group}":
                self.wrong.append(f"message {name} of {message.message_group} came where {want} is the next")
            if name == self.FAILING:
                if not self.failed:
                    self.failed = time.monotonic()
                    return ConsumeResult.FAILURE
                self.again = time.monotonic() - self.failed
                self.meanwhile = self.next["b"] + self.next["c"]
            self.next[group] += 1
        return ConsumeResult.SUCCESS


def fifo(lab):
    n = 10
    listener = Ordered(lab.run)
    for i in range(n):
        for group in listener.next:
            message = lab.message("fifo", f"{group}-{i}", b"x")
            message.message_group = lab.run + group
            lab.send(message)
    consumer = PushConsumer(lab.config(lab.consuming), lab.group("fifo"), listener,
                            {topic("fifo"): FilterExpression()})
    consumer.startup()
    wait_for("not all messages were consumed",
             lambda: listener.wrong or sum(listener.next.values()) >= 3 * n, 30)
    time.sleep(3)  # none comes once more
    consumer.shutdown()
    expect(not listener.wrong, "; ".join(listener.wrong))
    between("the failed message came again", listener.again, 4.5, 13)
    expect(listener.meanwhile == 2 * n,
           f"{listener.meanwhile} messages of other groups were done before the failed one came again, want {2 * n}")


def delay(lab):
    consumer = lab.consumer("delay")
    due = [int(time.time()) + 4 + i for i in range(3)]
    for i, at in enumerate(due):
        message = lab.message("delay", i, b"x")
        message.delivery_timestamp = at
        lab.send(message)
    lates = []
    end = time.monotonic() + 20
    while len(lates) < len(due):
        expect(time.monotonic() < end, f"{len(lates)} of {len(due)} messages came in time")
        messages = lab.poll(consumer)
        now = time.time()
        for message in messages:
            late = now - due[int(message.properties["i"])]
            expect(late >= 0, f"message {message.properties['i']} came {-late:.3f} s too early")
            lates.append(late)
            attempt(message, 1)
            consumer.ack(message)
    lates.sort()
    expect(lates[0] <= 1 and lates[2] <= 15,  # the programs compete for the processor
           f"messages came {lates} s after they were due, want one within 1 s and all within 15 s")
    lab.quiet(consumer, AWAIT)
    consumer.shutdown()


def recall(lab):
    consumer = lab.consumer("recall")
    due = int(time.time()) + 5
    handles = {}
    for name in ("recalled", "kept"):
        message = lab.message("recall", name, b"x")
        message.delivery_timestamp = due
        receipt = lab.producer.send(message)
        expect(receipt.recall_handle, "no recall handle in the answer")
        handles[name] = receipt.recall_handle
        if name == "recalled":
            got = lab.producer.recall_message(topic("recall"), receipt.recall_handle)
            expect(got == receipt.message_id, f"recall of message {receipt.message_id} answers {got}")
    message = lab.take(consumer, 1)[0]
    name = message.properties["i"]
    expect(name == "kept", "the recalled message came")
    expect(time.time() >= due, "the other message came too early")
    consumer.ack(message)
    try:
        lab.producer.recall_message(topic("recall"), handles["kept"])
    except Exception:
        pass  # what it has to be
    else:
        raise Wrong("to recall a delivered message is no error")
    lab.quiet(consumer, AWAIT)
    consumer.shutdown()


class Checker(TransactionChecker):
    """Answers the questions of the server about transactions, and remembers them."""

    def __init__(self, run, answer):
        self.run = run
        self.answer = answer
        self.asked = set()  # ids of messages

    def check(self, message):
        if message.properties.get("run") != self.run:
            return TransactionResolution.ROLLBACK
        self.asked.add(message.message_id)
        return self.answer

    def want(self, *ids):
        expect(self.asked == set(ids), f"the server asked about the messages {self.asked}, want {ids}")


def transactional(lab, endpoint, check, checker):
    producer = Producer(lab.config(endpoint), [topic(check)], checker)
    producer.startup()
    return producer


def half(lab, producer, check):
    """Sends a message in a transaction."""
    transaction = producer.begin_transaction()
    receipt = producer.send(lab.message(check, 1, b"x"), transaction)
    expect(receipt.message_id and receipt.transaction_id, f"no ids in the answer: {receipt}")
    return transaction, receipt.message_id


def committed(lab, consumer, sent, within):
    """Receives and acknowledges the message of a transaction."""
    message = lab.take(consumer, 1, within=within)[0]
    expect(message.message_id == sent, f"id {message.message_id}, want {sent}")
    attempt(message, 1)
    consumer.ack(message)


def transaction_commit(lab):
    consumer = lab.consumer("commit")
    checker = Checker(lab.run, TransactionResolution.ROLLBACK)
    producer = transactional(lab, lab.producing, "commit", checker)
    transaction, sent = half(lab, producer, "commit")
    transaction.commit()  # at once, before the server asks; transaction-rollback shows that nothing comes before
    transaction.commit()  # again is no error
    committed(lab, consumer, sent, 5)
    try:
        transaction.rollback()
    except Exception:
        pass  # what it has to be
    else:
        raise Wrong("to roll back what is committed is no error")
    lab.quiet(consumer, CHECK_AFTER + 2)
    checker.want()
    producer.shutdown()
    consumer.shutdown()


def transaction_rollback(lab):
    consumer = lab.consumer("rollback")
    checker = Checker(lab.run, TransactionResolution.COMMIT)
    producer = transactional(lab, lab.producing, "rollback", checker)
    transaction, _ = half(lab, producer, "rollback")
    transaction.rollback()
    lab.quiet(consumer, CHECK_AFTER + 4)
    checker.want()
    producer.shutdown()
    consumer.shutdown()


def transaction_check(lab):
    consumer = lab.consumer("check")
    checker = Checker(lab.run, TransactionResolution.COMMIT)
    producer = transactional(lab, lab.producing, "check", checker)
    begin = time.monotonic()
    _, sent = half(lab, producer, "check")
    committed(lab, consumer, sent, CHECK_AFTER + 15)
    between("the message came", time.monotonic() - begin, CHECK_AFTER, CHECK_AFTER + 10)
    checker.want(sent)
    producer.shutdown()
    consumer.shutdown()


def transaction_restart(lab):
    """The producer is closed before the check: another one of the topic, at
    the other address, is asked."""
    consumer = lab.consumer("restart")
    first = Checker(lab.run, TransactionResolution.ROLLBACK)
    producer = transactional(lab, lab.producing, "restart", first)
    _, sent = half(lab, producer, "restart")
    producer.shutdown()
    second = Checker(lab.run, TransactionResolution.COMMIT)
    producer = transactional(lab, lab.consuming, "restart", second)
    committed(lab, consumer, sent, CHECK_AFTER + 25)
    first.want()
    second.want(sent)
    producer.shutdown()
    consumer.shutdown()


class Failing(MessageListener):
    """Fails every message."""

    def __init__(self, run):
        self.run = run
        self.attempts = []

    def consume(self, message):
        if message.properties.get("run") != self.run:
            return ConsumeResult.SUCCESS
        self.attempts.append(message.delivery_attempt)
        return ConsumeResult.FAILURE


def dead_letter(lab):
    listener = Failing(lab.run)
    push = PushConsumer(lab.config(lab.consuming), lab.group("dead"), listener,
                        {topic("dead"): FilterExpression()})
    push.startup()
    message = lab.message("dead", 1, body(1, 1000))
    message.tag = "dead"
    message.keys = f"key-{lab.run}"
    sent = lab.send(message)
    wait_for("the message was not delivered twice", lambda: len(listener.attempts) >= 2, 20)
    consumer = lab.consumer_of("deadread", f"%DLQ%{lab.group('dead')}", FilterExpression())
    dead = take_dead(lab, consumer, 15)
    expect(dead.message_id == sent, f"dead letter: id {dead.message_id}, want {sent}")
    expect(dead.body == message.body, "dead letter: another body")
    expect(dead.tag == "dead" and dead.keys == message.keys, f"dead letter: tag {dead.tag}, keys {dead.keys}")
    for name, value in message.properties.items():
        expect(dead.properties.get(name) == value, f"dead letter: properties {dead.properties}")
    consumer.ack(dead)
    consumer.shutdown()
    push.shutdown()
    expect(listener.attempts == [1, 2], f"the listener saw the attempts {listener.attempts}, want 1 and 2")


def take_dead(lab, consumer, within):
    """Receives the dead letter. The topic is there with its first message:
    before that this client finds no route."""
    end = time.monotonic() + within
    while True:
        try:
            return lab.take(consumer, 1, within=end - time.monotonic())[0]
        except Exception as e:
            if "route" not in str(e) or time.monotonic() > end:
                raise
            time.sleep(0.5)


class Collecting(MessageListener):
    """Collects messages by lite topic."""

    def __init__(self, run):
        self.run = run
        self.got = {}

    def consume(self, message):
        if message.properties.get("run") == self.run:
            self.got.setdefault(message.lite_topic, []).append(message.properties["i"])
        return ConsumeResult.SUCCESS


def subscribe_lite(consumer, name):
    """The simple consumer's start does not wait for the settings: until they
    come it takes its quota for 0."""
    end = time.monotonic() + 5
    while True:
        try:
            return consumer.subscribe_lite(name)
        except LiteSubscriptionQuotaExceededException:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def lite(lab):
    """Subscribes to two of three lite topics, with both consumers that this
    client has. It subscribes to the letters of a name, so the names are letters."""
    listener, other = Collecting(lab.run), Collecting(lab.run)
    push = LitePushConsumer(lab.config(lab.consuming), lab.group("lite"), topic("lite"), listener)
    simple = LiteSimpleConsumer(topic("lite"), lab.config(lab.consuming), lab.group("litesimple"), await_duration=AWAIT)
    for consumer in (push, simple):
        consumer.startup()
        for name in "ab":
            subscribe_lite(consumer, name)

    def send(first, last):
        for i in range(first, last):
            for name in "abc":
                message = lab.message("lite", i, b"x")
                message.lite_topic = name
                lab.send(message)

    def receive():
        for message in simple.receive(16, 10):
            other.consume(message)
            simple.ack(message)

    def until(count, what):
        end = time.monotonic() + 20
        while any(sum(map(len, l.got.values())) < count for l in (listener, other)):
            expect(time.monotonic() < end, f"{what}: push got {listener.got}, simple {other.got}")
            receive()

    send(0, 5)
    until(10, "of two lite topics")
    for consumer in (push, simple):
        consumer.unsubscribe_lite("b")
    time.sleep(1)
    send(5, 8)
    until(13, "of one lite topic")
    receive()
    receive()
    want = {"a": [str(i) for i in range(8)], "b": [str(i) for i in range(5)]}
    for name, l in (("push", listener), ("simple", other)):
        expect(l.got == want, f"{name} got {l.got}, want {want}")
    push.shutdown()
    simple.shutdown()


def priority(lab):
    """Levels are sent from low to high. Of eight receives one begins with the
    oldest message."""
    consumer = lab.consumer("priority")
    levels, each = 8, 8
    for level in range(levels):
        for i in range(each):
            message = lab.message("priority", f"{level}-{i}", b"x")
            message.priority = level
            lab.send(message)
    answers, got = [], set()
    end = time.monotonic() + 30
    while len(got) < levels * each:
        expect(time.monotonic() < end, f"{len(got)} of {levels * each} messages came in time")
        messages = lab.poll(consumer)
        for message in messages:
            i = message.properties["i"]
            expect(i not in got and message.priority == int(i[0]), f"message {i} came with priority {message.priority}, or twice")
            got.add(i)
            consumer.ack(message)
        if messages:
            answers.append([message.priority for message in messages])
    falling = [a for a in answers if a == sorted(a, reverse=True)]
    expect(len(falling) >= len(answers) - 1 and any(a[0] == levels - 1 for a in falling[:2]),
           f"messages came with the priorities {answers}, want higher ones first")
    consumer.shutdown()


ALL = {
    "sql-filter": sql_filter,
    "fifo": fifo,
    "delay": delay,
    "recall": recall,
    "transaction-commit": transaction_commit,
    "transaction-rollback": transaction_rollback,
    "transaction-check": transaction_check,
    "transaction-restart": transaction_restart,
    "dead-letter": dead_letter,
    "lite": lite,
    "priority": priority,
}
