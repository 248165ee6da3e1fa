# SPDX-License-Identifier: MIT
# terminal.py - a person at a terminal with job control, who records programs and presses keys.
import os, pty, re, select, sys, time

pid, fd = pty.fork()
if pid == 0:
    os.environ.update(PS1="", PS2="", TERM="dumb")
    os.execvp("bash", ["bash", "--norc", "--noediting", "-i"])

seen = ""


def wait_for(text, seconds=20):
    """Read until text is there; what was read up to its end."""
    global seen
    end = time.monotonic() + seconds
    while text not in seen:
        if not select.select([fd], [], [], max(0, end - time.monotonic()))[0]:
            print("never came: %r, only %r" % (text, seen))
            sys.exit(1)
        seen += os.read(fd, 4096).decode(errors="replace").replace("\r", "")
    at = seen.index(text) + len(text)
    before, seen = seen[:at], seen[at:]
    return before


def type_in(text):
    os.write(fd, text.encode())


def status(what):
    type_in("echo st''atus=$?.\n")
    wait_for("status=")
    print(what, "=>", wait_for(".")[:-1])


type_in("stty -echo; record() { '%s' record -q -- \"$@\"; }; echo re''ady\n" % sys.argv[1])
wait_for("ready\n")

type_in("record sh -c 'echo go''ing; exec sleep 100'\n")
wait_for("going")
type_in("\x03")
status("^C kills")

type_in("record sh -c 'trap \"echo caught; exit 3\" INT; echo go''ing; while :; do sleep 0.1; done'\n")
wait_for("going")
type_in("\x03")
wait_for("caught")
status("^C is caught")

type_in("record sh -c 'ulimit -c 0; echo go''ing; exec sleep 100'\n")
wait_for("going")
type_in("\x1c")
status("^\\ quits")

for turn in 1, 2, 3:
    type_in("record sh -c 'echo go''ing; read line; echo \"got $line\"; exit 4'\n")
    wait_for("going")
    type_in("\x1a")
    wait_for("Stopped")
    type_in("fg >/dev/null\n")
    type_in("hello\n")
    wait_for("got hello")
    status("^Z and fg")

type_in("record cat >out &\n")
wait_for("]")
time.sleep(0.3)
type_in("jobs\n")
wait_for("Stopped")
type_in("fg >/dev/null\n")
type_in("in the foreground\n\x04")
status("reading in the background stops, fg goes on")
print(open("out").read(), end="")

type_in("record sh -c 'stty size; stty -echo -icanon; exit 0'; stty -a | grep -o -- '-icanon'; stty sane\n")
wait_for("-icanon")
print("modes that the target sets stay")
type_in("exit\n")
