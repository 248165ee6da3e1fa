# SPDX-License-Identifier: MIT
# json_exact.py - every line is an object with what is promised; a few records by name.
import json, os, sys

records = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
here = os.getcwd()
for r in records:
    assert isinstance(r["kind"], str), r
    if r["kind"] != "blind":
        assert {"time_ns", "pid", "tid"} <= set(r), r
times = [r["time_ns"] for r in records]
assert times == sorted(times), "not in the order of time"
files = [r for r in records if r["kind"] == "file"]
processes = [r for r in records if r["kind"] == "process"]


def one(**want):
    found = [r for r in files if all(r.get(k) == v for k, v in want.items())]
    assert found, want
    return found[0]


quoted = one(path=here + '/with "quotes" and \\backslash', op="open", access=["read"])
assert "error" not in quoted
assert one(path=here + "/missing", op="open")["error"] == 2
odd = one(path=here + "/not-utf8-\ufffd\ufffd", op="open")
assert bytes.fromhex(odd["path_hex"]) == os.fsencode(here) + b"/not-utf8-\xff\xfe", odd
assert all("path_hex" not in r for r in files if "\ufffd" not in r["path"] + r.get("path2", ""))
moved = [r for r in files if "rename" in r["access"]][-1]
assert moved["path2"] == here + "/moved" and "path_hex" in moved, moved
assert "create" in one(path=here + "/made", op="mkdir")["access"]
up = one(path=here + "/made/../up", op="open")
assert set(up["access"]) == {"write", "create"}, up
assert [r for r in files if "list" in r["access"] and r["path"].startswith(here + "/made")]
execs = [r for r in processes if r["op"] == "exec" and r["exe"].endswith("/cat")]
assert execs and execs[0]["argv"][0] == "cat" and execs[0]["argv"][-1] == "missing", execs
assert [r["status"] for r in processes if r["op"] == "exit"] == [3], "the end of the first"
starts = [r for r in processes if r["op"] == "start"]
assert starts and all(r["ppid"] > 0 and r["exe"].startswith("/") for r in starts)
assert {r["reason"] for r in records if r["kind"] == "blind"} == {
    "loader", "libc internals", "raw calls"}
print("all as promised")
