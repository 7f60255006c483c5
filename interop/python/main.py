"""Runs the official Python client of Apache RocketMQ 5, unmodified, against a
server and tells which of the checks of ../README.md it passes."""

import argparse
import os
import sys
import threading
import time
import traceback

import checks
from lab import Lab, Wrong
from steady import steady

CHECK_MAX = 55  # seconds; ends a check that hangs


class Report:
    def __init__(self):
        self.lock = threading.Lock()
        self.passed = self.failed = self.skipped = 0

    def check(self, name, check, lab):
        """Runs one check and reports its end, or that there was none in time."""
        begin = time.monotonic()
        result = []

        def run():
            try:
                check(lab)
                result.append(None)
            except Wrong as e:
                result.append(str(e))
            except Exception as e:
                traceback.print_exc()
                result.append(f"{type(e).__name__}: {e}")

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(CHECK_MAX)
        why = result[0] if result else f"no end after {CHECK_MAX} s"
        with self.lock:
            if why is None:
                self.passed += 1
                print(f"ok   {name} ({1000 * (time.monotonic() - begin):.0f} ms)", flush=True)
            else:
                self.failed += 1
                print(f"FAIL {name}: {why}", flush=True)

    def lacks(self, name, why):
        with self.lock:
            self.skipped += 1
            print(f"n/a  {name}: {why}", flush=True)

    def end(self):
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped", flush=True)
        return 1 if self.failed else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--endpoints", default="127.0.0.1:8081", help="HOST:PORT to produce at, and after a comma one to consume at")
    parser.add_argument("--run", default="1", help="the end of the names of the consumer groups")
    parser.add_argument("--steady", action="store_true", help="no checks: send and receive until the input ends, and print what comes of it")
    args = parser.parse_args()
    producing, _, consuming = args.endpoints.partition(",")
    if args.steady:
        steady(Lab(producing, consuming or producing, args.run))
        return 0

    report = Report()
    report.lacks("tls", "the client lacks it: it refuses a self-signed certificate")
    report.lacks("batch", "the client sends one message in a request")
    try:
        lab = Lab(producing, consuming or producing, args.run)
    except Exception as e:
        traceback.print_exc()
        print(f"FAIL start: {e}")
        report.failed += 1
        return report.end()
    threads = [threading.Thread(target=report.check, args=(name, check, lab)) for name, check in checks.ALL.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return report.end()


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # threads of the client's executors would keep the process
