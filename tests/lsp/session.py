"""A session of an editor with `tilec lsp`, message by message.

Usage: session.py TILEC SOURCE_DIR

Every answer is compared with places in the text: `at` finds a word, so that the test reads like what a person does.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

TILEC, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
PROGRAM = """import "lib.tile";

const TWO = 2;

// Twice the input.
kernel twice(x: f32[N], y: out f32[N]) {
    tune BLOCK in {128, 256};
    grid (b in ceildiv(N, BLOCK)) threads 128 {
        shared s: f32[BLOCK];
        copy(x[b * BLOCK +: BLOCK], s);
        parallel (i in BLOCK) {
            let wide = s[i] * TWO;
            s[i] = half(wide) * 2;
        }
        copy(s, y[b * BLOCK +: BLOCK]);
    }
}

reference twice {
    for (i in N) y[i] = 2 * x[i];
}

test twice (N = 1000) tolerance 0;
"""
NEWER = """// Any leading dims, a layout of a parameter, a view.
kernel pack(x: f32[..B, M, N], y: out f16[b in B, m in M, n in N] layout [b, m / 16, n / 32, m % 16, n % 32]) {
    assume(M % 16 == 0 && N % 32 == 0);
    grid (i in M / 16, j in N / 32, k in B) threads 32 {
        fragment v: f32[16, 32];
        shared s: f32[32, 16];
        copy(x[k, i * 16, j * 32], s.T);
        parallel (r in 16, c in 32) v[r, c] = s[c, r];
        copy(v, y[k, i * 16, j * 32]);
    }
}

