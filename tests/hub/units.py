"""`systemd-run` and `systemctl` for machines without systemd, as far as the hub's spawner needs.

Run as one of these names, it carries out a unit's properties about accounts, namespaces, files and
rights with the kernel's own means, as systemd does. Limits of memory and CPU it only keeps: those
need the machine's cgroups. What it does not know is refused, so that a property without effect here
is known. The environment says where units are kept (`UNITS`), and which folders must stay readable
in a unit though they lie where it sees nothing (`UNITS_KEEP`): Python and the code under test.
"""

from __future__ import annotations

import os
import pwd
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

UNITS = Path(os.environ.get("UNITS", "/nonexistent"))
KEEP = os.environ.get("UNITS_KEEP", "").split()
# Without an effect on what a unit can see: limits, and closed ways that this kernel need not have.
KEPT = {
    *("CPUAccounting", "CPUQuota", "MemoryAccounting", "MemoryMax", "MemorySwapMax", "TasksMax"),
    *("IPAddressDeny", "KeyringMode", "LimitCORE", "LockPersonality", "OOMPolicy", "PrivateIPC"),
    *("ProtectClock", "ProtectControlGroups", "ProtectKernelLogs", "ProtectKernelModules"),
    *("ProtectKernelTunables", "RestrictAddressFamilies", "RestrictNamespaces"),
    *("RestrictSUIDSGID", "RuntimeDirectory", "RuntimeDirectoryMode", "RuntimeDirectoryPreserve"),
    "PrivateDevices",
}


def started(
    words: list[str], user: str, folder: str, properties: dict[str, str], variables: dict[str, str]
) -> subprocess.Popen[bytes]:
    """A process with the properties of a unit."""
    known = dict(properties)
    for name in KEPT:
        known.pop(name, None)
    network = known.pop("NetworkNamespacePath", "")
    script = ["set -e", *_mounts(known)]
    umask = known.pop("UMask", "0022")
    assert known.pop("CapabilityBoundingSet", "") == ""
    assert known.pop("NoNewPrivileges", "yes") == "yes"
    assert not known, f"unknown properties: {known}"
    account = pwd.getpwnam(user)
    given = {
        "HOME": account.pw_dir,
        "USER": user,
        "LOGNAME": user,
        "PATH": os.defpath,
        **variables,
    }
    setting = [f"{name}={value}" for name, value in given.items()]
    rights = ["setpriv", f"--reuid={user}", f"--regid={account.pw_gid}", "--init-groups"]
    rights += ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
    script += [f"cd {shlex.quote(folder)}", f"umask {umask}"]
    script.append("exec " + shlex.join([*rights, "env", "-i", *setting, *words]))
    inside = ["unshare", "--mount", "--ipc", "--propagation", "private"]
    inside += ["bash", "-c", "\n".join(script)]
    if network:
        inside = ["nsenter", f"--net={network}", *inside]
    with open(UNITS / "log", "ab") as log:
        return subprocess.Popen(
            inside, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


def _mounts(known: dict[str, str]) -> list[str]:
    """The commands that lay out a unit's files."""
    hold = UNITS / "hold"
    lines = [f"mount -t tmpfs -o mode=700 tmpfs {hold}"]
    for number, folder in enumerate(KEEP):
        lines += [f"mkdir {hold}/{number}", f"mount --bind {folder} {hold}/{number}"]
    binds = known.pop("BindPaths", "").split()
    for number, folder in enumerate(binds):
        lines += [f"mkdir {hold}/b{number}", f"mount --bind {folder} {hold}/b{number}"]
    empty = []
    if known.pop("ProtectHome", "no") in ("yes", "tmpfs"):
        empty += ["/home", "/root", "/run/user"]
    if known.pop("PrivateTmp", "no") == "yes":
        lines += [f"[ ! -d {each} ] || mount -t tmpfs -o mode=1777 tmpfs {each}" for each in _TMP]
    empty += [each.removesuffix(":ro") for each in known.pop("TemporaryFileSystem", "").split()]
    empty += [each.removeprefix("-") for each in known.pop("InaccessiblePaths", "").split()]
    lines += [f"[ ! -d {each} ] || mount -t tmpfs -o mode=755 tmpfs {each}" for each in empty]
    for number, folder in enumerate(binds):
        lines += [f"mkdir -p {folder}", f"mount --bind {hold}/b{number} {folder}"]
    for number, folder in enumerate(KEEP):
        lines += [f"[ -e {folder}/. ] || mkdir -p {folder}"]
        lines += [f"mountpoint -q {folder} || mount --bind {hold}/{number} {folder}"]
    if known.pop("ProtectSystem", "") == "strict":
        lines += ["mount -o remount,bind,ro /"]
    known.pop("ReadWritePaths", None)
    if known.pop("ProtectProc", "") == "invisible":
        lines += ["mount -t proc -o hidepid=invisible proc /proc"]
    return [*lines, f"umount --lazy {hold}"]


_TMP = ("/tmp", "/var/tmp")


def environment_file(path: str) -> dict[str, str]:
    """The variables in a file of systemd's form."""
    lines = [line for line in Path(path).read_text().splitlines() if "=" in line]
    return {
        name: shlex.split(value)[0] if value else ""
        for name, _, value in (line.partition("=") for line in lines)
    }


def _run(words: list[str]) -> int:
    options: dict[str, str] = {}
    properties: dict[str, str] = {}
    while words and words[0].startswith("--"):
        name, _, value = words.pop(0)[2:].partition("=")
        if name in ("unit", "working-directory"):
            value = words.pop(0)
        if name == "property":
            name, _, value = value.partition("=")
            properties[name] = value
        else:
            options[name] = value
    user = pwd.getpwuid(int(options["uid"])).pw_name
    with open(UNITS / "started", "a") as noted:
        print(options, properties, file=noted)
    variables = environment_file(properties.pop("EnvironmentFile"))
    process = started(words, user, options["working-directory"], properties, variables)
    (UNITS / f"{options['unit']}.pid").write_text(str(process.pid))
    return 0


def _control(words: list[str]) -> int:
    if words[0] == "--version":
        print("systemd 255 (255)")
        return 0
    file = UNITS / f"{words[1]}.pid"
    pid = int(file.read_text()) if file.exists() else 0
    if words[0] == "is-active":
        return 0 if _is_alive(pid) else 3
    if words[0] == "stop" and pid:
        end(pid)
    return 1 if words[0] == "is-failed" else 0


def end(pid: int) -> None:
    """End the processes of a unit."""
    deadline = time.monotonic() + 5
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(pid, number)
            while _is_alive(pid) and time.monotonic() < deadline:
                time.sleep(0.1)
        except ProcessLookupError:
            return


def _is_alive(pid: int) -> bool:
    try:
        return bool(pid) and Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except OSError:
        return False


if __name__ == "__main__":
    name, *words = sys.argv[1:]
    sys.exit({"systemd-run": _run, "systemctl": _control}[name](words))
