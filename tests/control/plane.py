# SPDX-License-Identifier: Apache-2.0
"""What tests of the control plane share: an authority, a controller and agents as processes, and agents in name only.

with Site(folder, POLICY) as site:
    site.start_controller()
    agent = site.start_agent("n1")            # a real one, with boards
    fake = site.fake("n2"); fake.rows(...)    # speaks the protocol from this process, over TLS
"""

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
import trustme
from launching import PENSTOCK, until

from penstock.control import wire

POLICY = """
[control]
interval = "50ms"
lease = "1s"

[[limit]]
name = "all metadata"
rate = "1k/s"
"""


class Process:
    """A service in a process of its own; what it logs is kept."""

    def __init__(
        self, words: list[str], env: dict[str, str], log: Path, inside: tuple[str, ...] = ()
    ) -> None:
        self.log = log
        self.file = log.open("ab")
        self.popen = subprocess.Popen(
            [*inside, *words], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.file
        )
        assert self.popen.stdout is not None
        text = b""
        while not text.endswith(b"}\n"):
            line = self.popen.stdout.readline()
            assert line, f"{words}: {self.said()}"
            text += line
        self.ready: dict[str, Any] = json.loads(text)

    def said(self) -> str:
        return self.log.read_text()

    def end(self, how: int = signal.SIGTERM) -> int:
        with suppress(ProcessLookupError):
            self.popen.send_signal(how)
        self.popen.wait(timeout=20)
        assert self.popen.stdout is not None
        self.popen.stdout.close()
        self.file.close()
        return int(self.popen.returncode)


class Hosts:
    """Hosts with networks of their own on one bridge, which die with their holders; files are this machine's."""

    def __init__(self, folder: Path, names: tuple[str, ...]) -> None:
        self.folder = folder
        self.holders: dict[str, subprocess.Popen[bytes]] = {}
        self.address = "10.91.0.1"  # of the head
        try:
            self._hold(
                "head", "ip link add br0 type bridge; ip addr add 10.91.0.1/24 dev br0; ip link set br0 up"
            )
            for number, name in enumerate(names, 11):
                self._hold(name, "true")
                outside, inside, pid = f"br-{name}", f"eth-{name}", str(self.holders[name].pid)
                self.on(
                    "head", "ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", pid
                )
                self.on("head", "ip", "link", "set", outside, "master", "br0", "up")
                self.on(name, "ip", "addr", "add", f"10.91.0.{number}/24", "dev", inside)
                self.on(name, "ip", "link", "set", inside, "up")
        except BaseException:
            self.end()
            raise

    def _hold(self, name: str, shell: str) -> None:
        ready = self.folder / f"{name}.ready"
        script = f"ip link set lo up; {shell}; touch {ready}; exec sleep infinity"
        self.holders[name] = subprocess.Popen(["unshare", "--net", "bash", "-ec", script])
        until(ready.exists, f"{name} is there")

    def inside(self, name: str) -> tuple[str, ...]:
        return ("nsenter", "-t", str(self.holders[name].pid), "-n", "--")

    def on(self, name: str, *words: str) -> None:
        subprocess.run([*self.inside(name), *words], check=True, timeout=30)

    def cut_off(self, name: str, cut: bool = True) -> None:
        """Its cable is pulled, or put back."""
        self.on("head", "ip", "link", "set", f"br-{name}", "down" if cut else "up")

    def end(self) -> None:
        for holder in self.holders.values():
            holder.kill()
        for holder in self.holders.values():
            holder.wait(timeout=30)


