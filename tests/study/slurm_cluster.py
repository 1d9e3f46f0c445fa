"""A Slurm of two nodes on this machine, in a directory of its own: munge, a controller, two slurmd. Needs no root."""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo")
PLACES = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
NODES = ("n1", "n2")
PATIENCE = 90  # seconds

CONFIGURATION = """
ClusterName=carebn
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={directory}/munge.sock,cred_expire=20
CredType=cred/munge
StateSaveLocation={directory}/state
SlurmctldPidFile={directory}/slurmctld.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdSpoolDir={directory}/spool-%n
SlurmdPidFile={directory}/%n.pid
SlurmdLogFile={directory}/%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=0
ReturnToService=2
SlurmdTimeout=10
KillWait=20
MailProg=/bin/true
MpiDefault=none
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={n1} CPUs=1 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={n2} CPUs=1 State=UNKNOWN
PartitionName=short Nodes=ALL Default=YES MaxTime=60 State=UP
"""


def missing_programs() -> list[str]:
    return [name for name in PROGRAMS if shutil.which(name, path=PLACES) is None]


def wait_until(what: str, true: Callable[[], bool], seconds: float = PATIENCE) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, f"waited {seconds} seconds until {what}"
        time.sleep(0.1)


class SlurmCluster:
    """``with SlurmCluster(directory) as slurm:``; inside, sbatch and its like mean this one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._before = {name: os.environ.get(name) for name in ("SLURM_CONF", "PATH")}

    def __enter__(self) -> "SlurmCluster":
        (self.directory / "state").mkdir(parents=True)
        ports = dict(zip(("controller", *NODES), free_ports(3), strict=True))
        self.configuration = self.directory / "slurm.conf"
        self.configuration.write_text(
            CONFIGURATION.format(
                host=socket.gethostname().split(".")[0], user=getpass.getuser(), directory=self.directory, **ports
            )
        )
        os.environ |= {"SLURM_CONF": str(self.configuration), "PATH": PLACES}
        try:
            self._start_munge()
            self.start_controller()
            for node in NODES:
                self.start_node(node)
            wait_until("two nodes are idle", lambda: self.ask("sinfo", "-h", "-o", "%T %D").split() == ["idle", "2"])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if "slurmctld" in self.processes:
            subprocess.run(["scancel", "--quiet", "--user", getpass.getuser()], stderr=subprocess.DEVNULL)
        for name in [*NODES, "slurmctld", "munged"]:
            self.end(name, signal.SIGTERM)
        for step in self._leftovers():
            os.kill(step, signal.SIGKILL)
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    # --- what can be done to it --------------------------------------------------------------------------------------

    def _start_munge(self) -> None:
        here = self.directory
        here.chmod(0o755)  # munge wants to be sure of who may write there
        (here / "munge.key").write_bytes(os.urandom(1024))
        (here / "munge.key").chmod(0o400)
        files = {"key-file": "key", "socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{name}={here}/munge.{ending}" for name, ending in files.items()]
        self._start("munged", ["--foreground", "--force", "--num-threads=2", *options])
        wait_until("munge answers", (here / "munge.sock").exists)

    def start_controller(self) -> None:
        self._start("slurmctld", ["-D", "-f", str(self.configuration)])
        wait_until("the controller answers", lambda: " is UP" in self.ask("scontrol", "ping"))

    def start_node(self, name: str, hidden: Path | None = None) -> None:
        """``hidden``: a directory that this node does not see (needs root)."""
        (self.directory / f"spool-{name}").mkdir(exist_ok=True)
        words = ["-D", "-f", str(self.configuration), "-N", name]
        self._start(name, words, "slurmd", hidden)

    def _start(self, name: str, words: list[str], program: str = "", hidden: Path | None = None) -> None:
        found = shutil.which(program or name)
        assert found is not None
        command = [found, *words]
        if hidden is not None:
            command = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(hidden), *command]
        with open(self.directory / f"{name}.out", "ab") as out:
            self.processes[name] = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)

    def end(self, name: str, number: signal.Signals) -> None:
        process = self.processes.pop(name, None)
        if process is not None:
            process.send_signal(number)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def take_down(self, node: str) -> None:
        """The node is gone, with all that ran on it: its daemon, its job steps and what they had started."""
        self.end(node, signal.SIGKILL)
        for process in self._leftovers(node):
            os.kill(process, signal.SIGKILL)

    def _leftovers(self, node: str = "") -> list[int]:
        """Job steps of this cluster, and all below them."""
        parents: dict[int, int] = {}
        roots = set()
        for path in Path("/proc").iterdir():
            if not path.name.isdigit():
                continue
            try:
                words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                environment = (path / "environ").read_bytes().split(b"\0")
                status = (path / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue  # it has ended
            parents[int(path.name)] = int(status[1])
            ours = f"SLURM_CONF={self.configuration}".encode() in environment
            if "slurmstepd" in words and ours and (not node or f"SLURMD_NODENAME={node}".encode() in environment):
                roots.add(int(path.name))
        found = set(roots)
        while more := {child for child, parent in parents.items() if parent in found} - found:
            found |= more
        return sorted(found)

    def ask(self, *words: str) -> str:
        return subprocess.run(words, capture_output=True, text=True).stdout

    def jobs(self, *states: str) -> list[str]:
        """Ids of the jobs in these states, oldest first."""
        rows = [line.split("|") for line in self.ask("squeue", "-h", "-t", "all", "-o", "%i|%T").splitlines()]
        return sorted((job for job, state in rows if state in states), key=int)

    def state(self, job: str) -> str:
        return self.ask("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()

    def node_of(self, job: str) -> str:
        return self.ask("squeue", "-h", "-t", "all", "-j", job, "-o", "%N").strip()


def free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


if __name__ == "__main__":
    lacking = missing_programs()
    if lacking:
        sys.exit(
            f"make slurm-test needs Slurm and munge: install the packages slurm-wlm and munge ({lacking[0]} is missing)"
        )
