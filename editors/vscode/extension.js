// The client of `tilec lsp` for VS Code. It has no dependencies: the protocol is a child process, a header with a length, and
// JSON; each feature of the server is a provider of the editor.
"use strict";
const vscode = require("vscode");
const { spawn } = require("child_process");

class Connection {
    constructor(path, target, notified) {
        this.process = spawn(path, ["lsp", `--target=${target}`], { stdio: ["pipe", "pipe", "inherit"] });
        this.bytes = Buffer.alloc(0);
        this.pending = new Map();
        this.number = 0;
        this.notified = notified;
        this.process.stdout.on("data", (data) => this.read(data));
        this.process.on("error", (error) => this.fail(error));
        this.process.on("exit", () => this.fail(new Error("tilec lsp has ended")));
    }

    fail(error) {
        this.ended = error;
        for (const { reject } of this.pending.values()) reject(error);
        this.pending.clear();
    }

    write(message) {
        if (this.ended) return;
        const body = Buffer.from(JSON.stringify({ jsonrpc: "2.0", ...message }));
        this.process.stdin.write(`Content-Length: ${body.length}\r\n\r\n`);
        this.process.stdin.write(body);
    }

    tell(method, params) {
        this.write({ method, params });
    }

    ask(method, params) {
        if (this.ended) return Promise.reject(this.ended);
        const id = ++this.number;
        const answer = new Promise((resolve, reject) => this.pending.set(id, { resolve, reject }));
        this.write({ id, method, params });
        return answer;
    }

    read(data) {
        this.bytes = Buffer.concat([this.bytes, data]);
        for (;;) {
            const end = this.bytes.indexOf("\r\n\r\n");
            const length = end < 0 ? null : /Content-Length: *(\d+)/i.exec(this.bytes.toString("latin1", 0, end));
            if (!length || this.bytes.length < end + 4 + Number(length[1])) return;
            const start = end + 4, stop = start + Number(length[1]);
            const message = JSON.parse(this.bytes.toString("utf8", start, stop));
            this.bytes = this.bytes.subarray(stop);
            this.take(message);
        }
    }

    take(message) {
        if (message.method) {
            this.notified(message.method, message.params);
            if (message.id !== undefined) this.write({ id: message.id, result: null });
            return;
        }
        const waiting = this.pending.get(message.id);
        this.pending.delete(message.id);
        if (!waiting) return;
        if (message.error) waiting.reject(new Error(message.error.message));
        else waiting.resolve(message.result);
    }
}

// ---- values of the protocol and of the editor ----
const position = (p) => new vscode.Position(p.line, p.character);
const range = (r) => new vscode.Range(position(r.start), position(r.end));
const location = (l) => new vscode.Location(vscode.Uri.parse(l.uri), range(l.range));
const sent = (p) => ({ line: p.line, character: p.character });
const sentRange = (r) => ({ start: sent(r.start), end: sent(r.end) });
const textEdit = (e) => new vscode.TextEdit(range(e.range), e.newText);
// Numbers of the protocol count from 1, those of the editor from 0; severities too.
const number = (n) => n - 1;

function workspaceEdit(edit) {
    const out = new vscode.WorkspaceEdit();
    for (const [uri, edits] of Object.entries(edit.changes)) out.set(vscode.Uri.parse(uri), edits.map(textEdit));
    return out;
}

function diagnostic(d) {
    const out = new vscode.Diagnostic(range(d.range), d.message, number(d.severity));
    out.code = d.code;
    out.source = d.source;
    out.relatedInformation = d.relatedInformation.map(
        (r) => new vscode.DiagnosticRelatedInformation(location(r.location), r.message));
    return out;
}

function completionItem(item) {
    const out = new vscode.CompletionItem(item.label, number(item.kind));
    out.detail = item.detail;
    return out;
}

function codeAction(action) {
    const out = new vscode.CodeAction(action.title, vscode.CodeActionKind.QuickFix);
    out.edit = workspaceEdit(action.edit);
    return out;
}

function symbol(s) {
    return new vscode.DocumentSymbol(s.name, s.detail, number(s.kind), range(s.range), range(s.selectionRange));
}