class Site:
    """An authority and what was started under it; everything ends with it."""

    def __init__(self, folder: Path, policy: str = POLICY, host: str = "127.0.0.1") -> None:
        self.folder = folder
        self.host = host
        self.ca = trustme.CA()
        self.ca.cert_pem.write_to_path(str(folder / "ca.pem"))
        self.policy = folder / "site.toml"
        self.policy.write_text(policy)
        self.processes: list[Process] = []
        self.fakes: list[Fake] = []
        self.jobs: list[Any] = []  # plane_jobs.py
        self.controller: Process | None = None
        self.ports = (0, 0)
        self.boards = Path("/dev/shm") / f"penstock-test-{os.getpid()}-{time.monotonic_ns()}"
        self.boards.mkdir(mode=0o711)
        self.inside: tuple[str, ...] = ()  # where the controller and those who ask it are

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for fake in self.fakes:
            fake.close()
        for job in self.jobs:
            job.path.touch()
            job.popen.communicate(timeout=60)
        for process in reversed(self.processes):
            if process.popen.poll() is None:
                process.end(signal.SIGKILL)
        shutil.rmtree(self.boards, ignore_errors=True)

    def env(self, name: str) -> dict[str, str]:
        """An environment whose files are this service's alone."""
        home = self.folder / name
        home.mkdir(exist_ok=True)
        return {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C.UTF-8",
            "HOME": str(home),
            "PENSTOCK_STATE_DIR": str(home / "state"),
            "PENSTOCK_RUN_DETECT": "none",
        }

    def certificate(
        self, name: str, *also: str, ca: trustme.CA | None = None, **options: Any
    ) -> dict[str, str]:
        """Files for a name, as settings."""
        cert = (ca or self.ca).issue_cert(name, *also, **options)
        paths = {"tls.certificate": self.folder / f"{name}.pem", "tls.key": self.folder / f"{name}.key"}
        cert.private_key_pem.write_to_path(str(paths["tls.key"]))
        paths["tls.certificate"].unlink(missing_ok=True)
        for blob in cert.cert_chain_pems:
            blob.write_to_path(str(paths["tls.certificate"]), append=True)
        return {**{key: str(path) for key, path in paths.items()}, "tls.ca": str(self.folder / "ca.pem")}

    def start_controller(self, *words: str, inside: tuple[str, ...] = ()) -> Process:
        """The controller, where it was before if it was before."""
        files = self.certificate("controller", self.host)
        command = [str(PENSTOCK), "controller", "--json", "--policy", str(self.policy)]
        command += [
            "--listen",
            f"{self.host}:{self.ports[0]}",
            "--tools",
            f"{self.host}:{self.ports[1]}",
            *words,
        ]
        log = self.folder / "controller.log"
        self.controller = Process(
            [*command, *settings(files)], self.env("controller"), log, inside or self.inside
        )
        self.processes.append(self.controller)
        self.ports = (self.controller.ready["agents"], self.controller.ready["tools"])
        return self.controller

    @property
    def state(self) -> Path:
        return self.folder / "controller/state/controller"

    def start_aggregator(self, name: str) -> tuple[Process, int]:
        """A controller below ours; and the port where its agents find it."""
        token = self.folder / f"{name}.token"
        token.write_text(self.token())
        command = [str(PENSTOCK), "controller", "--json", "--node", name, "--token-file", str(token)]
        command += ["--upstream", f"{self.host}:{self.ports[0]}"]
        command += ["--listen", f"{self.host}:0", "--tools", f"{self.host}:0"]
        files = self.certificate(name, self.host)
        log = self.folder / f"{name}.log"
        process = Process([*command, *settings(files)], self.env(name), log, self.inside)
        self.processes.append(process)
        return process, process.ready["agents"]

    def token(self, uses: int = 1, of: str = "controller") -> str:
        """A token of the controller, or of an aggregator."""
        done = subprocess.run(
            [str(PENSTOCK), "controller", "token", "--uses", str(uses)],
            env=self.env(of),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout.strip()

    def start_agent(self, name: str, *words: str, inside: tuple[str, ...] = (), **options: str) -> Process:
        """A real agent; its token is made for it when it first joins."""
        token = self.folder / f"{name}.token"
        if not token.exists():
            token.write_text(self.token())
        held = {**self.certificate(name), "agent.boards": str(self.boards / name), **options}
        command = [str(PENSTOCK), "agent", "--json", "--node", name, "--token-file", str(token)]
        command += ["--controller", f"{self.host}:{self.ports[0]}", *words]
        held.setdefault("agent.socket", str(self.socket(name)))
        process = Process([*command, *settings(held)], self.env(name), self.folder / f"{name}.log", inside)
        self.processes.append(process)
        return process

    def socket(self, name: str) -> Path:
        folder = self.boards / f"s-{name}"
        folder.mkdir(mode=0o755, exist_ok=True)
        return folder / "agent.sock"

    def ask(self, *words: str, node: str = "", token: str = "admin", check: bool = True) -> Any:
        """A command, as a user types it; with --json its document."""
        held = {
            "controller.tools": f"{self.host}:{self.ports[1]}",
            "controller.token_file": str(self.state / f"{token}.token") if token else "",
            "tls.ca": str(self.folder / "ca.pem"),
        }
        if node:
            held["agent.socket"] = str(self.socket(node))
        done = subprocess.run(
            [*self.inside, str(PENSTOCK), *words, *settings(held)],
            env=self.env("user"),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if not check:
            return done
        assert done.returncode == 0, (words, done.returncode, done.stdout, done.stderr)
        return json.loads(done.stdout) if "--json" in words else done.stdout

    def fake(self, name: str, token: str | None = None, **hello: Any) -> "Fake":
        made = Fake(self, name, self.token() if token is None else token, **hello)
        self.fakes.append(made)
        return made

    def job(self, name: str) -> Any:
        """A job as penstock jobs shows it, or None."""
        found = [job for job in self.ask("jobs", "--json")["jobs"] if job["id"] == name]
        return found[0] if found else None


def settings(held: dict[str, str]) -> list[str]:
    return [word for key, value in held.items() for word in ("--set", f"{key}={value}")]


class Fake:
    """An agent in name only: says what a test wants said."""

    def __init__(
        self, site: Site, name: str, token: str = "", certificate: dict[str, str] | None = None, **hello: Any
    ) -> None:
        files = certificate or site.certificate(name)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(files["tls.ca"])
        context.load_cert_chain(files["tls.certificate"], files["tls.key"])
        raw = socket.create_connection((site.host, site.ports[0]), timeout=10)
        self.socket = context.wrap_socket(raw, server_hostname=site.host)
        self.frames = wire.Frames(wire.ToAgent)
        self.inbox: list[Any] = []
        self.epoch = 0
        said = {"version": wire.VERSION, "node": name, "token": token, "software": "fake"}
        self.send(wire.FromAgent(hello=wire.Hello(**(said | hello))))

    def send(self, value: Any) -> None:
        self.socket.sendall(wire.frame(value))

    def hear(self, what: str, seconds: float = 15) -> Any:
        """The next message of a kind; others are passed over."""
        deadline = time.monotonic() + seconds
        while True:
            for at, said in enumerate(self.inbox):
                if said.WhichOneof("what") == what:
                    del self.inbox[: at + 1]
                    return getattr(said, what)
            self.inbox.clear()
            assert time.monotonic() < deadline, f"no {what} within {seconds} s"
            self.socket.settimeout(max(0.01, deadline - time.monotonic()))
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError(f"the controller closed before it said {what}")
            self.inbox += self.frames.feed(data)

    def rows(self, jobs: list[dict[str, Any]], pairs: list[tuple[int, int]], policy: int = 1) -> None:
        self.epoch += 1
        said = wire.Rows(
            epoch=self.epoch,
            policy=policy,
            jobs=[wire.Job(**job) for job in jobs],
            job=np.array([j for j, _ in pairs], "<u4").tobytes(),
            limit=np.array([x for _, x in pairs], "<u4").tobytes(),
        )
        self.send(wire.FromAgent(rows=said))

    def report(self, asked: list[float], waiting: list[float]) -> None:
        columns = {"asked": asked, "waiting": waiting, "waited_s": [0.0] * len(asked)}
        packed = {key: np.array(value, "<f8").tobytes() for key, value in columns.items()}
        self.send(wire.FromAgent(report=wire.Report(epoch=self.epoch, **packed)))

    def grants(self) -> list[float]:
        """The rates of the newest grants for the newest rows."""
        while True:
            said = self.hear("grants")
            if said.epoch == self.epoch:
                return list(np.frombuffer(said.rate))

    def close(self) -> None:
        with suppress(OSError):
            self.socket.close()


__all__ = ["POLICY", "Fake", "Hosts", "Process", "Site", "settings", "until"]
