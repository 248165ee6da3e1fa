#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compare what the files spy records with what strace sees, in the same run.

	tests/compare_strace.py RECORDER... -- COMMAND...

RECORDER is a command that runs what follows it and prints its records on stdout as "sparring show
--json" does, one object a line. strace runs below it, so both look at the same processes. A path
call belongs to the program when the innermost caller outside libc, the loader and the spy is the
program or one of its libraries, and what it called in libc is a call on a path: all of those must
be in the trace, and no path may be in the trace that strace has not seen. What libc and the loader
do for themselves (a locale, a library: they are named blind spots of hooks) is counted by function.
Exit status: 0 both hold, 1 they do not, 77 strace cannot run here.
"""
import collections
import json
import os
import re
import subprocess
import sys
import tempfile

# Functions of libc that do not take the path that is opened for them.
INTERNAL = re.compile(
    r"^(_?_?dl|_IO_|__?libc|setlocale|_?_?newlocale|bindtextdomain|d?c?n?gettext|iconv_open|tzset|"
    r"_?_?localtime|_?_?mktime|strftime|getpw|getgr|getaddrinfo|gethost|getserv|sysconf|get_nprocs|"
    r"nl_langinfo|__nss|res_|qsort|pthread_|_Unwind|syslog|getutx?|ctermid|tmpfile|setutx?|getlogin|"
    r"wordexp|strerror|perror|regcomp|getentropy|__cxa|catopen|sem_|shm_|initgroups|secure_getenv|"
    r"innetgr|getmntent|setmntent|pathconf|ttyname|isatty|getcwd|exit|__gconv|mbstowcs|mbrtowc|"
    r"btowc|fputws|fwide|wcrtomb|__vfprintf_internal|fprintf|getrandom|time$|ctime|asctime)")

CALL = re.compile(r"^(\d+)\s+(\w+)\((.*)$")
RESUMED = re.compile(r"^(\d+)\s+<\.\.\. (\w+) resumed>(.*)$")
FRAME = re.compile(r"^ > (\S*?)(?:\((.*?)\))? \[0x")
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"(\.\.\.)?')
CWD = re.compile(r"AT_FDCWD<((?:[^>\\]|\\.)*)>")
FD = re.compile(r"^(-?\d+)<((?:[^>\\]|\\.)*)>$")

# Which arguments are (directory, path), by call; the others of "file" take one path first.
PLACES = {
    "openat": [(0, 1)], "openat2": [(0, 1)], "newfstatat": [(0, 1)], "statx": [(0, 1)],
    "faccessat": [(0, 1)], "faccessat2": [(0, 1)], "readlinkat": [(0, 1)], "mkdirat": [(0, 1)],
    "mknodat": [(0, 1)], "unlinkat": [(0, 1)], "fchmodat": [(0, 1)], "fchownat": [(0, 1)],
    "utimensat": [(0, 1)], "futimesat": [(0, 1)], "name_to_handle_at": [(0, 1)],
    "execveat": [(0, 1)], "renameat": [(0, 1), (2, 3)], "renameat2": [(0, 1), (2, 3)],
    "linkat": [(0, 1), (2, 3)], "rename": [(None, 0), (None, 1)], "link": [(None, 0), (None, 1)],
    "symlink": [(None, 1)], "symlinkat": [(1, 2)], "inotify_add_watch": [(None, 1)],
    "mount": [(None, 1)], "pivot_root": [(None, 0), (None, 1)], "getcwd": [], "fchdir": [],
    "open_tree": [(0, 1)], "fspick": [(0, 1)], "move_mount": [(0, 1), (2, 3)],
}


def unescape(text):
    return text.encode("latin-1", "replace").decode("unicode_escape").encode("latin-1").decode(
        "utf-8", "surrogateescape")


def arguments(text):
    """Split at the commas of the outermost level."""
    out, depth, at, quoted, i = [], 0, 0, False, 0
    while i < len(text):
        c = text[i]
        if quoted:
            if c == "\\":
                i += 1
            elif c == '"':
                quoted = False
        elif c == '"':
            quoted = True
        elif c in "([{<":
            depth += 1
        elif c in ")]}>":
            if c == ")" and depth == 0:
                break
            if not (c == ">" and text[i - 1] == "-"):
                depth -= 1
        elif c == "," and depth == 0:
            out.append(text[at:i].strip())
            at = i + 1
        i += 1
    out.append(text[at:i].strip())
    return out


def plain(path):
    """Without "." components and doubled slashes."""
    parts = [p for p in path.split("/") if p not in ("", ".")]
    return "/" + "/".join(parts)


class Strace:
    """The path calls of a strace -f -k -y log: (pid, call, paths, frames)."""

    def __init__(self, file):
        self.calls, self.cwd, pending, last = [], {}, {}, None
        for line in open(file, encoding="latin-1"):
            line = line.rstrip("\n")
            frame = FRAME.match(line)
            if frame:
                if last is not None:
                    last[3].append((os.path.basename(frame[1]), (frame[2] or "").split("+")[0]))
                continue
            resumed = RESUMED.match(line)
            call = CALL.match(line)
            last = None
            if resumed:
                text = pending.pop(resumed[1], "") + resumed[3]
                last = self.add(resumed[1], resumed[2], text)
            elif call and line.endswith("<unfinished ...>"):
                pending[call[1]] = call[3][:-len("<unfinished ...>")]
                last = None
            elif call:
                last = self.add(call[1], call[2], call[3])

    def add(self, pid, name, text):
        args = arguments(text)
        paths = []
        found = CWD.search(text)
        if found:
            self.cwd[pid] = unescape(found[1])
        for d, p in PLACES.get(name, [(None, 0)]):
            if p >= len(args):
                continue
            string = STRING.match(args[p])
            if not string:
                continue
            path = unescape(string[1])
            base = self.cwd.get(pid, "?")
            if d is not None and not args[d].startswith("AT_FDCWD"):
                fd = FD.match(args[d])
                base = unescape(fd[2]) if fd else "?"
                if path == "":
                    continue
            paths.append(plain(path if path.startswith("/") else base + "/" + path))
        if name == "chdir" and text.rstrip().endswith("= 0") and paths:
            self.cwd[pid] = paths[0]
        entry = (int(pid), name, paths, [])
        self.calls.append(entry)
        return entry


def is_libc(obj):
    return obj.startswith(("libc.so", "libc-", "libpthread", "libdl", "ld-linux", "librt", "[vdso"))


def whose(call):
    """program, spy, loader, or libc:FUNCTION."""
    _, name, _, frames = call
    skipped = 0
    while skipped < len(frames) and is_libc(frames[skipped][0]):
        skipped += 1
    if skipped == len(frames):
        return "loader"
    if frames[skipped][0].startswith("libsparring-files"):
        return "spy" if skipped == 0 and not name.startswith("exec") else "program"
    if skipped == 0:
        return "program"  # a raw system call
    function = frames[skipped - 1][1]
    return "libc:" + function


def main():
    split = sys.argv.index("--")
    recorder, command = sys.argv[1:split], sys.argv[split + 1:]
    if subprocess.run(["strace", "-k", "-o", "/dev/null", "true"], capture_output=True).returncode:
        print("strace -k cannot run here")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "strace.log")
        run = subprocess.run(recorder + ["/usr/bin/strace", "-f", "-k", "-y", "-s", "65536", "-e",
                                         "trace=file", "-o", log] + command,
                             stdout=subprocess.PIPE, text=True, errors="surrogateescape")
        seen = Strace(log)
    pids = {pid for pid, *_ in seen.calls}
    trace, blind = collections.defaultdict(set), []
    for line in run.stdout.splitlines():
        record = json.loads(line)
        if record["kind"] == "blind":
            blind.append(record)
        if record["kind"] == "file" and (record["pid"] in pids or record.get("tid") in pids):
            trace[plain(record["path"])].add(record["op"])
            if "path2" in record and record["op"] not in ("symlink", "symlinkat"):
                trace[plain(record["path2"])].add(record["op"])
    return judge(seen, trace, blind)


def judge(seen, trace, blind):
    strace, theirs, internal = set(), set(), collections.defaultdict(set)
    unexplained = collections.defaultdict(set)
    for call in seen.calls:
        by = whose(call)
        strace.update(call[2])
        if by == "program":
            theirs.update(call[2])
        elif by.startswith("libc:") and not INTERNAL.match(by[5:]):
            unexplained[by[5:]].update(call[2])
        elif by != "spy":
            internal[by].update(call[2])
    ops, trace = trace, set(trace)
    missing = (theirs | set().union(*unexplained.values())) - trace
    # realpath asks for each directory on the way: of a path that is not there only the beginning.
    extra = {p for p in trace - strace if ops[p] - {"realpath", "canonicalize_file_name"}}
    print("strace: %d path calls, %d paths; the program's: %d; the trace: %d" %
          (len(seen.calls), len(strace), len(theirs), len(trace)))
    for by, paths in sorted(internal.items()):
        print("  %-28s %4d paths, %d of them not in the trace" % (by, len(paths),
                                                                  len(paths - trace)))
    for function, paths in sorted(unexplained.items()):
        print("  through %-20s %4d paths, %d of them not in the trace" % (function, len(paths),
                                                                         len(paths - trace)))
    for path in sorted(missing):
        print("  MISSING %s" % path)
    for path in sorted(extra):
        print("  EXTRA %s" % path)
    for record in blind:
        print("  blind: %s %s" % (record["reason"], record["text"]))
    print("missing %d, extra %d" % (len(missing), len(extra)))
    return 1 if missing or extra else 0


if __name__ == "__main__":
    sys.exit(main())
