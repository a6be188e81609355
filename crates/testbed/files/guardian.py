# Ends servers that nobody uses any more, and only those: the processes named in
# state.json, each compared with its start time before it is signalled.
#   guardian.py FOLDER lease LOCK IDLE_MS     until LEASE has not been touched for IDLE_MS
#   guardian.py FOLDER owner PID STARTED      until that process is gone
import fcntl, json, os, shutil, signal, sys, time

folder, mode = sys.argv[1], sys.argv[2]


def alive(process):
    try:
        with open(f"/proc/{process['pid']}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    # The first thread is dead before the others; while one of them lives, so do the open ports.
    ended = fields[0] in "ZX" and int(fields[17]) <= 1
    return not ended and int(fields[19]) == process["started"]


def kill(process):
    try:
        handle = os.pidfd_open(process["pid"])
    except ProcessLookupError:
        return
    try:
        # Checked after the handle is open: the handle cannot come to mean another process.
        if alive(process):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)


def state():
    try:
        with open(os.path.join(folder, "state.json")) as file:
            return json.load(file)
    except FileNotFoundError:
        return None


def end(known):
    processes = [server["process"] for server in known["servers"]]
    for process in processes:
        kill(process)
    for _ in range(200):
        if not any(alive(process) for process in processes):
            break
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


def idle_ms():
    return (time.time() - os.stat(os.path.join(folder, "lease")).st_mtime) * 1000


def watch_lease(lock_path, limit_ms):
    pause_s = min(5.0, limit_ms / 4000)
    with open(lock_path, "a") as lock:
        while True:
            time.sleep(pause_s)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # somebody is starting or joining: not idle
            known = state()
            if known is None or known["guardian"]["pid"] != os.getpid():
                return
            abandoned = known["phase"] == "starting" or not any(alive(server["process"]) for server in known["servers"])
            if abandoned or idle_ms() > limit_ms:
                end(known)
                return
            fcntl.flock(lock, fcntl.LOCK_UN)


def watch_owner(owner):
    while alive(owner):
        time.sleep(1)
        if not os.path.isdir(folder):
            return
    known = state()
    if known is not None:
        end(known)


if mode == "lease":
    watch_lease(sys.argv[3], int(sys.argv[4]))
else:
    watch_owner({"pid": int(sys.argv[3]), "started": int(sys.argv[4])})
