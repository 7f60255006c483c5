"""Sends and receives until it is told to end, and prints what an application sees: ../README.md."""

import sys
import threading
import time

from rocketmq import ConsumeResult, FilterExpression, Message, MessageListener, PushConsumer

from lab import BATCH, INVISIBLE, Lab, topic

PAUSE = 0.05  # seconds between two sends


class Steady(MessageListener):
    def __init__(self, lab):
        self.lab = lab
        self.lock = threading.Lock()
        self.stopped = threading.Event()  # nothing more is to be sent
        self.ended = threading.Event()

    def say(self, *words):
        """Prints an event: milliseconds, and words."""
        words = (str(w).replace("\t", " ").replace("\n", " ") for w in words)
        with self.lock:
            print(int(time.time() * 1000), *words, sep="\t", flush=True)

    def consume(self, message):
        self.say("got", "push", message.properties["i"], message.delivery_attempt)
        return ConsumeResult.SUCCESS

    def send(self, prefix, name, group):
        i = 0
        while not self.stopped.wait(PAUSE):
            key = f"{prefix}{i}"
            i += 1
            message = Message()
            message.topic = name
            message.body = key.encode()
            message.add_property("i", key)
            if group:
                message.message_group = group
            try:
                self.lab.producer.send(message)
            except Exception as e:
                self.say("unsent", key, f"{type(e).__name__}: {e}")
                continue
            self.say("sent", key)

    def receive(self, name, consumer):
        while not self.ended.is_set():
            try:
                got = consumer.receive(BATCH, INVISIBLE)
            except Exception as e:
                self.say("unreceived", name, f"{type(e).__name__}: {e}")
                time.sleep(PAUSE)
                continue
            for message in got:
                key = message.properties["i"]
                self.say("got", name, key, message.delivery_attempt)
                try:
                    consumer.ack(message)
                except Exception as e:
                    self.say("unacked", name, key, f"{type(e).__name__}: {e}")
                    continue
                self.say("acked", name, key)


def steady(lab: Lab):
    s = Steady(lab)
    simple = lab.consumer("steady")
    order = lab.consumer("steadyfifo")
    push = PushConsumer(lab.config(lab.consuming), lab.group("steadypush"), s, {topic("steady"): FilterExpression("*")})
    push.startup()
    senders = [threading.Thread(target=s.send, args=a) for a in (("n", topic("steady"), ""), ("f", topic("steadyfifo"), "one"))]
    receivers = [threading.Thread(target=s.receive, args=a) for a in (("simple", simple), ("fifo", order))]
    for thread in senders + receivers:
        thread.start()
    s.say("ready")
    sys.stdin.readline()
    s.stopped.set()
    for thread in senders:
        thread.join()
    s.say("produced")
    sys.stdin.read()  # until its end
    s.ended.set()
    for thread in receivers:
        thread.join()