// A channel, an array of roles.
kernel pairs(A: bf16[M, K], B: bf16[N, K], C: out f32[M, N]) {
    grid (i in M / 128, j in N / 64) threads 384 {
        channel ring (As: bf16[128, 64], Bs: bf16[64, 64]) slots 4 readers 2;
        role load threads 128 regs 40 {
            for (k in K / 64) produce ring {
                copy(A[i * 128, k * 64], As);
                copy(B[j * 64, k * 64], Bs);
            }
        }
        role compute[w in 2] threads 128 regs 232 {
            fragment acc: f32[64, 64];
            fill(acc, 0);
            for (k in K / 64) {
                let u = receive(ring);
                gemm(u.As[w * 64 +: 64, :], u.Bs.T, acc);
                release(u);
            }
            copy(acc, C[i * 128 + w * 64, j * 64]);
        }
    }
}
"""
LIBRARY = "fn half(v: f32) -> f32 { return v * 0.5; }\n"


class Editor:
    def __init__(self, folder, encodings=("utf-16",)):
        self.server = subprocess.Popen([TILEC, "lsp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder)
        self.number, self.waiting, self.text, self.version = 0, [], {}, 0
        general = {"positionEncodings": list(encodings)}
        hints = {"inlayHint": {"refreshSupport": True}}
        self.capabilities = self.ask("initialize", {"capabilities": {"general": general, "workspace": hints}})
        self.tell("initialized", {})

    def send(self, message):
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.server.stdin.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
        self.server.stdin.flush()

    def receive(self):
        length = 0
        while (line := self.server.stdout.readline().strip()):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        assert length, "the server ended"
        return json.loads(self.server.stdout.read(length))

    def tell(self, method, params):
        self.send({"method": method, "params": params})

    def request(self, method, params):
        self.number += 1
        self.send({"id": self.number, "method": method, "params": params})
        while True:
            message = self.receive()
            if message.get("id") == self.number and "method" not in message:
                return message
            self.waiting.append(message)

    def ask(self, method, params):
        answer = self.request(method, params)
        assert "result" in answer, answer
        return answer["result"]

    def told(self, method, **members):
        """The params of the next message of this method that have these members."""
        while True:
            for i, message in enumerate(self.waiting):
                params = message.get("params") or {}
                if message.get("method") == method and all(params.get(k) == v for k, v in members.items()):
                    self.waiting.pop(i)
                    return params
            self.waiting.append(self.receive())

    def open(self, path, text):
        self.text[path.as_uri()] = text
        self.version += 1
        item = {"uri": path.as_uri(), "text": text, "version": self.version, "languageId": "tile"}
        self.tell("textDocument/didOpen", {"textDocument": item})
        return self.told("textDocument/publishDiagnostics", version=self.version)["diagnostics"]

    def change(self, uri, old, new):
        """Replaces the first occurrence of `old`, as an edit of a range."""
        text = self.text[uri]
        assert text.count(old) >= 1, old
        begin = text.index(old)
        start, end = position(text, begin), position(text, begin + len(old))
        self.text[uri] = text.replace(old, new, 1)
        self.version += 1
        self.tell("textDocument/didChange", {"textDocument": {"uri": uri, "version": self.version},
                                             "contentChanges": [{"range": {"start": start, "end": end}, "text": new}]})
        return self.told("textDocument/publishDiagnostics", version=self.version)["diagnostics"]

    def at(self, uri, before, word, method, **more):
        """Asks about `word`, which follows the text `before`."""
        place = self.text[uri].index(before + word) + len(before)
        return self.request(method, {"textDocument": {"uri": uri}, "position": position(self.text[uri], place + 1),
                                     **more})

    def end(self):
        self.ask("shutdown", None)
        self.tell("exit", None)
        assert self.server.wait(timeout=60) == 0


def position(text, offset):
    line = text.count("\n", 0, offset)
    start = text.rfind("\n", 0, offset) + 1
    return {"line": line, "character": len(text[start:offset].encode("utf-16-le")) // 2}


def words(text, ranges):
    """What stands at these ranges."""
    lines = text.split("\n")
    found = []
    for r in ranges:
        assert r["start"]["line"] == r["end"]["line"]
        line = lines[r["start"]["line"]].encode("utf-16-le")
        found.append(line[2 * r["start"]["character"]:2 * r["end"]["character"]].decode("utf-16-le"))
    return found


def apply(text, edits):
    lines = text.split("\n")
    for edit in sorted(edits, key=lambda e: (e["range"]["start"]["line"], e["range"]["start"]["character"]), reverse=True):
        start, end = edit["range"]["start"], edit["range"]["end"]
        line = lines[start["line"]]
        lines[start["line"]] = line[:start["character"]] + edit["newText"] + line[end["character"]:]
    return "\n".join(lines)


def check_names(editor, uri, library):
    text = editor.text[uri]
    target = editor.at(uri, "let wide = ", "s", "textDocument/definition")["result"]
    assert target["uri"] == uri and words(text, [target["range"]]) == ["s"]
    assert target["range"]["start"]["line"] == text[:text.index("shared s")].count("\n")
    there = editor.at(uri, "= ", "half", "textDocument/definition")["result"]
    assert there["uri"] == library.as_uri() and words(LIBRARY, [there["range"]]) == ["half"]
    uses = editor.at(uri, "tune ", "BLOCK", "textDocument/references", context={"includeDeclaration": True})["result"]
    assert len(uses) == text.count("BLOCK") and set(words(text, [u["range"] for u in uses])) == {"BLOCK"}
    dims = editor.at(uri, "test twice (", "N", "textDocument/references", context={"includeDeclaration": False})["result"]
    assert len(dims) == 4, dims                          # y's dim, the grid, the reference and the test
    shown = [s["name"] for s in editor.ask("textDocument/documentSymbol", {"textDocument": {"uri": uri}})]
    assert shown == ["TWO", "twice"], shown


def rename(editor, uri, before, word, new):
    """The text after a rename; as many places change as there are edits."""
    edits = editor.at(uri, before, word, "textDocument/rename", newName=new)["result"]["changes"][uri]
    assert set(words(editor.text[uri], [e["range"] for e in edits])) == {word}, edits
    return apply(editor.text[uri], edits)


def check_newer(editor, folder):
    """Names, hover and hints in channels, arrays of roles, layouts of parameters, leading dims and views."""
    path = folder / "newer.tile"
    assert editor.open(path, NEWER) == []
    uri, pack = path.as_uri(), NEWER[:NEWER.index("// A channel")]
    swapped = lambda old, new: re.sub(rf"\b{old}\b", new, NEWER)
    assert rename(editor, uri, "f32[..", "B", "BATCH") == re.sub(r"\bB\b", "BATCH", pack) + NEWER[len(pack):]
    coordinate = NEWER.index("b in B")
    line = NEWER[coordinate:NEWER.index("\n", coordinate)]
    assert rename(editor, uri, "out f16[", "b", "batch") == NEWER.replace(line, re.sub(r"\bb\b", "batch", line))
    assert rename(editor, uri, "channel ", "ring", "tiles") == swapped("ring", "tiles")
    assert rename(editor, uri, "channel ring (", "As", "Left") == swapped("As", "Left")
    assert rename(editor, uri, "receive(ring);\n                gemm(", "u", "slot_") == swapped("u", "slot_")
    assert rename(editor, uri, "compute[", "w", "half") == swapped("w", "half")
    assert rename(editor, uri, "role ", "compute", "multiply") == swapped("compute", "multiply")
    there = editor.at(uri, "gemm(u.", "As", "textDocument/definition")["result"]
    assert there["range"]["start"]["line"] == NEWER[:NEWER.index("channel ring")].count("\n")
    assert "y: f16[" in hover(editor, uri, "], ", "y") and "u: slot" in hover(editor, uri, "let ", "u")
    editor.told("textDocument/publishDiagnostics", uri=uri)   # the passes have run
    editor.told("workspace/inlayHint/refresh")
    assert "2 of 128 threads, 232 registers" in hover(editor, uri, "role ", "compute")
    assert "Sw<" in hover(editor, uri, "u.", "As") and "@via(wgmma)" in hover(editor, uri, "", "gemm(u")
    assert "`s`: reads" in hover(editor, uri, "        ", "parallel"), hover(editor, uri, "        ", "parallel")
    hints = editor.ask("textDocument/inlayHint", {"textDocument": {"uri": uri}, "range": {}})
    assert [h["label"] for h in hints] == [" (16 registers)", " (32 registers)"], hints
    for right, wrong in (("receive(ring)", "receive(rinq)"), ("u.As", "u.Aa"), ("produce ring", "produce rings")):
        found = editor.change(uri, right, wrong)
        actions = editor.ask("textDocument/codeAction", {"textDocument": {"uri": uri}, "range": found[0]["range"], "context": {"diagnostics": found}})
        assert apply(editor.text[uri], actions[0]["edit"]["changes"][uri]) == NEWER, (found, actions)
        editor.change(uri, wrong, right)
    editor.tell("textDocument/didClose", {"textDocument": {"uri": uri}})
    editor.told("textDocument/publishDiagnostics", uri=uri, diagnostics=[])


def check_rename(editor, uri):
    text = editor.text[uri]
    edit = editor.at(uri, "let ", "wide", "textDocument/rename", newName="doubled")["result"]
    renamed = apply(text, edit["changes"][uri])
    assert renamed == text.replace("wide", "doubled")
    for name, why in (("kernel", "word of the language"), ("4x", "no name"), ("s", "already")):
        assert why in editor.at(uri, "let ", "wide", "textDocument/rename", newName=name)["error"]["message"]
    refused = editor.at(uri, "= ", "half", "textDocument/rename", newName="third")
    assert "imported file" in refused["error"]["message"]


def hover(editor, uri, before, word):
    answer = editor.at(uri, before, word, "textDocument/hover")["result"]
    return answer["contents"]["value"] if answer else ""


def check_hover(editor, uri):
    assert "s: f32[128]" in hover(editor, uri, "shared ", "s")
    assert "wide: f32" in hover(editor, uri, "half(", "wide")
    assert "const `TWO`" in hover(editor, uri, "* ", "TWO")
    assert "lib.tile" in hover(editor, uri, "= ", "half")
    assert "copy(src, dst" in hover(editor, uri, "", "copy") or "copy(" in hover(editor, uri, "", "copy")
    editor.told("workspace/inlayHint/refresh")                # the passes have run
    assert "@offset(" in hover(editor, uri, "shared ", "s")
    assert "@via(" in hover(editor, uri, "        ", "copy")
    assert "bytes of shared memory" in hover(editor, uri, "kernel ", "twice")
    hints = editor.ask("textDocument/inlayHint", {"textDocument": {"uri": uri}, "range": {}})
    assert [h["label"] for h in hints] == [" = 128"], hints
    assert words(editor.text[uri], [{"start": dict(hints[0]["position"], character=hints[0]["position"]["character"] - 5),
                                     "end": hints[0]["position"]}]) == ["BLOCK"]


def complete(editor, uri, before, word):
    return {item["label"] for item in editor.at(uri, before, word, "textDocument/completion")["result"]}


def check_completion(editor, uri):
    inside = complete(editor, uri, "let ", "wide")
    assert {"x", "s", "i", "BLOCK", "half", "copy", "bf16", "pipelined"} <= inside
    outside = complete(editor, uri, "", "const")
    assert "half" in outside and "twice" in outside and "s" not in outside and "BLOCK" not in outside


def check_errors(editor, uri):
    found = editor.change(uri, "let wide = s[i] * TWO;", "let wide = s[i] * TVO;")
    assert [d["code"] for d in found] == ["T0201"] and words(editor.text[uri], [found[0]["range"]]) == ["TVO"]
    actions = editor.ask("textDocument/codeAction", {"textDocument": {"uri": uri}, "range": found[0]["range"],
                                                     "context": {"diagnostics": found}})
    assert [a["title"] for a in actions] == ["Change to 'TWO'"], actions
    mended = apply(editor.text[uri], actions[0]["edit"]["changes"][uri])
    assert "s[i] * TWO;" in mended
    assert editor.change(uri, "TVO", "TWO") == []
    found = editor.change(uri, "s[i] * TWO;", "s[i] * TWO")
    actions = editor.ask("textDocument/codeAction", {"textDocument": {"uri": uri}, "range": found[0]["range"],
                                                     "context": {"diagnostics": found}})
    assert apply(editor.text[uri], actions[0]["edit"]["changes"][uri]) == editor.text[uri].replace("* TWO", "* TWO;")
    assert "wide" in complete(editor, uri, "let ", "wide")    # of the last text that parsed
    refused = editor.at(uri, "let ", "wide", "textDocument/rename", newName="doubled")
    assert "does not parse" in refused["error"]["message"]
    assert editor.change(uri, "s[i] * TWO", "s[i] * TWO;") == []


def check_format(editor, uri):
    formatted = editor.text[uri]
    assert editor.change(uri, "        shared s: f32[BLOCK];", "  shared   s:f32[BLOCK] ;") == []
    edits = editor.ask("textDocument/formatting", {"textDocument": {"uri": uri}, "options": {}})
    assert edits[0]["newText"] == formatted
    assert editor.change(uri, "  shared   s:f32[BLOCK] ;", "        shared s: f32[BLOCK];") == []


def check_columns(editor, folder):
    """Columns count UTF-16 units: a text with a character of two of them before an error."""
    path = folder / "pi \u03c0.tile"
    found = editor.open(path, """kernel k(x: out f32[1]) {
    grid (b in 1) threads 32 {
        thread (t in 32) { print("\U0001d70b \u03c0", undefined); }
    }
}
""")
    text = editor.text[path.as_uri()]
    assert "undefined" in words(text, [d["range"] for d in found]), found
    editor.tell("textDocument/didClose", {"textDocument": {"uri": path.as_uri()}})
    closed = editor.told("textDocument/publishDiagnostics", uri=path.as_uri(), diagnostics=[])
    assert closed["version"] == editor.version


def check_strange(editor, uri):
    assert editor.request("textDocument/unheardOf", {})["error"]["code"] == -32601
    nowhere = {"textDocument": {"uri": "file:///nowhere.tile"}, "position": {"line": 9, "character": 9}}
    for method in ("hover", "definition", "references", "completion", "rename", "prepareRename"):
        editor.request("textDocument/" + method, {**nowhere, "newName": "x"})
    far = {"textDocument": {"uri": uri}, "position": {"line": 99999, "character": 99999}}
    assert editor.ask("textDocument/hover", far) is None
    editor.tell("$/setTrace", {"value": "off"})
    editor.server.stdin.write(b"Content-Length: 5\r\n\r\n{\"a\":")
    editor.server.stdin.flush()
    assert editor.receive()["error"]["code"] == -32700


def cpu_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


EDITS = 20


def longest_edit(editor):
    """Edits of the longest example: CPU time of one until its diagnostics are there, in seconds."""
    path = max((SOURCE / "examples").glob("*.tile"), key=lambda p: p.stat().st_size)
    text = path.read_text()
    assert not [d for d in editor.open(path, text) if d["severity"] == 1]
    first, start = text.split("\n")[0], cpu_seconds(editor.server)
    for i in range(EDITS):
        found = editor.change(path.as_uri(), first + " " * i, first + " " * (i + 1))
        assert not [d for d in found if d["severity"] == 1]
    return path.name, (cpu_seconds(editor.server) - start) / EDITS


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        library, path = folder / "lib.tile", folder / "twice.tile"
        library.write_text(LIBRARY)
        path.write_text(PROGRAM)
        editor = Editor(folder)
        assert editor.capabilities["capabilities"]["positionEncoding"] == "utf-16"
        assert editor.open(path, PROGRAM) == []
        uri = path.as_uri()
        check_names(editor, uri, library)
        check_rename(editor, uri)
        check_hover(editor, uri)
        check_completion(editor, uri)
        check_errors(editor, uri)
        check_format(editor, uri)
        check_newer(editor, folder)
        check_columns(editor, folder)
        check_strange(editor, uri)
        example, seconds = longest_edit(editor)
        editor.end()
        print(f"an edit of {example}: {1000 * seconds:.1f} ms of CPU")
        dropped = Editor(folder, ("utf-8", "utf-16"))
        assert dropped.capabilities["capabilities"]["positionEncoding"] == "utf-8"
        dropped.server.stdin.close()                         # an editor that dies: no shutdown
        assert dropped.server.wait(timeout=60) == 1


main()
