# SPDX-License-Identifier: Apache-2.0
"""Two emulated nodes on this machine: each has its own network, mounts, processes, IPC, host name and /dev/shm.

    with Nodes(folder) as nodes:
        nodes.head("mpirun", ...)              # on the head node, which sees both
        nodes.srun("-N2", "-n8", "./app")      # by a real Slurm that was brought up for it

Everything runs in network namespaces of its own and dies with the holder processes.
"""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("node1", "node2")
MISSING = [
    name
    for name in ("unshare", "nsenter", "ip", "slurmctld", "slurmd", "srun", "munged", "mpirun.openmpi")
    if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None
]
CONFIG = """
ClusterName=penstock-test
SlurmctldHost=head(10.88.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
MessageTimeout=30
KillWait=5
NodeName=node1 NodeAddr=10.88.0.11 NodeHostname=node1 CPUs=4 State=UNKNOWN
NodeName=node2 NodeAddr=10.88.0.12 NodeHostname=node2 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def until(claim: Any, what: str, seconds: float = 60) -> None:
    """Poll for a thing to come true."""
    deadline = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline, f"after {seconds} s: {what}"
        time.sleep(0.05)


class Nodes:
    """The holders of the namespaces, and commands inside."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []
        self.holder: dict[str, int] = {}

    def __enter__(self) -> "Nodes":
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.started):
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
        for process in self.started:
            process.wait(timeout=30)

    def _hold(self, name: str, *flags: str, shell: str) -> None:
        """A process that keeps the namespaces; in a pid namespace its child is process 1."""
        ready = self.folder / f"{name}.ready"
        script = f"{shell}\ntouch {ready}\nexec sleep infinity"
        self.started.append(subprocess.Popen(["unshare", "--kill-child", *flags, "bash", "-ec", script]))
        until(ready.exists, f"{name} is there")
        pid = self.started[-1].pid
        if "--fork" in flags:
            pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        self.holder[name] = pid

    def _make(self) -> None:
        hosts = self.folder / "hosts"
        hosts.write_text("127.0.0.1 localhost\n10.88.0.1 head\n10.88.0.11 node1\n10.88.0.12 node2\n")
        common = f"mount --make-rprivate /; mount --bind {hosts} /etc/hosts; ip link set lo up"
        self._hold(
            "head",
            *("--net", "--mount", "--uts", "--fork"),
            shell=f"hostname head; {common}; ip link add br0 type bridge; ip addr add 10.88.0.1/24 dev br0; "
            "ip link set br0 up",
        )
        for number, name in enumerate(NAMES, 11):
            self._hold(
                name,
                *("--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--mount-proc"),
                shell=f"hostname {name}; {common}; mount -t tmpfs -o size=256m,mode=1777 tmpfs /dev/shm",
            )
            inside, outside = f"eth-{name}", f"br-{name}"
            self.head("ip", "link", "add", outside, "type", "veth", "peer", "name", inside)
            self.head("ip", "link", "set", inside, "netns", self.holder[name])
            self.head("ip", "link", "set", outside, "master", "br0", "up")
            self.on(name, "ip", "addr", "add", f"10.88.0.{number}/24", "dev", inside)
            self.on(name, "ip", "link", "set", inside, "up")

    def _words(self, node: str, words: tuple[object, ...]) -> list[str]:
        flags = ["-m", "-u", "-n"] + (["-i", "-p"] if node != "head" else [])
        return ["nsenter", "-t", str(self.holder[node]), *flags, "--", *map(str, words)]

    def on(
        self, node: str, *words: object, check: bool = True, seconds: float = 60, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a node and wait for it."""
        command = self._words(node, words)
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=seconds, **options
        )
        assert not check or done.returncode == 0, (words, done.returncode, done.stdout, done.stderr)
        return done

    def head(self, *words: object, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command on the head node."""
        return self.on("head", *words, **options)

    def rsh_agent(self) -> Path:
        """What mpirun starts its daemons with: rsh_agent NODE COMMAND."""
        script = self.folder / "rsh"
        cases = "\n".join(
            f'{name}) exec nsenter -t {self.holder[name]} -m -u -n -i -p -- sh -c "$*";;' for name in NAMES
        )
        script.write_text(f'#!/bin/sh\nhost=$1\nshift\ncase "$host" in\n{cases}\nesac\n')
        script.chmod(0o755)
        return script

    def start_slurm(self) -> None:
        """munged, slurmctld and a slurmd a node."""
        for name in ("state", "spool-node1", "spool-node2"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        self.conf = self.folder / "slurm.conf"
        self.conf.write_text(CONFIG.format(folder=self.folder))
        self._daemon(
            "head",
            *("munged", "-F", "--force", f"--key-file={key}", f"--socket={self.folder}/munge.socket"),
            *(f"--log-file={self.folder}/munge.log", f"--pid-file={self.folder}/munge.pid"),
            *(f"--seed-file={self.folder}/munge.seed",),
        )
        until((self.folder / "munge.socket").exists, "munged listens")
        self._daemon("head", "slurmctld", "-D", "-f", self.conf)
        for name in NAMES:
            self._daemon(name, "slurmd", "-D", "-N", name, "-f", self.conf)
        until(lambda: self._idle() == 2, f"both nodes are idle; see {self.folder}/*.log")

    def _daemon(self, node: str, *words: object) -> None:
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        log = (self.folder / f"{words[0]}-{node}.out").open("wb")
        self.started.append(
            subprocess.Popen(
                self._words(node, words), env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        )
        log.close()

    def _idle(self) -> int:
        done = self.head(
            "sinfo", "-h", "-N", "-o", "%T", env={**os.environ, "SLURM_CONF": str(self.conf)}, check=False
        )
        return done.stdout.split().count("idle")

    def srun(self, *words: object, env: dict[str, str], **options: Any) -> subprocess.CompletedProcess[str]:
        return self.head("srun", *words, env={**env, "SLURM_CONF": str(self.conf)}, **options)