// ---- the session ----
function providers(connection, hintsChanged) {
    const file = (document) => ({ textDocument: { uri: document.uri.toString() } });
    const at = (document, place, more) => ({ ...file(document), position: sent(place), ...more });
    const ask = (method, params) => connection.ask(`textDocument/${method}`, params);
    const all = (list, make) => (list || []).map(make);
    const language = { language: "tile" }, languages = vscode.languages;
    return [
        languages.registerHoverProvider(language, {
            provideHover: async (document, place) => {
                const answer = await ask("hover", at(document, place));
                return answer && new vscode.Hover(new vscode.MarkdownString(answer.contents.value));
            },
        }),
        languages.registerDefinitionProvider(language, {
            provideDefinition: async (document, place) => {
                const answer = await ask("definition", at(document, place));
                return answer && location(answer);
            },
        }),
        languages.registerReferenceProvider(language, {
            provideReferences: async (document, place, context) => all(
                await ask("references", at(document, place, { context: { includeDeclaration: context.includeDeclaration } })),
                location),
        }),
        languages.registerDocumentHighlightProvider(language, {
            provideDocumentHighlights: async (document, place) => all(
                await ask("documentHighlight", at(document, place)), (h) => new vscode.DocumentHighlight(range(h.range))),
        }),
        languages.registerDocumentSymbolProvider(language, {
            provideDocumentSymbols: async (document) => all(await ask("documentSymbol", file(document)), symbol),
        }),
        languages.registerRenameProvider(language, {
            provideRenameEdits: async (document, place, newName) => workspaceEdit(
                await ask("rename", at(document, place, { newName }))),
            prepareRename: async (document, place) => {
                const answer = await ask("prepareRename", at(document, place));
                if (!answer) throw new Error("there is no name here");
                return range(answer);
            },
        }),
        languages.registerCompletionItemProvider(language, {
            provideCompletionItems: async (document, place) => all(await ask("completion", at(document, place)), completionItem),
        }, "@"),
        languages.registerDocumentFormattingEditProvider(language, {
            provideDocumentFormattingEdits: async (document, options) => all(
                await ask("formatting", { ...file(document), options }), textEdit),
        }),
        languages.registerCodeActionsProvider(language, {
            provideCodeActions: async (document, where) => all(
                await ask("codeAction", { ...file(document), range: sentRange(where), context: { diagnostics: [] } }), codeAction),
        }),
        languages.registerInlayHintsProvider(language, {
            onDidChangeInlayHints: hintsChanged.event,
            provideInlayHints: async (document, where) => all(
                await ask("inlayHint", { ...file(document), range: sentRange(where) }),
                (hint) => new vscode.InlayHint(position(hint.position), hint.label)),
        }),
    ];
}

function watchDocuments(connection) {
    const isTile = (document) => document.languageId === "tile";
    const open = (document) => isTile(document) && connection.tell("textDocument/didOpen", {
        textDocument: { uri: document.uri.toString(), languageId: "tile", version: document.version, text: document.getText() },
    });
    vscode.workspace.textDocuments.forEach(open);
    return [
        vscode.workspace.onDidOpenTextDocument(open),
        vscode.workspace.onDidCloseTextDocument((document) => isTile(document) && connection.tell(
            "textDocument/didClose", { textDocument: { uri: document.uri.toString() } })),
        vscode.workspace.onDidChangeTextDocument((event) => isTile(event.document) && connection.tell(
            "textDocument/didChange", {
                textDocument: { uri: event.document.uri.toString(), version: event.document.version },
                contentChanges: event.contentChanges.map((c) => ({ range: sentRange(c.range), text: c.text })),
            })),
    ];
}

let connection = null;

async function activate(context) {
    const settings = vscode.workspace.getConfiguration("tilec");
    const diagnostics = vscode.languages.createDiagnosticCollection("tilec");
    const hintsChanged = new vscode.EventEmitter();
    connection = new Connection(settings.get("path"), settings.get("target"), (method, params) => {
        if (method === "textDocument/publishDiagnostics")
            diagnostics.set(vscode.Uri.parse(params.uri), params.diagnostics.map(diagnostic));
        else if (method === "workspace/inlayHint/refresh") hintsChanged.fire();
    });
    try {
        await connection.ask("initialize", {
            capabilities: { workspace: { inlayHint: { refreshSupport: true } } },
        });
    } catch (error) {
        vscode.window.showErrorMessage(`tilec: ${error.message}. The setting tilec.path names the compiler.`);
        return;
    }
    connection.tell("initialized", {});
    context.subscriptions.push(diagnostics, ...providers(connection, hintsChanged), ...watchDocuments(connection));
}

async function deactivate() {
    if (!connection || connection.ended) return;
    await connection.ask("shutdown", null);
    connection.tell("exit", null);
}

module.exports = { activate, deactivate };
